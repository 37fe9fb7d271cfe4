"""Trains of epochs: all epochs run in one. A single epoch is a train of one.

After an epoch's levels have run, its *checkpoint* (flush, manifest and commit) runs in a thread, in the order of
epochs, while the next epoch's levels already run. The next epoch reads the train's base version, and the sealed
MemTables of the epochs in flight, which the driver or Spark holds as cells (tussock.jobs.driver.sealed_tables). At most
`depth` epochs are in flight; then the train waits.

The store only contains the protocol of single epochs. The barrier of an epoch behind one in flight is a draft. It is
put in force when that epoch is committed, and sealed afterwards. If a driver dies or loses a race, it leaves a store at
a committed epoch with at most one open barrier, and without a trace of later epochs of the train.

The open barrier of the first epoch protects its base from vacuum. From the second epoch on, the train pins its base
version; most trains have one epoch and pin nothing. The train moves to a newer base version when `keep` later epochs
are committed. Until then, it reads these epochs from memory and not from their SSTs.
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from tussock.jobs.barriers.barrier import UNBOUNDED, PlannedBarrier, draft_barrier, take_in
from tussock.jobs.barriers.epoch_plan import Base, EpochPlan, plan_epoch
from tussock.jobs.barriers.follow import plan_followed
from tussock.jobs.barriers.moment import ALL_INPUT, InputRequest
from tussock.jobs.barriers.undo import CannotUndoError
from tussock.jobs.chunks.failure import SourceAwayError
from tussock.jobs.driver.levels import LevelResults, in_order, run_levels, with_names
from tussock.jobs.driver.runner import LevelRunner
from tussock.jobs.driver.sealed_tables import SealedTables
from tussock.jobs.driver.summary import (
    EpochSummary,
    PartTimer,
    restated_items,
    row_counts,
    seconds_text,
    step_seconds,
    summary_of,
    undeclared_columns,
    unit_work,
)
from tussock.jobs.driver.undo import write_undone_rows
from tussock.jobs.settings.logs import working_on
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.wire.measured import MeasurementSum
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.errors import MissingSstError
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.shared_buffer import Load, SharedBuffer
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.delta import VersionDelta, apply_delta
from tussock.statestore.meta.errors import EpochExpiredError, LostRaceError
from tussock.statestore.meta.manifest import RowCounts, SealedManifest, UnitWork, change_of_manifest, manifest_of
from tussock.statestore.meta.pin import Pin
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, SstInfo
from tussock.statestore.objectstore.requests import Requests, requests_so_far
from tussock.statestore.objectstore.syncs import synced_in_order, wait_until_durable
from tussock.statestore.progress import Progress, no_progress
from tussock.statestore.table.recalled_table import recall_written

log = logging.getLogger(__name__)

DEPTH = EpochSettings().in_flight  # maximum number of epochs with a running checkpoint
KEEP = 2  # committed epochs that stay in memory before the train moves to a newer version


@dataclass(frozen=True, slots=True)
class _BaseVersion:
    """A version that epochs run on, and the pin that keeps its SSTs. Without a pin, the open barrier on it does."""

    version: HummockVersion
    pin: Pin | None


@dataclass(frozen=True, slots=True)
class _ToCommit:
    """The input of a checkpoint: an epoch whose levels have run."""

    barrier: Barrier
    drafted: bool  # its barrier is not in force yet
    unflushed: SealedTables | None
    uploaded: tuple[SstInfo, ...]
    seconds: dict[str, float]  # of its parts until now
    rows: Mapping[str, RowCounts] | None = None  # by relation
    undeclared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # as in summaries
    units: tuple[UnitWork, ...] = ()
    measured: MeasurementSum = field(default_factory=MeasurementSum)
    taken: tuple[SealedBatch, ...] = ()  # taken files, sealed by the driver
    sealed: SealedManifest | None = None  # set if an earlier run sealed the epoch, and only its commit is left


@dataclass(frozen=True, slots=True)
class _Committed:
    """The result of a checkpoint."""

    summary: EpochSummary
    base: _BaseVersion | None  # a version that contains the epoch, if the train should move to it


@dataclass(slots=True)
class _InFlight:
    """An epoch whose levels have run, until the train's base version contains it."""

    barrier: Barrier
    unflushed: SealedTables | None  # None: nothing was sealed, or everything is uploaded
    uploaded: tuple[SstInfo, ...]  # SSTs that units uploaded before the checkpoint
    taken: tuple[SealedBatch, ...]  # taken files, sealed by the driver
    checkpoint: "Future[_Committed]"
    collected: bool = False

    def uncollected_base(self) -> _BaseVersion | None:
        """Return a pinned base version to which the train never moved because of an error.

        Requires: the checkpoint has ended.
        """
        return None if self.collected or self.checkpoint.exception() is not None else self.checkpoint.result().base

    def release(self) -> None:
        """Delete the sealed MemTables."""
        if self.unflushed is not None:
            self.unflushed.release()


