"""Reads of a HummockStore against a plain dict of (key, epoch)."""

import random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.support.statestore.hummock.store_model import ROW_SCHEMA, Row, StoreModel, empty_version, sealed, storage_key
from tussock.statestore.hummock import sst_writer
from tussock.statestore.hummock import store as hummock
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.prefix_scan import scan_prefixes
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.errors import EpochExpiredError, EpochNotCommittedError
from tussock.statestore.objectstore.base import ObjectStore

MANY_BLOCKS = hummock._MANY_BLOCKS


def _names(rng: random.Random, wide: bool) -> list[bytes]:
    base = [rng.randbytes(rng.randint(0, 12)) for _ in range(400)]
    return [b"x" * 80 + name for name in base] if wide else base


@pytest.fixture(params=[False, True], ids=["whole blocks", "small blocks"], autouse=True)
def _block_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with blocks so small that tables have many blocks and filter partitions."""
    if request.param:
        monkeypatch.setattr(sst_writer, "ROWS_PER_BLOCK", 4)
        monkeypatch.setattr(sst_writer, "BLOCKS_PER_PARTITION", 3)


_SHAPES = [  # seed, wide keys, target size of an SST, rewritten into level 1, epochs in flight
    (1, False, 3_000, False, 0),
    (2, True, 3_000, True, 3),
    (3, False, 1 << 20, True, 0),
    (4, True, 1 << 20, False, 0),
    (5, False, 3_000, True, 0),
    (6, False, 3_000, False, 12),
    (7, False, 1 << 20, True, 4),
]


@pytest.fixture(params=_SHAPES, ids=str)
def model(request: pytest.FixtureRequest, objects: ObjectStore) -> tuple[StoreModel, random.Random]:
    """Twelve epochs of random puts and deletes on three tables by two actors, with some keys too wide to pad.

    Eight epochs are rewritten into level 1, so that blocks hold several versions of a key. The last are in flight.
    """
    seed, wide, target, rewritten, in_flight = request.param
    rng = random.Random(seed)
    names = _names(rng, wide)
    model = StoreModel(objects)
    for epoch in range(10, 130, 10):
        batches = []
        for table_id in (3, 5, 9):
            for actor in (0, 1):
                changes: dict[bytes, Row | None] = {}
                for _ in range(rng.choice([0, 1, 40, 300])):
                    key = storage_key(table_id, rng.randrange(4) * 2 + actor, rng.choice(names))
                    changes[key] = (
                        None
                        if rng.random() < 0.3
                        else {"n": rng.randrange(1000), "s": rng.choice([None, "", "ß", "long " * 9])}
                    )
                batches.append(sealed(table_id, changes))
        model.commit(epoch, batches, target, in_flight=epoch > 120 - 10 * in_flight)
        if rewritten and epoch == 80:
            model.rewrite(target // 40)
    return model, rng


@pytest.mark.sampled(5)
def test_multi_get_agrees_with_a_dict_at_every_epoch(model: tuple[StoreModel, random.Random]) -> None:
    store_model, rng = model
    store = store_model.store()
    for epoch in (0, 5, 10, 15, 60, 120):
        for table_id in (3, 5, 9, 4):
            keys = [key for key in store_model.rows if key[:4] == table_id.to_bytes(4, "big")]
            keys += [storage_key(table_id, rng.randrange(9), rng.randbytes(3)) for _ in range(50)]
            rng.shuffle(keys)
            found, rows = store.multi_get(table_id, pa.array(keys, pa.binary()), epoch, schema=ROW_SCHEMA)
            expected = [store_model.get(key, epoch) for key in keys]
            assert found.to_pylist() == [row is not None for row in expected]
            assert rows.to_pylist() == [row or {"n": None, "s": None} for row in expected]


@pytest.mark.sampled(5)
def test_iter_agrees_with_a_dict_over_any_range(model: tuple[StoreModel, random.Random]) -> None:
    store_model, rng = model
    store = store_model.store()
    bounds = [*sorted(rng.sample(sorted(store_model.rows), 4)), b"", b"\x00\x00\x00\x05", b"\x00\x00\x00\x05\x00\x01zz"]
    for epoch in (0, 10, 70, 120):
        for table_id in (3, 5, 9):
            for first in [None, *bounds]:
                last = rng.choice([None, *bounds])
                tables = list(store.iter_rows(table_id, first, last, epoch))
                got = [(row.pop("key"), row) for table in tables for row in table.to_pylist()]
                low, high = max(first or b"", table_id.to_bytes(4, "big")), (table_id + 1).to_bytes(4, "big")
                assert got == store_model.scan(epoch, low, high if last is None else min(last, high))


@pytest.mark.sampled(5)
def test_scan_prefix_agrees_with_a_dict(
    model: tuple[StoreModel, random.Random], monkeypatch: pytest.MonkeyPatch
) -> None:
    store_model, rng = model
    keys = sorted(store_model.rows)
    for epoch in (10, 70, 120):
        rows_then = store_model.scan(epoch)
        prefixes = [key[: rng.randint(6, len(key))] for key in rng.sample(keys, 30)]
        prefixes += [(5).to_bytes(4, "big"), (5).to_bytes(4, "big") + b"\x00\x03", (5).to_bytes(4, "big") + b"\x77\x77"]
        prefixes = [p for p in prefixes if p[:4] == (5).to_bytes(4, "big")]
        under = [
            [(i, key, row) for key, row in rows_then if key.startswith(prefix)] for i, prefix in enumerate(prefixes)
        ]
        for reverse, streamed in ((False, False), (True, False), (False, True)):
            # streamed: few ranges of many rows are read one after the other
            monkeypatch.setattr(hummock, "_MANY_BLOCKS", 0 if streamed else MANY_BLOCKS)
            store = store_model.store()
            for limit in (None, 1, 3, 500):
                index, found, rows = store.scan_prefix(
                    5, pa.array(prefixes, pa.binary()), epoch, limit, reverse, schema=ROW_SCHEMA
                )
                expected = [row for rows in under for row in (rows[::-1] if reverse else rows)[:limit]]
                assert list(zip(index.to_pylist(), found.to_pylist(), rows.to_pylist(), strict=True)) == expected


def test_narrow_ranges_over_many_runs_are_read_together(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each range may have rows in a block of each run. All blocks together would hold a million rows, but do not."""
    model = StoreModel(objects)
    keys = [storage_key(1, group % 4, b"%03d" % group) for group in range(120)]
    for epoch in range(30):
        model.commit(10 + epoch, [sealed(1, {key: {"n": epoch, "s": None} for key in keys[epoch % 3 :: 3]})])
    prefixes = sorted(key[:-1] + bytes([key[-1] + half]) for key in keys[::6] for half in (0, 1))
    assert len(prefixes) * 30 >= MANY_BLOCKS

    def one_by_one(*_: object) -> None:
        pytest.fail("40 ranges with a row each were read one after the other")

    monkeypatch.setattr(HummockStore, "_stream_ranges", one_by_one)
    index, found, rows = model.store().scan_prefix(1, pa.array(prefixes, pa.binary()), 39)
    held = [(i, key) for i, prefix in enumerate(prefixes) for key in keys if key.startswith(prefix)]
    assert list(zip(index.to_pylist(), found.to_pylist(), strict=True)) == held
    assert rows["n"].to_pylist() == [27 + keys.index(key) % 3 for _, key in held]


