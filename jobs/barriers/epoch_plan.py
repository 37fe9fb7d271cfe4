"""The plan of one epoch: all inputs of its run, decided before it starts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tussock.jobs.catalog.apply import ReplayResult
from tussock.jobs.catalog.definition import source_of
from tussock.jobs.catalog.statement_log import replay_log
from tussock.jobs.executors.operator import Entry
from tussock.jobs.logical.statements import Change, Insert
from tussock.jobs.schedule.schedule import Schedule, make_schedule
from tussock.jobs.sources.base import Item
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.wire.flush_policy import ExpectedSize, FlushPolicy
from tussock.statestore.hummock.shared_buffer import SharedBuffer
from tussock.statestore.meta.barrier import Barrier, MutationKind
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.manifest import RowCounts
from tussock.statestore.meta.pages import bytes_of
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, SstInfo

_ROW_BYTES = 64  # of a row change of the log, whose payload is not read before the epoch runs

_EQUAL_SHARE = 8  # a row that equals an old one costs less than this share of a changed row: it is read and matched


@dataclass(frozen=True, slots=True)
class Base:
    """The state that an epoch builds on.

    Args:
        version: the version before the epoch. In a train, it contains the epochs in flight as if they were committed.
            The version log does not contain this version, and its SSTs lack the sealed MemTables of those epochs.
        buffer: MemTables that the driver sealed in the epochs in flight of `version`.
        committed: whether `version` contains no epochs in flight.
    """

    version: HummockVersion
    buffer: SharedBuffer = field(default_factory=SharedBuffer)
    committed: bool = True


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """The plan of one epoch.

    Args:
        barrier: its input.
        base: the state that it builds on.
        catalog: the relations from this epoch on.
        schedule: their fragments by level.
        changes: row changes of the log by the table's relation id, in log order.
        shared: SSTs of the parent that a branch commits with the epoch that it takes.
        counts: rows of relations that a branch takes with them; None: not counted.
    """

    barrier: Barrier
    base: Base
    catalog: Catalog
    schedule: Schedule
    changes: Mapping[int, Sequence[Entry]]
    shared: tuple[SstInfo, ...] = ()
    counts: Mapping[str, RowCounts] | None = field(default_factory=dict)

    @property
    def unit_of_vnode(self) -> tuple[int, ...]:
        """The parallel unit of each vnode, as pinned by the barrier."""
        return self.barrier.mapping.unit_of_vnode

    @property
    def unit_count(self) -> int:
        """The number of parallel units, which are numbered from 0."""
        return self.barrier.mapping.unit_count

    def input_size(self) -> "InputSize":
        """Return the estimated size of the input."""
        creates = self.barrier.mutation.kind in (MutationKind.ADD, MutationKind.BUILD)
        logged = (e.statement for entries in self.changes.values() for e in entries)
        return InputSize(
            sum(changed_bytes(items) for items in pinned_by_source(self.barrier, self.catalog)),
            sum(statement.rows for statement in logged if isinstance(statement, Insert | Change)),
            creates,
            sum(map(bytes_of, self.base.version.levels)) if creates else 0,
        )


class InputSize(NamedTuple):
    """The estimated input of an epoch. If it creates relations, it may read existing ones in full: all state."""

    file_bytes: int  # as `changed_bytes` counts them
    logged_rows: int
    creates: bool
    state_bytes: int

    @property
    def nbytes(self) -> int:
        """Size of the whole input."""
        return self.file_bytes + self.logged_rows * _ROW_BYTES + self.state_bytes

    def predict_amount(self, policy: FlushPolicy) -> ExpectedSize:
        """Return whether the epoch will probably seal little or much."""
        return policy.predict_amount(file_bytes=self.file_bytes, rows=self.logged_rows, creates=self.creates)


def changed_bytes(items: Sequence[Item]) -> int:
    """Estimate the bytes of a source whose rows reach views.

    Bytes that are taken back, and as many new ones, are probably those of equal rows (tussock.jobs.task.source_rows).
    """
    goes = sum(item.nbytes for item in items if item.goes)
    comes = sum(item.nbytes for item in items if not item.goes)
    equal = 2 * min(goes, comes)
    return goes + comes - equal + equal // _EQUAL_SHARE


def pinned_by_source(barrier: Barrier, catalog: Catalog) -> Iterator[Sequence[Item]]:
    """Yield the files that a barrier's epoch reads, by path, of each source."""
    for relation in catalog.live_relations():
        if (source := source_of(relation)) is not None:
            yield reader_of(source).items(barrier.splits.get(relation.id))


def plan_epoch(meta: MetaStore, base: Base, barrier: Barrier, replayed: ReplayResult | None = None) -> EpochPlan:
    """Plan a barrier's epoch.

    Args:
        replayed: the replayed log entries of the barrier, if this process replayed them; otherwise they are replayed
            here.
    """
    catalog = base.version.catalog if barrier.catalog is None else barrier.catalog
    if replayed is None:
        replayed = replay_log(
            meta, base.version, barrier.log_start, barrier.log_end, barrier.skipped_entries, barrier.epoch
        )
    return EpochPlan(
        barrier, base, catalog, make_schedule(catalog, barrier.epoch, base.version.catalog), replayed.changes
    )