class Train:
    """A train of epochs; see the module. Use it as a context manager.

    Its exit waits for the commits of all epochs that have run, also after an error in a later epoch. Not thread-safe.
    `run`, `next_barrier` and `drain_epochs` raise the errors of the current epoch or of an earlier one.
    """

    def __init__(
        self,
        runner: LevelRunner,
        meta: MetaStore,
        depth: int = DEPTH,
        keep: int = KEEP,
        progress: Progress = no_progress,
    ) -> None:
        """
        Args:
            runner: runs the levels.
            depth: maximum number of epochs in flight, at least 1.
            keep: committed epochs that stay in memory before the train moves, at least 0.
            progress: receives one line at the start or end of each part, also from the committing thread.
        """
        self.runner, self.meta, self.depth, self.keep, self.progress = runner, meta, depth, keep, progress
        self.done: list[EpochSummary] = []
        self._committer_meta = meta.for_another_thread()  # for the committing thread only
        self._committing = ThreadPoolExecutor(1, "checkpoint")
        self._broken = False  # a checkpoint failed: later ones have no base
        self._base_version: _BaseVersion | None = None  # None before the first epoch
        self._taken_in: PlannedBarrier | None = None  # from the last `next_barrier`
        self._in_flight: deque[_InFlight] = deque()
        self._since_move = 0
        self._counted = requests_so_far(
            meta.objects
        )  # requests of the driver that a manifest contains, or from before this train

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        try:
            if error is None:
                self.drain_epochs()
        finally:
            self._committing.shutdown()
            bases = [self._base_version, *(one.uncollected_base() for one in self._in_flight)]
            while self._in_flight:
                self._in_flight.popleft().release()
            for pin in (base.pin for base in bases if base is not None):
                if pin is not None:
                    self.meta.unpin(pin)

    def next_barrier(
        self,
        request: InputRequest = ALL_INPUT,
        settings: EpochSettings = UNBOUNDED,
    ) -> Barrier | None:
        """Return the barrier of the next epoch; None without input.

        The first barrier is in force, or was left open by another run. The others are drafts on top of the epochs
        before them. A change of the number of units waits until these are committed. Arguments and errors as in
        tussock.jobs.barriers.barrier.take_in.
        """
        self._collect_results()
        if self._base_version is None:
            self._taken_in = take_in(self.meta, request, settings)
        else:
            base, before, units = self._base_version, None, settings.units
            if units is not None and units != base.version.mapping.unit_count:
                base, before = self._rescale_base(self._pin_base(base), units), base.version.mapping
            try:
                self._taken_in = draft_barrier(self.meta, self._base_of_next(base), request, settings, before)
            except MissingSstError:  # the first epoch is committed, and vacuum ran before this draft
                if base.pin is not None:
                    raise
                self._taken_in = draft_barrier(
                    self.meta, self._base_of_next(self._pin_base(base)), request, settings, before
                )
        return None if self._taken_in is None else self._taken_in.barrier

    @property
    def resumes(self) -> bool:
        """Whether another run left the barrier of the last `next_barrier` open."""
        return self._taken_in is not None and self._taken_in.replayed is None

    def run(self, barrier: Barrier) -> None:
        """Run an epoch's levels and start its checkpoint. Waits while `depth` epochs are in flight.

        If the epoch is already sealed, only its commit runs.

        Raises: InputError branches and SourceAwayError if an input blocks the epoch. Earlier epochs are committed then,
            and its barrier is in force, so that it can be superseded or run again. LostRaceError if another driver was
            first: this epoch and all epochs in flight are discarded.
        """
        self._collect_results()
        while self.count_pending() >= self.depth:
            self._wait_for_one()
        drafted = self._base_version is not None
        base_version = self._base_version_for(barrier)
        if not drafted and (sealed := self.meta.read_manifest(barrier.epoch)) is not None:
            self._queue_checkpoint(_ToCommit(barrier, drafted, None, sealed.ssts, {}, sealed=sealed))
            return
        seconds: dict[str, float] = {}
        if barrier.mutation.undo is not None:
            with PartTimer(seconds, "run"), working_on(epoch=barrier.epoch), self._lost_if_overtaken(barrier):
                try:
                    undone = write_undone_rows(self.meta, base_version.version, barrier)
                except EpochExpiredError as err:  # a vacuum looked for open barriers just before this one was written
                    remedy = (
                        "Give the undo up with `tussock barrier abandon --take-log`, and run `tussock epoch`. Then "
                        "undo to a newer epoch."
                    )
                    raise CannotUndoError(barrier.mutation.undo.to, "it expired meanwhile", remedy) from err
            wait_until_durable()
            self._queue_checkpoint(_ToCommit(barrier, drafted, None, undone.ssts, seconds, undone.rows))
            return
        with PartTimer(seconds, "plan"), self._lost_if_overtaken(barrier):
            plan = self._plan_levels(barrier, base_version)
            unflushed = [one.unflushed for one in self._in_flight_after(base_version) if one.unflushed is not None]
        levels = plan.schedule.levels
        self.progress(
            f"epoch {barrier.epoch}: running {sum(len(level) for level in levels)} fragments in {len(levels)} levels"
        )
        with PartTimer(seconds, "run"), working_on(epoch=barrier.epoch), self._lost_if_overtaken(barrier):
            ran = self._run_levels(plan, barrier, unflushed, drafted)
        log.info("epoch %d ran: %s, %s", barrier.epoch, ran, seconds_text(seconds))
        undeclared = undeclared_columns(ran.reports, plan.schedule)
        for source, columns in undeclared.items():
            log.warning("new files of %s contain columns that it does not declare: %s", source, ", ".join(columns))
        rows = row_counts(ran.reports, plan.schedule, plan.counts)
        counted = plan.unit_count if ran.measured.undivided else 1
        units = unit_work(ran.reports, plan.schedule, plan.catalog, ran.measured.sum[0], counted)
        wait_until_durable()  # the barrier is durable before its epoch is sealed
        self._queue_checkpoint(
            _ToCommit(
                barrier,
                drafted,
                unflushed=ran.unflushed,
                uploaded=(*ran.uploaded, *plan.shared),
                seconds=seconds,
                rows=rows,
                undeclared=undeclared,
                units=units,
                measured=ran.measured,
                taken=ran.taken,
            )
        )

    def _plan_levels(self, barrier: Barrier, base_version: _BaseVersion) -> EpochPlan:
        base = self._base_of_next(base_version)
        if base.version.epoch != barrier.prev_epoch:
            raise LostRaceError(
                f"the drafted barrier {barrier.epoch}", f"epoch {base.version.epoch} was committed in its place"
            )
        if barrier.follows:
            return plan_followed(self.meta, base, barrier)
        taken_in = self._taken_in if self._taken_in is not None and self._taken_in.barrier == barrier else None
        return plan_epoch(self.meta, base, barrier, None if taken_in is None else taken_in.replayed)

    def _run_levels(
        self, plan: EpochPlan, barrier: Barrier, unflushed: Sequence[SealedTables], drafted: bool
    ) -> LevelResults:
        """Run the levels. If an input blocks them, commit the earlier epochs and put the barrier in force."""
        try:
            return run_levels(self.runner, self.meta, plan, unflushed, self.progress)
        except (InputError, SourceAwayError) as err:
            named = with_names(err, self.meta, plan) if isinstance(err, InputError) else err
            self.drain_epochs()
            if drafted:
                self.meta.put_in_force(barrier)
            raise named from None

    @contextmanager
    def _lost_if_overtaken(self, barrier: Barrier) -> Iterator[None]:
        """Raise LostRaceError instead of MissingSstError if another driver was faster.

        If another driver commits an epoch, the base of this run may be compacted and removed. Nothing is damaged then.
        """
        try:
            yield
        except MissingSstError as err:
            own = {
                barrier.prev_epoch,
                *(epoch for one in self._in_flight for epoch in (one.barrier.prev_epoch, one.barrier.epoch)),
            }
            if (version := self.meta.read_latest(proven=True)).epoch in own:
                raise
            reason = f"epoch {version.epoch} is committed, not {barrier.prev_epoch}, and {err.name!r} was removed since"
            raise LostRaceError(f"epoch {barrier.epoch}", reason) from err

    def drain_epochs(self) -> None:
        """Wait until no epoch is in flight. Raises the error of a failed checkpoint."""
        while self.count_pending():
            self._wait_for_one()
        self._collect_results()  # the last checkpoint may have ended before the wait

    # --- checkpoints, in the committing thread ------------------------------------------------------------------------

    def _queue_checkpoint(self, epoch: _ToCommit) -> None:
        """Queue the epoch's checkpoint after the earlier ones."""
        move = self._since_move == self.keep
        self._since_move = 0 if move else self._since_move + 1
        checkpoint = self._committing.submit(self.runner.for_a_thread(self._run_checkpoint), epoch, move)
        self._in_flight.append(_InFlight(epoch.barrier, epoch.unflushed, epoch.uploaded, epoch.taken, checkpoint))

    def _run_checkpoint(self, epoch: _ToCommit, move: bool) -> _Committed:
        """Flush, seal and commit. If `move`, also pin the version with the epoch as the base of later epochs."""
        # Each object is durable before the next one is visible, and all are when the epoch counts as committed.
        with working_on(epoch=epoch.barrier.epoch), synced_in_order():
            committed = self._commit_checkpoint(epoch, move)
        self._broken = False
        return committed

    def _commit_checkpoint(self, epoch: _ToCommit, move: bool) -> _Committed:
        barrier = epoch.barrier
        if self._broken:
            raise LostRaceError(
                f"epoch {barrier.epoch}", f"the epoch before it, {barrier.prev_epoch}, was not committed"
            )
        self._broken = True  # until the commit has succeeded
        meta = self._committer_meta
        sealed = epoch.sealed or self._seal_epoch(epoch)
        with PartTimer(epoch.seconds, "commit"):
            committed, mine = meta.commit_epoch(sealed)
            wait_until_durable()  # nobody is told of the commit before it is durable
        if not mine:
            raise LostRaceError(
                f"epoch {barrier.epoch}", "another run of the same barrier committed it first, with the same rows"
            )
        for batch in epoch.taken:
            recall_written(meta.objects.uri, batch, barrier.prev_epoch, barrier.epoch)
        self.progress(f"epoch {barrier.epoch}: committed version {committed.id}")
        log.info(
            "epoch %d committed as version %d: %d SSTs, %s",
            barrier.epoch,
            committed.id,
            len(sealed.ssts),
            seconds_text(epoch.seconds),
        )
        base = None
        if move:
            with suppress(EpochExpiredError):  # other drivers were so fast that it is no longer kept
                base = _pinned_at(meta, barrier.epoch)
        return _Committed(
            summary_of(
                sealed, committed, epoch.seconds, epoch.undeclared, restated_items(epoch.barrier, committed.catalog)
            ),
            base,
        )

    def _seal_epoch(self, epoch: _ToCommit) -> SealedManifest:
        """Flush the epoch and seal its manifest."""
        barrier, meta = epoch.barrier, self._committer_meta
        with PartTimer(epoch.seconds, "flush"):
            flushed = [] if epoch.unflushed is None else epoch.unflushed.flush()
        with PartTimer(epoch.seconds, "commit"):
            if epoch.drafted:
                meta.put_in_force(barrier)
            ssts, seconds = in_order([*epoch.uploaded, *flushed]), step_seconds(epoch.seconds)
            requests = self._requests_since() + epoch.measured.sum[1]
            ran, hosts = epoch.measured.ran, epoch.measured.hosts
            sealed = meta.seal_epoch(
                manifest_of(barrier, meta.writer, ssts, epoch.rows, seconds, epoch.units, requests, ran, hosts)
            )
        self.progress(f"epoch {barrier.epoch}: sealed")
        return sealed

    def _requests_since(self) -> Requests:
        """Return the driver's requests since the last call, or since the start of the train.

        If several epochs are in flight, each request is counted for one of them.
        """
        now = requests_so_far(self.meta.objects)
        before, self._counted = self._counted, now
        return now - before

    # --- the base version ---------------------------------------------------------------------------------------------

    def _base_version_for(self, barrier: Barrier) -> _BaseVersion:
        """Return a version to run `barrier` on, whose SSTs stay during the run."""
        if self._base_version is None:  # the barrier is in force: vacuum keeps the SSTs of its base
            version = self.meta.read_latest()
            if version.epoch != barrier.prev_epoch:
                raise LostRaceError(
                    f"epoch {barrier.epoch}", f"epoch {version.epoch} is committed after {barrier.prev_epoch} already"
                )
            self._base_version = _BaseVersion(version, None)
            return self._base_version
        return self._pin_base(self._base_version)

    def _pin_base(self, base: _BaseVersion) -> _BaseVersion:
        """Return the base version with a pin. After its commit, the first barrier no longer keeps the SSTs."""
        if base.pin is None:
            self._move_to(self._pinned_newest(base))
            assert self._base_version is not None
            return self._base_version
        return base

    def _pinned_newest(self, base: _BaseVersion) -> _BaseVersion:
        """Pin this train's newest committed epoch, or its base before the first one.

        Raises LostRaceError if retention has released it, which happens only after a commit of another driver.
        """
        epoch = self.done[-1].epoch if self.done else base.version.epoch
        try:
            return _pinned_at(self.meta, epoch)
        except EpochExpiredError as err:
            self.drain_epochs()
            if self.done and self.done[-1].epoch > epoch:  # it was committed since
                return self._pinned_newest(base)
            reason = f"another driver has committed epoch {err.floor} or a later one, and {epoch} is no longer kept"
            raise LostRaceError(f"the epoch after {epoch}", reason) from err

    def _rescale_base(self, base: _BaseVersion, units: int) -> _BaseVersion:
        """Return the base version after a change of the mapping. Waits for all epochs in flight."""
        self.drain_epochs()
        self.meta.rescale(units)
        self._move_to(self._pinned_newest(base))
        assert self._base_version is not None
        return self._base_version

    def _in_flight_after(self, base: _BaseVersion) -> list[_InFlight]:
        """Return the epochs that the base version does not contain, oldest first."""
        return [one for one in self._in_flight if one.barrier.epoch > base.version.epoch]

    def _base_of_next(self, base: _BaseVersion) -> Base:
        """Return the base of the next epoch: the base version, as if the later epochs were committed."""
        version = base.version
        runs: dict[int, list[tuple[int, Load]]] = {}
        for one in self._in_flight_after(base):
            manifest = manifest_of(one.barrier, self.meta.writer, one.uploaded)
            change = change_of_manifest(manifest, version.catalog)
            version = apply_delta(version, VersionDelta(version.id + 1, self.meta.writer, change))
            for batch in one.taken:
                runs_of_table = runs.setdefault(batch.table_id, [])
                runs_of_table.append((one.barrier.epoch, lambda batch=batch: batch))  # type: ignore[misc]
        return Base(version, SharedBuffer(runs), committed=version is base.version)

    def _move_to(self, base: _BaseVersion) -> None:
        """Base epochs on a newer version, and release the epochs that it contains."""
        assert self._base_version is not None
        if any(one.barrier.mapping.id != base.version.mapping.id for one in self._in_flight):
            self.drain_epochs()  # their MemTables are partitioned by another mapping
            if base.pin is not None:
                self.meta.unpin(base.pin)
            base = self._pinned_newest(base)
        if self._base_version.pin is not None:
            self._committing.submit(self._committer_meta.unpin, self._base_version.pin)
        self._base_version = base
        while (
            self._in_flight and self._in_flight[0].collected and self._in_flight[0].barrier.epoch <= base.version.epoch
        ):
            self._in_flight.popleft().release()

    # --- waiting ------------------------------------------------------------------------------------------------------

    def count_pending(self) -> int:
        """Return the number of epochs with a running checkpoint."""
        return sum(not one.checkpoint.done() for one in self._in_flight)

    def _wait_for_one(self) -> None:
        for one in self._in_flight:
            if not one.checkpoint.done():  # the one that `count_pending` counted may have ended since
                one.checkpoint.exception()
                break
        self._collect_results()

    def _collect_results(self) -> None:
        """Collect the results of checkpoints in the order of epochs. Raises the error of a failed one."""
        for one in list(self._in_flight):
            if one.collected:
                continue
            if not one.checkpoint.done():
                break
            committed = one.checkpoint.result()
            one.collected = True
            self.done.append(committed.summary)
            if committed.base is not None:
                self._move_to(committed.base)


def _pinned_at(meta: MetaStore, epoch: int) -> _BaseVersion:
    pin = meta.pin_epoch(
        epoch, onward=True
    )  # compaction may replace SSTs of epochs in flight right after their commit, and the train still reads them
    return _BaseVersion(meta.pinned_version(pin), pin)
