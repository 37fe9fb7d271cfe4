"""The net changes between two epochs: their cost, and that both must be readable. test_model.py checks the rows."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.support.faulty_store import FaultyObjectStore
from tests.support.statestore.hummock.store_model import Row, StoreModel, sealed, storage_key
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.net_changes import net_changes
from tussock.statestore.hummock.sst_reader import Rows, SectionReader
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.errors import EpochExpiredError, EpochNotCommittedError
from tussock.statestore.objectstore.base import ObjectStore

ROWS = 20_000  # twenty blocks


def key(i: int) -> bytes:
    return storage_key(1, i % 4, b"%05d" % i)


def rows(numbers: range, n: int) -> dict[bytes, Row | None]:
    return {key(i): {"n": n, "s": f"row {i}"} for i in numbers}


@pytest.fixture
def model(objects: ObjectStore) -> StoreModel:
    """Epoch 1: many rows. Epoch 2: three rows change, one is deleted, two are new."""
    model = StoreModel(objects)
    model.commit(1, [sealed(1, rows(range(ROWS), 1))])
    changes = rows(range(100, 103), 2) | {key(200): None} | rows(range(ROWS, ROWS + 2), 2)
    model.commit(2, [sealed(1, changes)])
    return model


def changes_of(store: HummockStore, since: int, until: int) -> list[tuple[bytes, int, Any]]:
    parts = [part.to_pylist() for part in store.read_changes(1, None, None, since, until)]
    return sorted((row["key"], row["weight"], row["n"]) for part in parts for row in part)


EXPECTED = sorted([*((key(i), w, n) for i in (100, 101, 102) for w, n in ((-1, 1), (1, 2))), (key(200), -1, 1)])
EXPECTED += [(key(i), 1, 2) for i in (ROWS, ROWS + 1)]


@pytest.mark.parametrize("compacted", [False, True])
def test_changes_read_only_blocks_that_changed_and_those_of_the_old_rows(
    model: StoreModel, compacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compacted:
        model.rewrite(ROWS * 2)  # old rows and new ones, of every epoch, in one SST of level 1
    decoded = []
    decode = SectionReader.decode_blocks

    def counting(reader: SectionReader, first: int, end: int, *rest: Any) -> Rows:
        decoded.append(end - first)
        return decode(reader, first, end, *rest)

    monkeypatch.setattr(SectionReader, "decode_blocks", counting)
    assert changes_of(model.store(BlockCache()), 1, 2) == sorted(EXPECTED)
    assert sum(decoded) <= 12
    decoded.clear()
    assert changes_of(model.store(BlockCache()), 2, 2) == []
    assert decoded == []


def test_an_sst_without_changes_or_old_rows_of_the_interval_is_not_read(objects: ObjectStore) -> None:
    counted = FaultyObjectStore(objects)
    model = StoreModel(counted)
    (old,) = model.commit(1, [sealed(1, rows(range(ROWS), 1))])
    model.commit(2, [sealed(1, {storage_key(1, 5, b"new"): {"n": 2, "s": ""}})])
    counted.calls.clear()
    assert len(changes_of(model.store(), 1, 2)) == 1
    assert all(name != old.name for _, name in counted.calls)


def test_both_epochs_have_to_be_readable(model: StoreModel) -> None:
    raised = msgspec.structs.replace(model.version, min_readable_epoch=2)
    store = HummockStore(model.objects, raised, BlockCache())
    with pytest.raises(EpochExpiredError):
        list(store.read_changes(1, None, None, 1, 2))
    with pytest.raises(EpochNotCommittedError):
        list(store.read_changes(1, None, None, 2, 3))
    pinned = HummockStore(model.objects, raised, BlockCache(), [1])
    assert changes_of(pinned, 1, 2) == sorted(EXPECTED)


def test_rows_are_the_same_by_their_bits_and_null_is_null() -> None:
    nan, other = float("nan"), 1.5
    before = pa.table({"f": pa.array([0.0, nan, other, None, None]), "s": pa.array(["a", "b", "c", None, "d"])})
    after = pa.table({"f": pa.array([-0.0, nan, other, None, 2.0]), "s": pa.array(["a", "b", "x", None, "d"])})
    there = pa.array([True] * 5).to_numpy(zero_copy_only=False)
    keys = pa.array([b"%d" % i for i in range(5)], pa.binary())
    net = net_changes(keys, there, before, there, after)
    assert net["key"].to_pylist() == [b"0", b"2", b"4"] * 2
    assert net["weight"].to_pylist() == [-1] * 3 + [1] * 3
    assert net["s"].to_pylist() == ["a", "c", "d", "a", "x", "d"]
