"""Small values for the tests of meta."""

from collections.abc import Callable
from dataclasses import dataclass

from tussock.statestore.meta.barrier import Barrier, BarrierPlan
from tussock.statestore.meta.manifest import RowCounts, SealedManifest, manifest_of
from tussock.statestore.meta.names import data_prefix
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, SectionInfo, SstInfo
from tussock.statestore.objectstore.base import ObjectStore

START_MS = 1_700_000_000_000


@dataclass
class Clock:
    """A clock that changes only when it is set."""

    now_ms: int = START_MS

    def __call__(self) -> int:
        return self.now_ms


def open_meta(objects: ObjectStore, writer: str = "a", clock_ms: Callable[[], int] | None = None) -> MetaStore:
    return MetaStore(objects, writer, clock_ms or Clock())


def new_meta(objects: ObjectStore, writer: str = "a") -> MetaStore:
    MetaStore.init(objects, vnode_count=8)
    return open_meta(objects, writer)


def plan_on(version: HummockVersion) -> BarrierPlan:
    return BarrierPlan(mapping=version.mapping, log_end=version.log_end)


def sst_of(epoch: int, label: str = "sst") -> SstInfo:
    section = SectionInfo(table_id=1, first_key=b"\x00\xff", last_key=b"\xff", rows=3, bytes=90)
    return SstInfo(f"{data_prefix(epoch)}{label}.sst", 100, 20, 3, epoch, epoch, (section,))


def manifest_for(barrier: Barrier, writer: str = "a") -> SealedManifest:
    return manifest_of(barrier, writer, (sst_of(barrier.epoch),), {"t": RowCounts(3, 3)})


def run_epoch(meta: MetaStore) -> HummockVersion:
    """One whole epoch, as a driver runs it: resume or inject, seal, commit."""
    version = meta.read_latest()
    barrier = meta.inject_barrier(version.epoch, plan_on(version))
    sealed = meta.read_manifest(barrier.epoch)
    if sealed is None:
        sealed = meta.seal_epoch(manifest_for(barrier, meta.writer))
    return meta.commit_epoch(sealed)[0]
