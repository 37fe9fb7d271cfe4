"""Scans with a limit take the rows that they rank: as many of a long prefix as of a short one, and no further block."""

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.store_model import Row, StoreModel, sealed, storage_key
from tussock.statestore.hummock import block_source, prefix_scan, sst_writer
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.store import HummockStore

TABLE = 3
GROUPS = 200
TOUCHED = 20
SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
NUMBERS = pa.schema([("n", pa.int64())])


def _key(group: int, place: int) -> bytes:
    return storage_key(TABLE, group % 8, b"%04d%06d" % (group, place))


def _model(rows: int, schema: pa.Schema, deleted: int) -> StoreModel:
    """Groups of `rows` rows, of which a newer SST deletes the first `deleted` ones of each touched group."""
    model = StoreModel(MemoryObjectStore())
    row: Row = {"n": 7, "s": "text"} if "s" in schema.names else {"n": 7}
    model.commit(1, [sealed(TABLE, {_key(g, p): row for g in range(GROUPS) for p in range(rows)}, schema)])
    if deleted:
        gone: dict[bytes, Row | None] = {_key(g, p): None for g in range(TOUCHED) for p in range(deleted)}
        model.commit(2, [sealed(TABLE, gone, schema)])
    return model


class _Taken:
    """Rows that scans take from blocks, and blocks that they search."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.blocks = 0
        newest, read = prefix_scan._Newest.from_gathered, block_source.BlockSource.read_units

        def count_rows(found: Any) -> Any:
            self.rows += sum(len(part) for part in found.row)
            return newest(found)

        def count_blocks(source: Any, requests: Any, *others: Any) -> Any:
            self.blocks += sum(len(request.blocks) for request in requests)
            return read(source, requests, *others)

        monkeypatch.setattr(prefix_scan._Newest, "from_gathered", staticmethod(count_rows))
        monkeypatch.setattr(block_source.BlockSource, "read_units", count_blocks)


@pytest.mark.parametrize("schema", [SCHEMA, NUMBERS], ids=["texts", "packed"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("limit", "deleted"), [(1, 0), (3, 0), (1, 2), (10, 4)])
def test_a_long_prefix_costs_as_much_as_a_short_one(
    schema: pa.Schema, reverse: bool, limit: int, deleted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sst_writer, "ROWS_PER_BLOCK", 32)
    monkeypatch.setattr(block_source, "_WORTH_PACKING", 1)
    monkeypatch.setattr(block_source, "_DENSE_IF_SMALL", 0)  # reads no partition whole
    costs = []
    for rows in (100, 1_000):
        model = _model(rows, schema, deleted)
        places = range(rows - 1, deleted - 1, -1) if reverse else range(deleted, rows)
        expected = [_key(g, p) for g in range(TOUCHED) for p in places[:limit]]
        with monkeypatch.context() as patched:
            taken = _Taken(patched)
            prefixes = pa.array([_key(g, 0)[:10] for g in range(TOUCHED)], pa.binary())
            store = HummockStore(model.objects, model.version, BlockCache(0))
            _, keys, _ = store.scan_prefix(TABLE, prefixes, model.version.epoch, limit, reverse)
        assert keys.to_pylist() == expected
        costs.append((taken.rows, taken.blocks))
    (few_rows, few_blocks), (many_rows, many_blocks) = costs
    assert many_rows <= 1.2 * few_rows
    assert many_blocks <= 1.2 * few_blocks
    rounds = 1 if not deleted or reverse else 2
    assert many_rows <= TOUCHED * rounds * 5 * (limit + deleted + 1)
    assert many_blocks <= TOUCHED * 2 * (1 + bool(deleted)) * rounds


@pytest.mark.parametrize("reverse", [False, True])
def test_a_limit_returns_the_newest_version_of_each_row(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks hold several versions of a key, and newer SSTs delete some rows, so that windows end among versions."""
    monkeypatch.setattr(block_source, "_WORTH_PACKING", 1)
    for seed in range(15):
        chance, model, rows = random.Random(seed), StoreModel(MemoryObjectStore()), dict[bytes, Row | None]()
        for epoch in range(1, 8):
            changes: dict[bytes, Row | None] = {
                _key(group, place): None if chance.random() < 0.35 else {"n": epoch}
                for group in range(4)
                for place in range(8)
                if chance.random() < 0.6
            }
            model.commit(epoch, [sealed(TABLE, changes, NUMBERS)])
            rows |= changes
            if epoch == 5:
                model.rewrite(400, NUMBERS)
        store = HummockStore(model.objects, model.version, BlockCache(0))
        prefixes = [_key(group, 0)[:10] for group in range(4)]
        live = [(key, row["n"]) for key in sorted(rows, reverse=reverse) if (row := rows[key]) is not None]
        for limit in (1, 2, 3):
            of_prefixes = ([pair for pair in live if pair[0].startswith(prefix)] for prefix in prefixes)
            expected = [pair for pairs in of_prefixes for pair in pairs[:limit]]
            _, keys, found = store.scan_prefix(TABLE, pa.array(prefixes, pa.binary()), 7, limit, reverse)
            assert list(zip(keys.to_pylist(), found["n"].to_pylist(), strict=True)) == expected
