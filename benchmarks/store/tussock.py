"""Tussock's state store as an engine: one epoch per ingest, including the commit; reads of the newest version."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.store.engine import CACHE_BYTES, SST_BYTES, TABLE, VNODES, storage_keys, storage_prefixes
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.sorted_keys import probe_order, take_keys
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.barrier import BarrierPlan
from tussock.statestore.meta.catalog import Catalog, ColumnSpec, KeyColumn, Relation, RelationKind, TableSchema
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.names import data_prefix
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore

_COLUMNS = (
    ColumnSpec("g", "bigint"),
    ColumnSpec("i", "bigint"),
    ColumnSpec("n", "bigint"),
    ColumnSpec("total", "double"),
)
_SCHEMA = TableSchema(TABLE, "t", _COLUMNS, (KeyColumn(0), KeyColumn(1)), (0,))
_CATALOG = Catalog((Relation(1, "t", RelationKind.VIEW, _COLUMNS, msgspec.Raw(b"{}"), (_SCHEMA,)),), 2, 2)


class Tussock:
    """Tussock as an engine of the benchmark. `objects`: any object store; default: the folder's."""

    name = "tussock"

    def __init__(self, folder: Path, objects: ObjectStore | None = None) -> None:
        self.objects = objects or LocalObjectStore(folder)
        self._fresh = not (folder / "meta").exists()

    def open(self) -> None:
        if self._fresh:
            MetaStore.init(self.objects, vnode_count=VNODES)
        ticks = itertools.count(1)
        self.meta = MetaStore(self.objects, "benchmark", lambda: next(ticks) * 1000)
        self.reopen()

    def reopen(self) -> None:
        """Open the newest version with an empty cache."""
        self.cache = BlockCache(CACHE_BYTES)
        self._see_newest()

    def ingest(self, rows: pa.Table) -> None:
        version = self.meta.read_latest()
        catalog = None if version.catalog.relations else _CATALOG
        barrier = self.meta.inject_barrier(
            version.epoch, BarrierPlan(mapping=version.mapping, log_end=0, catalog=catalog)
        )
        keys = storage_keys(rows)
        order = probe_order(keys)
        puts = pa.array(np.ones(rows.num_rows, np.uint8))
        columns = [take_keys(keys, order), puts, *(rows.column(name).take(pa.array(order)) for name in ("n", "total"))]
        sealed = pa.table(columns, ["key", "op", "n", "total"])
        ssts = batch_ingest(
            self.objects, [SealedBatch(TABLE, sealed)], barrier.epoch, data_prefix(barrier.epoch), SST_BYTES
        )
        self.meta.commit_epoch(self.meta.seal_epoch(manifest_of(barrier, self.meta.writer, tuple(ssts))))
        self._see_newest()

    def multi_get(self, keys: pa.Table) -> tuple[pa.BooleanArray, pa.Table]:
        return self.store.multi_get(TABLE, storage_keys(keys), self.store.version.epoch)

    def scan_prefixes(self, groups: pa.Array) -> tuple[pa.Int64Array, pa.Table]:
        index, keys, rows = self.store.scan_prefix(TABLE, storage_prefixes(groups), self.store.version.epoch)
        return index, rows.add_column(0, "key", keys)

    def scan(self) -> Iterator[pa.Table]:
        return self.store.iter_rows(TABLE, None, None, self.store.version.epoch)

    def compact(self) -> None:
        epoch = self.meta.read_latest().epoch
        self.meta.publish(epoch)
        self.meta.apply_retention(1)
        compact_store(self.meta, full=True)
        self._see_newest()

    def close(self) -> None:
        pass

    def _see_newest(self) -> None:
        self.store = HummockStore(self.objects, self.meta.read_latest(), self.cache)

    @property
    def state_bytes(self) -> int:
        """Bytes of the SSTs in the newest version, which vacuum would keep."""
        return sum(sst.size for level in self.store.version.levels for sst in level)
