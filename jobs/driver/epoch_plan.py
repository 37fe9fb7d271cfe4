"""The plan of one epoch: all that its run is a function of, decided before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tussock.jobs.executors.operator import Entry
from tussock.jobs.logical.statements import Change, Insert
from tussock.jobs.plan.apply import Replayed
from tussock.jobs.plan.definition import source_of
from tussock.jobs.plan.schedule import Schedule, schedule
from tussock.jobs.plan.statement_log import replay
from tussock.jobs.sources.base import Item
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.wire.flush_policy import Expected, FlushPolicy
from tussock.statestore.hummock.shared_buffer import SharedBuffer
from tussock.statestore.meta.barrier import Barrier, MutationKind
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


@dataclass(frozen=True, slots=True)
class Base:
    """What an epoch builds on.

    Args:
        version: the version before it. In a train it counts epochs in flight, as if they were committed: then it is one that the version
            log does not hold, and its SSTs lack what those epochs sealed.
        buffer: what the driver itself sealed in the epochs in flight that `version` counts.
    """

    version: HummockVersion
    buffer: SharedBuffer = field(default_factory=SharedBuffer)


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """One epoch, planned.

    Args:
        barrier: what it takes in.
        base: what it builds on.
        catalog: the relations from this epoch on.
        schedule: their fragments, level by level.
        changes: row changes of the log by table's relation id, in log order.
    """

    barrier: Barrier
    base: Base
    catalog: Catalog
    schedule: Schedule
    changes: Mapping[int, Sequence[Entry]]

    @property
    def units(self) -> tuple[int, ...]:
        """vnode -> parallel unit, as the barrier pinned it."""
        return self.barrier.mapping.units

    @property
    def unit_count(self) -> int:
        """The number of parallel units, which are numbered from 0."""
        return self.barrier.mapping.unit_count

    def expected(self, policy: FlushPolicy) -> Expected:
        """How much the epoch is likely to seal."""
        files = sum(item.nbytes for item in pinned_items(self.barrier, self.catalog))
        rows = sum(
            e.statement.rows
            for entries in self.changes.values()
            for e in entries
            if isinstance(e.statement, Insert | Change)
        )
        return policy.expected(
            file_bytes=files, rows=rows, creates=self.barrier.mutation.kind in (MutationKind.ADD, MutationKind.BUILD)
        )


def pinned_items(barrier: Barrier, catalog: Catalog) -> tuple[Item, ...]:
    """What a barrier's epoch reads of sources: files by path, with their bytes."""
    sources = ((source_of(r), barrier.splits.get(r.id)) for r in catalog.live())
    return tuple(
        item for statement, pins in sources if statement is not None for item in reader_of(statement).items(pins)
    )


def plan_epoch(meta: MetaStore, base: Base, barrier: Barrier, replayed: Replayed | None = None) -> EpochPlan:
    """Plan a barrier's epoch.

    Args:
        replayed: what the log's part of the barrier says, where this process has read it to decide the barrier; else it is read here.
    """
    catalog = base.version.catalog if barrier.catalog is None else barrier.catalog
    if replayed is None:
        replayed = replay(
            meta, base.version, barrier.log_start, barrier.log_end, barrier.skipped_entries, barrier.epoch
        )
    return EpochPlan(barrier, base, catalog, schedule(catalog, barrier.epoch, base.version.catalog), replayed.changes)