def test_blocks_without_rows_of_a_prefix_are_not_copied(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A join asks for the rows of new keys, which most runs do not have."""
    model = StoreModel(objects)
    keys = [storage_key(1, 0, b"%03d" % group) for group in range(120)]
    for epoch in range(3):
        model.commit(10 + epoch, [sealed(1, {key: {"n": epoch, "s": None} for key in keys[epoch::4]})])
    copied: list[int] = []

    def scan(*args: Any) -> Any:
        found, batches = scan_prefixes(*args)
        copied.append(len(batches))
        return found, batches

    monkeypatch.setattr(hummock, "scan_prefixes", scan)
    for prefixes, runs in ((keys[3::4], 0), (keys[2:8], 3), (keys[4:6], 2)):
        index, found, rows = model.store().scan_prefix(1, pa.array(prefixes, pa.binary()), 12, schema=ROW_SCHEMA)
        held = [(i, keys.index(key) % 4) for i, key in enumerate(prefixes) if keys.index(key) % 4 < 3]
        assert list(zip(index.to_pylist(), rows["n"].to_pylist(), strict=True)) == held
        assert found.to_pylist() == [prefixes[i] for i, _ in held]
        assert copied.pop() == runs


def test_get_and_columns_give_single_rows_and_parts_of_them(objects: ObjectStore) -> None:
    model = StoreModel(objects)
    key, gone = storage_key(1, 0, b"a"), storage_key(1, 0, b"b")
    model.commit(7, [sealed(1, {key: {"n": 1, "s": "one"}, gone: None})])
    store = HummockStore(objects, model.version, BlockCache())
    row = store.get(1, key, 7)
    assert row is not None
    assert row.to_pylist() == [{"n": 1, "s": "one"}]
    assert store.get(1, gone, 7) is None
    assert store.get(2, storage_key(2, 0, b"a"), 7) is None
    found, rows = store.multi_get(1, pa.array([gone, key], pa.binary()), 7, columns=["s"])
    assert (found.to_pylist(), rows.to_pylist()) == ([False, True], [{"s": None}, {"s": "one"}])
    (table,) = store.iter_rows(1, None, None, 7, columns=["s"])
    assert table.to_pylist() == [{"key": key, "s": "one"}]
    assert [t.to_pylist() for t in store.iter_rows(1, None, None, 7, columns=[])] == [[{"key": key}]]
    _, _, rows = store.scan_prefix(1, pa.array([key[:6]], pa.binary()), 7, columns=["n"])
    assert rows.to_pylist() == [{"n": 1}]


def test_reads_of_an_empty_store_and_of_no_keys_answer_with_the_schema_given(objects: ObjectStore) -> None:
    store = HummockStore(objects, empty_version(), BlockCache())
    found, rows = store.multi_get(1, pa.array([storage_key(1, 0, b"a")], pa.binary()), 0, schema=ROW_SCHEMA)
    assert (found.to_pylist(), rows.to_pylist()) == ([False], [{"n": None, "s": None}])
    found, rows = store.multi_get(1, pa.array([], pa.binary()), 0, schema=ROW_SCHEMA)
    assert (len(found), rows.num_rows, rows.schema) == (0, 0, ROW_SCHEMA)
    index, keys, rows = store.scan_prefix(1, pa.array([b"\0\0\0\1"], pa.binary()), 0, schema=ROW_SCHEMA)
    assert (len(index), len(keys), rows.num_rows) == (0, 0, 0)
    assert list(store.iter_rows(1, None, None, 0)) == []


def test_epochs_outside_the_readable_ones_are_refused_by_name(objects: ObjectStore) -> None:
    model = StoreModel(objects)
    model.commit(7, [sealed(1, {storage_key(1, 0, b"a"): {"n": 1, "s": ""}})])
    store = HummockStore(objects, model.version, BlockCache())
    with pytest.raises(EpochNotCommittedError):
        store.get(1, storage_key(1, 0, b"a"), 8)
    raised = msgspec.structs.replace(model.version, min_readable_epoch=7)
    with pytest.raises(EpochExpiredError):
        list(HummockStore(objects, raised, BlockCache()).iter_rows(1, None, None, 3))
    assert list(HummockStore(objects, raised, BlockCache(), pinned=[3]).iter_rows(1, None, None, 3)) == []
