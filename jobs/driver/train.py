"""A train of epochs: one after another in one Spark application, with their checkpoints behind them.

An epoch's levels run; then its flush, its manifest and its commit run behind it, in the order of epochs, while the next epoch's levels run
already. That one reads the version the train stands on, and what the epochs in flight have sealed, which Spark holds as cells in its
executors' memory and on their disks. At most `depth` epochs are in flight; beyond, the train waits.

Nothing of this is visible in the store, whose protocol stays that of single epochs: the barrier of an epoch that follows one in flight is a
draft, put in force when that one is committed, and sealed after that. So whoever dies, or loses, leaves a store at a committed epoch
with at most one open barrier; what came after it in the train was never there.

The version that the train stands on is pinned. It moves on when KEEP epochs behind it are committed: until then these are still read
from memory, and their SSTs not at all.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from jobs.driver.barrier import MAX_EPOCH_BYTES, Base, draft, inject
from jobs.driver.leaves import taken_batches
from jobs.driver.levels import HeldCells, Levels, in_order, plan_levels, told_by_name
from jobs.driver.summary import EpochSummary, Progress, Timed, row_counts, step_seconds, summary_of
from jobs.plan.schedule import Schedule, schedule
from jobs.sources.listing import Interval
from jobs.wire.epoch_task import FragmentReport
from statestore.errors import InputError
from statestore.hummock.sealed_batch import SealedBatch
from statestore.hummock.shared_buffer import Load, SharedBuffer
from statestore.meta.barrier import Barrier
from statestore.meta.catalog import Catalog
from statestore.meta.delta import EpochCommitted, VersionDelta, apply
from statestore.meta.errors import LostRaceError
from statestore.meta.manifest import RowCounts, manifest_of
from statestore.meta.pin import Pin
from statestore.meta.store import MetaStore
from statestore.meta.version import HummockVersion, SstInfo

DEPTH = 3  # epochs whose checkpoint may be under way at once
KEEP = 2  # committed epochs that stay in memory before the train moves on to a newer version


@dataclass(frozen=True, slots=True)
class _Stand:
    """A version to stand on, and the pin that keeps its SSTs; none: the open barrier on it does."""

    version: HummockVersion
    pin: Pin | None


@dataclass(frozen=True, slots=True)
class _Committed:
    summary: EpochSummary
    stand: _Stand | None  # a version that holds the epoch, where it is time to move there


@dataclass(slots=True)
class _InFlight:
    """An epoch whose levels have run. It stays until the train stands on a version that holds it."""

    barrier: Barrier
    levels: Levels | None  # None: no fragment had anything to do
    held: HeldCells | None
    uploaded: tuple[SstInfo, ...]  # where they were sealed: of target size
    taken: tuple[SealedBatch, ...]  # what the driver sealed: files taken
    checkpoint: "Future[_Committed]"
    collected: bool = False

    def uncollected_stand(self) -> _Stand | None:
        """A stand that its checkpoint pinned and the train, ended by an error, never moved to. Requires: the checkpoint is over."""
        return None if self.collected or self.checkpoint.exception() is not None else self.checkpoint.result().stand

    def release(self) -> None:
        """Let Spark forget what it holds."""
        if self.held is not None:
            self.held.release()
        if self.levels is not None:
            self.levels.close()


class Train:
    """See the module. Use as a context: leaving it waits for the commits of what has run, also after an error in a later epoch.

    Not safe for threads. Everything it raises, `run`, `next_barrier` and `drain` raise: errors of the epoch at hand or of one before it.
    """

    def __init__(
        self, spark: SparkSession, meta: MetaStore, depth: int = DEPTH, keep: int = KEEP, progress: Progress = lambda _: None
    ) -> None:
        """
        Args:
            depth: epochs in flight at most, at least 1.
            keep: committed epochs that stay in memory before the train moves on, at least 0.
            progress: called with one line as each part begins or ends; also from the thread that commits.
        """
        self.spark, self.meta, self.depth, self.keep, self.progress = spark, meta, depth, keep, progress
        self.done: list[EpochSummary] = []
        self._behind = meta.beside()  # the committing thread's own
        self._committing = ThreadPoolExecutor(1, "checkpoint")
        self._broken = False  # a checkpoint failed: those behind it have no base
        self._stand: _Stand | None = None  # None: the train has not begun
        self._in_flight: deque[_InFlight] = deque()
        self._since_move = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self.drain()
        finally:
            self._committing.shutdown()
            stands = [self._stand, *(one.uncollected_stand() for one in self._in_flight)]
            while self._in_flight:
                self._in_flight.popleft().release()
            for pin in (stand.pin for stand in stands if stand is not None):
                if pin is not None:
                    self.meta.unpin(pin)

    def next_barrier(
        self, interval: Interval | None = None, max_epoch_bytes: int = MAX_EPOCH_BYTES, run: Mapping[str, str] | None = None
    ) -> Barrier | None:
        """What the next epoch takes in; None where nothing waits. The first one is in force, or was left open by somebody; the others are
        drafts that count on the epochs before them. Raises as jobs.barrier.inject does."""
        self._collect()
        if self._stand is None:
            return inject(self.meta, interval, max_epoch_bytes, run)
        return draft(self.meta, self._base(self._pinned_stand(self._stand)), interval, max_epoch_bytes, run)

    def run(self, barrier: Barrier) -> None:
        """Run an epoch's levels, and let its checkpoint follow. Waits where `depth` epochs are in flight.

        Raises: InputError branches when an input stops the epoch: those before it are committed then, and its barrier is in force, so that
            it can be abandoned or run again. LostRaceError when another driver was first; this and all that was in flight is discarded.
        """
        self._collect()
        while self.pending() >= self.depth:
            self._wait()
        drafted = self._stand is not None
        stand = self._secured(barrier)
        base = self._base(stand)
        seconds: dict[str, float] = {}
        with Timed(seconds, "plan"):
            catalog = base.version.catalog if barrier.catalog is None else barrier.catalog
            plan = schedule(catalog, barrier.epoch)
            held = [one.held for one in self._above(stand) if one.held is not None]
        self.progress(f"epoch {barrier.epoch}: running {sum(len(level) for level in plan.levels)} fragments in {len(plan.levels)} levels")
        with Timed(seconds, "run"):
            try:
                reports, uploaded, levels, cells = self._levels(base, barrier, catalog, plan, held)
            except InputError as err:
                told = told_by_name(err, self.meta, base, barrier, catalog, plan)
                self.drain()
                if drafted:
                    self.meta.put_in_force(barrier)
                raise told from None
        self._since_move = 0 if (move := self._since_move == self.keep) else self._since_move + 1
        rows = row_counts(reports, plan)
        checkpoint = inheritable_thread_target(self.spark)(self._checkpoint)
        future = self._committing.submit(checkpoint, barrier, drafted, levels, cells, uploaded, rows, seconds, move)
        self._in_flight.append(_InFlight(barrier, levels, cells, uploaded, tuple(taken_batches(barrier, catalog)), future))

    def drain(self) -> None:
        """Wait until nothing is in flight. Raises what a checkpoint raised."""
        while self.pending():
            self._wait()
        self._collect()  # the last one may have ended before anybody waited for it

    # --- levels ------------------------------------------------------------------------------------------------------------------

    def _levels(
        self, base: Base, barrier: Barrier, catalog: Catalog, plan: Schedule, held: Sequence[HeldCells]
    ) -> tuple[list[FragmentReport], tuple[SstInfo, ...], Levels | None, HeldCells | None]:
        if (levels := plan_levels(self.spark, self.meta, base, barrier, catalog, plan, held)) is None:
            return [], (), None, None
        try:
            reports, uploaded, cells = levels.hold()
        except BaseException:
            levels.close()
            raise
        return reports, tuple(uploaded), levels, cells

    # --- behind the levels, in the committing thread -----------------------------------------------------------------------------

    def _checkpoint(
        self,
        barrier: Barrier,
        drafted: bool,
        levels: Levels | None,
        held: HeldCells | None,
        uploaded: tuple[SstInfo, ...],
        rows: Mapping[str, RowCounts],
        seconds: dict[str, float],
        move: bool,
    ) -> _Committed:
        if self._broken:
            raise LostRaceError(f"epoch {barrier.epoch}", f"the epoch before it, {barrier.prev_epoch}, was not committed")
        self._broken = True  # until all is well
        meta = self._behind
        with Timed(seconds, "flush"):
            flushed = levels.flush(held) if levels is not None and held is not None else []
        with Timed(seconds, "commit"):
            if drafted:
                meta.put_in_force(barrier)
            ssts = tuple(in_order([*uploaded, *flushed]))
            sealed = meta.seal(manifest_of(barrier, meta.writer, ssts, rows, step_seconds(seconds)))
            self.progress(f"epoch {barrier.epoch}: sealed")
            committed, mine = meta.commit_epoch(sealed)
            if not mine:
                raise LostRaceError(f"epoch {barrier.epoch}", "another run of the same barrier committed it first, with the same rows")
        self.progress(f"epoch {barrier.epoch}: committed version {committed.id}")
        stand = _pinned(meta, barrier.epoch) if move else None
        self._broken = False
        return _Committed(summary_of(sealed, committed.id, seconds), stand)

    # --- where the train stands --------------------------------------------------------------------------------------------------

    def _secured(self, barrier: Barrier) -> _Stand:
        """A version to run `barrier` on, whose SSTs stay while it runs."""
        if self._stand is None:  # the barrier is in force: vacuum keeps the SSTs of its base
            version = self.meta.latest()
            if version.epoch != barrier.prev_epoch:
                raise LostRaceError(f"epoch {barrier.epoch}", f"epoch {version.epoch} is committed after {barrier.prev_epoch} already")
            self._stand = _Stand(version, None)
            return self._stand
        return self._pinned_stand(self._stand)

    def _pinned_stand(self, stand: _Stand) -> _Stand:
        """Where the train stands, kept by a pin of its own: what the first barrier kept may go as soon as it is committed."""
        if stand.pin is None:
            self._move_to(_pinned(self.meta, self.done[-1].epoch if self.done else stand.version.epoch))
            assert self._stand is not None
            return self._stand
        return stand

    def _above(self, stand: _Stand) -> list[_InFlight]:
        """Epochs that the version stood on does not hold, oldest first."""
        return [one for one in self._in_flight if one.barrier.epoch > stand.version.epoch]

    def _base(self, stand: _Stand) -> Base:
        """What the next epoch builds on: the version stood on, as if those above it were committed."""
        version = stand.version
        runs: dict[int, list[tuple[int, Load]]] = {}
        for one in self._above(stand):
            barrier = one.barrier
            change = EpochCommitted(barrier.prev_epoch, barrier.epoch, barrier.attempt, one.uploaded, barrier.log_end, barrier.catalog)
            version = apply(version, VersionDelta(version.id + 1, self.meta.writer, change))
            for batch in one.taken:
                runs.setdefault(batch.table_id, []).append((barrier.epoch, lambda batch=batch: batch))  # type: ignore[misc]
        return Base(version, SharedBuffer(runs))

    def _move_to(self, stand: _Stand) -> None:
        """Stand on a newer version, and forget the epochs that it holds."""
        assert self._stand is not None
        if self._stand.version.mapping.id != stand.version.mapping.id:
            self.drain()  # what is held lies on the units of the old mapping
            if stand.pin is not None:
                self.meta.unpin(stand.pin)
            stand = _pinned(self.meta, self.done[-1].epoch if self.done else stand.version.epoch)
        if self._stand.pin is not None:
            self._committing.submit(self._behind.unpin, self._stand.pin)
        self._stand = stand
        while self._in_flight and self._in_flight[0].collected and self._in_flight[0].barrier.epoch <= stand.version.epoch:
            self._in_flight.popleft().release()

    # --- waiting -----------------------------------------------------------------------------------------------------------------

    def pending(self) -> int:
        """Epochs whose checkpoint is under way."""
        return sum(not one.checkpoint.done() for one in self._in_flight)

    def _wait(self) -> None:
        next(one for one in self._in_flight if not one.checkpoint.done()).checkpoint.exception()
        self._collect()

    def _collect(self) -> None:
        """Take what checkpoints have brought, in the order of epochs. Raises what one raised."""
        for one in list(self._in_flight):
            if one.collected:
                continue
            if not one.checkpoint.done():
                break
            committed = one.checkpoint.result()
            one.collected = True
            self.done.append(committed.summary)
            if committed.stand is not None:
                self._move_to(committed.stand)


def _pinned(meta: MetaStore, epoch: int) -> _Stand:
    pin = meta.pin(epoch, onward=True)  # it reads SSTs of epochs in flight, which compaction may take out as soon as they are committed
    return _Stand(meta.pinned_version(pin), pin)
