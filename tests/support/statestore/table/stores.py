"""Stores for tests of tables: `ingest` adds sealed batches of an epoch, and tables read from `reader`."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.sorted_keys import successors
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.version import HummockVersion, SstInfo, VnodeMapping
from tussock.statestore.objectstore.base import ObjectStore


class BucketStore:
    """Hummock over an object store, each epoch committed at once."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._cache = BlockCache()
        self._runs: tuple[SstInfo, ...] = ()  # newest first
        self._epoch = 0

    def ingest(self, batch: SealedBatch | None, epoch: int) -> None:
        if batch is not None:
            self._runs = (*batch_ingest(self._objects, [batch], epoch, f"data/{epoch:016x}"), *self._runs)
        self._epoch = epoch

    @property
    def reader(self) -> HummockStore:
        version = HummockVersion(1, self._epoch, self._epoch, 0, 0, (self._runs,), Catalog(), VnodeMapping(1, (0,)))
        return HummockStore(self._objects, version, self._cache)


class DictStore:
    """The same over a dict, row by row: the reference for Hummock. Its scans return blocks of three rows."""

    def __init__(self) -> None:
        self.entries: dict[bytes, list[tuple[int, bool, dict[str, Any]]]] = {}
        self.schema: pa.Schema | None = None

    @property
    def reader(self) -> Any:
        return self

    def ingest(self, batch: SealedBatch | None, epoch: int) -> None:
        if batch is None:
            return
        keys, ops = batch.rows.column(0).to_pylist(), batch.rows.column(1).to_pylist()
        assert keys == sorted(set(keys))
        rows = batch.rows.select(range(2, batch.rows.num_columns))
        self.schema = rows.schema
        for key, op, row in zip(keys, ops, rows.to_pylist(), strict=True):
            self.entries.setdefault(key, []).insert(0, (epoch, op == 1, row))

    def _at(self, key: bytes, epoch: int) -> dict[str, Any] | None:
        for written, put, row in self.entries.get(key, []):
            if written <= epoch:
                return row if put else None
        return None

    def _table(self, rows: list[Any], columns: list[str] | None) -> pa.Table:
        if self.schema is None:
            return pa.table({})
        named = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        return pa.Table.from_pylist([row or {} for row in rows], named)

    def multi_get(
        self, table_id: int, keys: pa.Array, epoch: int, columns: list[str] | None = None, once: bool = False
    ) -> tuple[pa.Array, pa.Table]:
        rows = [self._at(key, epoch) for key in keys.to_pylist()]
        return pa.array([row is not None for row in rows], pa.bool_()), self._table(rows, columns)

    def scan_prefix(
        self,
        table_id: int,
        prefixes: pa.Array,
        epoch: int,
        limit: int | None = None,
        reverse: bool = False,
        columns: list[str] | None = None,
    ) -> tuple[pa.Array, pa.Array, pa.Table]:
        return self.scan_between(table_id, prefixes, successors(prefixes), epoch, limit, reverse, columns)

    def scan_between(
        self,
        table_id: int,
        firsts: pa.Array,
        ends: pa.Array,
        epoch: int,
        limit: int | None = None,
        reverse: bool = False,
        columns: list[str] | None = None,
    ) -> tuple[pa.Array, pa.Array, pa.Table]:
        index, keys, rows = [], [], []
        for place, (first, end) in enumerate(zip(firsts.to_pylist(), ends.to_pylist(), strict=True)):
            matching = [key for key in sorted(self.entries, reverse=reverse) if first <= key < end]
            live = [(key, row) for key in matching if (row := self._at(key, epoch)) is not None]
            for key, row in live[:limit]:
                index.append(place)
                keys.append(key)
                rows.append(row)
        return pa.array(index, pa.int64()), pa.array(keys, pa.binary()), self._table(rows, columns)

    def iter_rows(
        self, table_id: int, first: bytes, last: bytes, epoch: int, columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        live = [
            (key, row)
            for key in sorted(self.entries)
            if first <= key < last and (row := self._at(key, epoch)) is not None
        ]
        for start in range(0, len(live), 3):  # small blocks: borders everywhere
            part = live[start : start + 3]
            rows = self._table([row for _, row in part], columns)
            yield rows.add_column(0, "key", pa.array([key for key, _ in part], pa.binary()))
