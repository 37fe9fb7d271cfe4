"""A store with epochs, compactions and readers, and a plain dict with the rows of each epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.catalogs import catalog_of
from tests.support.statestore.hummock.store_model import sealed, storage_key
from tests.support.statestore.meta.make import Clock
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.barrier import Barrier, BarrierPlan
from tussock.statestore.meta.compaction import CompactionPlan
from tussock.statestore.meta.manifest import SealedManifest, manifest_of
from tussock.statestore.meta.names import data_prefix, task_prefix
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import CompactionTask, HummockVersion, LevelInput, SstInfo
from tussock.statestore.objectstore.base import ObjectStore

TABLE = 7
VNODES = 4


@dataclass
class LivingStore:
    """One writer's store and its rows: epoch -> key -> number."""

    objects: ObjectStore = field(default_factory=MemoryObjectStore)
    clock: Clock = field(default_factory=Clock)
    rows: dict[int, dict[bytes, int]] = field(default_factory=lambda: {0: {}})

    def __post_init__(self) -> None:
        MetaStore.init(self.objects, vnode_count=8)
        self.meta = self.open("owner")

    def open(self, writer: str, objects: ObjectStore | None = None) -> MetaStore:
        """The store as another process opens it."""
        return MetaStore(objects or self.objects, writer, self.clock)

    def inject(self) -> Barrier:
        version = self.meta.read_latest()
        return self.meta.inject_barrier(version.epoch, BarrierPlan(mapping=version.mapping, log_end=0))

    def upload(
        self, barrier: Barrier, change: Mapping[int, int | None], objects: ObjectStore | None = None, units: int = 1
    ) -> SealedManifest:
        """Upload as actors and driver do before the seal.

        Args:
            change: number -> new value; None deletes the row.
            units: each uploads the rows of its share of the vnodes.
        """
        ssts: list[SstInfo] = []
        for unit in range(units):
            mine = {n: v for n, v in change.items() if vnode_of(n) * units // VNODES == unit}
            if mine:
                prefix = data_prefix(barrier.epoch)
                ssts += batch_ingest(objects or self.objects, [sealed_change(mine)], barrier.epoch, prefix)
        return manifest_of(barrier, "writer", tuple(ssts))

    def committed(self, manifest: SealedManifest, change: Mapping[int, int | None]) -> None:
        """Note that an epoch was committed."""
        after = {**self.rows[manifest.prev_epoch], **{_key(n): v for n, v in change.items()}}
        self.rows[manifest.epoch] = {key: v for key, v in after.items() if v is not None}

    def run(self, change: Mapping[int, int | None], units: int = 1) -> int:
        """A whole epoch, published. Returns it."""
        self.clock.now_ms += 1000
        manifest = self.upload(self.inject(), change, units=units)
        self.meta.commit_epoch(self.meta.seal_epoch(manifest))
        self.committed(manifest, change)
        self.meta.publish(manifest.epoch)
        return manifest.epoch

    def everything_to_level_1(self, version: HummockVersion) -> CompactionPlan:
        inputs = tuple(
            LevelInput(level, tuple(s.name for s in ssts)) for level, ssts in enumerate(version.levels[:2]) if ssts
        )
        return CompactionPlan(inputs, 1)

    def merge(self, version: HummockVersion, task: CompactionTask, objects: ObjectStore | None = None) -> list[SstInfo]:
        """Merge a task's inputs into one SST with each key's newest row: enough if only the newest epoch is read."""
        taken = {name for inputs in task.inputs for name in inputs.ssts}
        alone = HummockStore(self.objects, _only(version, taken), BlockCache(1 << 20))
        rows = pa.concat_tables(list(alone.iter_rows(TABLE, None, None, version.epoch)))
        batch = sealed(
            TABLE,
            {k: {"n": n, "s": s} for k, n, s in zip(*(rows[c].to_pylist() for c in ("key", "n", "s")), strict=True)},
        )
        return batch_ingest(objects or self.objects, [batch], version.epoch, task_prefix(task.id))

    def compact(self) -> HummockVersion:
        """Compact all runs into level 1, as another process does."""
        meta = self.open("compactor")
        version = meta.read_latest()
        task = meta.open_compaction(self.everything_to_level_1(version))
        return meta.commit_compaction(task, self.merge(version, task))[0]

    def check(self, version: HummockVersion, epoch: int) -> None:
        """Check that a version holds exactly the rows of an epoch."""
        # A separate cache: removed objects must be missed.
        store = HummockStore(self.objects, version, BlockCache(1 << 20), pinned=(epoch,))
        found = pa.concat_tables(store.iter_rows(TABLE, None, None, epoch))
        assert dict(zip(found["key"].to_pylist(), found["n"].to_pylist(), strict=True)) == self.rows[epoch]

    def data(self) -> set[str]:
        """Objects below data/."""
        return {found.name for found in self.objects.list("data/")}


def sealed_change(change: Mapping[int, int | None]) -> SealedBatch:
    """The MemTable of a change: number -> new value; None deletes the row."""
    changes = {_key(n): None if v is None else {"n": v, "s": "x" * 20} for n, v in change.items()}
    return sealed(TABLE, dict(sorted(changes.items())))


def living_store(objects: ObjectStore, epochs: int = 4, rows: int = 400) -> LivingStore:
    """A store whose catalog lists its table, after some epochs that each write the whole table."""
    store = LivingStore(objects)
    version = store.meta.read_latest()
    barrier = store.meta.inject_barrier(
        version.epoch, BarrierPlan(mapping=version.mapping, log_end=0, catalog=catalog_of((TABLE,)))
    )
    manifest = store.upload(barrier, first := dict.fromkeys(range(rows), -1))
    store.meta.commit_epoch(store.meta.seal_epoch(manifest))
    store.committed(manifest, first)
    for number in range(1, epochs):
        store.run({n: n * 100 + number for n in range(rows)})
    return store


def named_by(version: HummockVersion) -> set[str]:
    """Objects that a version names."""
    return {sst.name for level in version.levels for sst in level}


def vnode_of(number: int) -> int:
    return number % VNODES


def _key(number: int) -> bytes:
    return storage_key(TABLE, vnode_of(number), str(number).encode())


def _only(version: HummockVersion, names: set[str]) -> HummockVersion:
    levels = tuple(tuple(s for s in level if s.name in names) for level in version.levels)
    return msgspec.structs.replace(version, levels=levels)
