"""Epochs: run one barrier to its commit, or run all waiting input as a train of epochs."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from tussock.jobs.barriers.barrier import UNBOUNDED
from tussock.jobs.barriers.follow import lost_input_error, next_of_branch, take_correction
from tussock.jobs.barriers.moment import ALL_INPUT, InputRequest
from tussock.jobs.catalog.builds import is_being_built
from tussock.jobs.chunks.failure import SourceAwayError, SourceFileError, ViewFailedError
from tussock.jobs.driver.runner import LevelRunner
from tussock.jobs.driver.summary import EpochSummary, barrier_text
from tussock.jobs.driver.train import Train
from tussock.jobs.settings.tables import EpochSettings, OnError
from tussock.jobs.sources.errors import OnlySparkReadsError
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.run_ends import ends_fixed
from tussock.jobs.trouble.row_names import ViewRowError
from tussock.jobs.trouble.supersede import (
    finish_build,
    give_up_build,
    hold_source,
    leave_to_spark,
    pause_failing_view,
    take_corrected,
)
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.syncs import synced_in_order
from tussock.statestore.progress import Progress, no_progress
from tussock.statestore.zones import tzinfo_of


def run_epoch(runner: LevelRunner, meta: MetaStore, barrier: Barrier, progress: Progress = no_progress) -> EpochSummary:
    """Run one barrier's epoch to its commit, as a train of one.

    Args:
        barrier: in force for the latest version (MetaStore.open_barrier or `inject_barrier`).
        progress: receives one line at the start or end of each part.

    Raises: InputError branches if an input blocks the epoch, including unreadable files. Nothing is committed then, and
        the barrier stays in force. LostRaceError if another driver committed first.
    """
    with Train(runner, meta, 1, progress=progress) as train:
        train.run(barrier)
    (summary,) = train.done
    return summary


def next_epoch(
    runner: LevelRunner,
    meta: MetaStore,
    request: InputRequest = ALL_INPUT,
    settings: EpochSettings = UNBOUNDED,
    progress: Progress = no_progress,
) -> EpochSummary | None:
    """Finish the open barrier, or take in waiting input, as one epoch; None without input.

    Arguments and errors: as `advance_store`.
    """
    return _run_next(runner, meta, request, settings, progress)[0]


def epochs_of_call(
    runner: LevelRunner,
    meta: MetaStore,
    request: InputRequest = ALL_INPUT,
    settings: EpochSettings = UNBOUNDED,
    progress: Progress = no_progress,
) -> Iterator[EpochSummary]:
    """Finish the open barrier of another run, if there is one, and then take in waiting input as one epoch.

    So all statements that were in the log at the call are committed at the end. An open barrier alone may end the log
    before the caller's own statements. Arguments and errors: as `advance_store`.
    """
    if meta.follows:
        yield from epochs_of_branch(runner, meta, progress)
        return
    summary, left_open = _run_next(runner, meta, request, settings, progress)
    if summary is not None:
        yield summary
    if left_open and (summary := next_epoch(runner, meta, request, settings, progress)) is not None:
        yield summary


def _run_next(
    runner: LevelRunner, meta: MetaStore, request: InputRequest, settings: EpochSettings, progress: Progress
) -> tuple[EpochSummary | None, bool]:
    """As `next_epoch`, and whether another run had left the barrier open."""
    memory = _RunMemory()
    left_open: bool | None = None
    while True:
        # The barrier's folder is synced while the levels run.
        with synced_in_order(), Train(runner, meta, 1, progress=progress) as train:
            if (barrier := train.next_barrier(memory.without_resting(request), settings)) is None:
                return None, left_open is True  # another driver has committed it
            if left_open is None:  # later barriers of this loop supersede the first one
                left_open = train.resumes
            ran = _run_barrier(train, barrier, memory, settings.on_error)
        if ran:
            (summary,) = train.done
            return summary, left_open


def epochs_of_branch(runner: LevelRunner, meta: MetaStore, progress: Progress = no_progress) -> Iterator[EpochSummary]:
    """Run the waiting statements of a following branch, then take the epochs of its parent, one by one.

    Raises: BranchConflictError; InputError branches if a row of the epoch cannot be computed. Nothing of that epoch is
        committed then. The next call takes statements that were given since then first.
    """
    while (barrier := next_of_branch(meta)) is not None:
        progress(barrier_text(barrier, meta.read_latest().catalog))
        try:
            summary = run_epoch(runner, meta, barrier, progress)
        except OnlySparkReadsError as err:
            leave_to_spark(meta, barrier, err)
        except InputError as err:
            if take_correction(meta, barrier):
                continue
            if barrier.follows and isinstance(err, SourceFileError):
                raise lost_input_error(meta, barrier, err) from err
            raise
        else:
            yield summary


def advance_store(
    runner: LevelRunner,
    meta: MetaStore,
    request: InputRequest = ALL_INPUT,
    settings: EpochSettings = UNBOUNDED,
    progress: Progress = no_progress,
) -> list[EpochSummary]:
    """Finish the open barrier of any driver, then take in input as a train of epochs until there is none.

    Args:
        request: a run with an interval is complete when all files of the interval are committed. All epochs have the
            same clock.
        settings: `max_bytes` and `units` as in `take_in`. Up to `in_flight` epochs run concurrently; with 1, each is
            committed before the next starts. With `on_error` "pause", a view whose rows raise is paused, with the
            views that read it. A new view has no rows to keep, and always stops the epoch.

    A failing source is held, and everything else continues. `source_holds.require_not_held` checks
    whether this run got all requested files. The summaries contain the paused views.

    Raises: as Train.run and Train.next_barrier; epochs before the failing one are committed.
    """
    if meta.follows:
        return list(epochs_of_branch(runner, meta, progress))
    if (
        request.clock is None
    ):  # the same for all: otherwise each epoch would follow the clock, and the loop would not end
        request = replace(request, clock=meta.moment_now())
    done: list[EpochSummary] = []
    memory, superseded = _RunMemory(), True
    while superseded:  # a superseding barrier, without an unreadable file or with a paused view, starts another train
        superseded = False
        with synced_in_order(), ends_fixed(), Train(runner, meta, settings.in_flight, progress=progress) as train:
            while not superseded:
                if (barrier := train.next_barrier(memory.without_resting(request), settings)) is None:
                    break
                superseded = not _run_barrier(train, barrier, memory, settings.on_error)
        done += train.done
    return done


@dataclass(slots=True)
class _RunMemory:
    """The items of sources that made trouble in this run, by source and name.

    Args:
        failed: an epoch failed on them.
        corrected: they changed after a barrier had pinned them, and were pinned again.
        resting: sources of items that failed twice. They may be written continuously, so they rest until the next run.
    """

    failed: set[tuple[str, str]] = field(default_factory=set)
    corrected: set[tuple[str, str]] = field(default_factory=set)
    resting: set[str] = field(default_factory=set)

    def without_resting(self, request: InputRequest) -> InputRequest:
        """Return a request without another attempt of the sources that rest."""
        return replace(request, resting=frozenset(self.resting))


def _run_barrier(train: Train, barrier: Barrier, memory: _RunMemory, on_error: OnError) -> bool:
    """Run an epoch. False if it was superseded by a barrier that holds a source, takes a corrected file, leaves a file
    to Spark, or pauses or changes a view.
    """
    train.progress(barrier_text(barrier, train.meta.read_latest().catalog))
    try:
        train.run(barrier)
    except (SourceFileError, SourceAwayError) as err:
        source = hold_source(train.meta, barrier, err)
        if (source, err.path) in memory.failed:
            memory.resting.add(source)
        memory.failed.add((source, err.path))
        return False
    except OnlySparkReadsError as err:
        leave_to_spark(train.meta, barrier, err)
        return False
    except InputError as err:
        if take_corrected(train.meta, barrier, memory.corrected):
            return False
        return _without_view(train, barrier, err, on_error)
    return True


def _without_view(train: Train, barrier: Barrier, error: InputError, on_error: OnError) -> bool:
    """Supersede the barrier of an epoch that failed on a view's rows, so that the run continues without the view.

    Returns False, as `_run_barrier`. Raises `error` if the run must stop.
    """
    match error:
        case ViewRowError():
            view, reason, keeps_rows = error.view, error.finding, error.ways.pausable
        case ViewFailedError():
            view, reason, keeps_rows = error.relation, error.cause, True
        case _:
            raise error
    if _is_of_build(train.meta, barrier, view, reason, build=error.build):
        return False
    if on_error is OnError.STOP or not keeps_rows:
        raise error
    pause_failing_view(train.meta, barrier, view, reason, error)
    return False


def _is_of_build(meta: MetaStore, barrier: Barrier, view: str, reason: str, *, build: bool) -> bool:
    """Return whether a failing view is built over several epochs, and supersede its barrier.

    The new barrier reads all input of the build. If this barrier already did, the new one has no build, and this raises
    BuildFailedError.
    """
    if build:
        finish_build(meta, barrier, view)
        return True
    if not is_being_built(meta.read_latest().catalog, view) or is_being_built(barrier.catalog or Catalog(), view):
        return False
    give_up_build(meta, barrier, view)
    raise BuildFailedError(view, reason)


class BuildFailedError(InputError):
    """A row raised in a view that is built over several epochs. The build was given up; all else is unchanged."""

    view: str
    reason: str

    def __str__(self) -> str:
        return (
            f"view {self.view!r} could not be built: {self.reason}. The build was given up. An existing view of this "
            "name stays in use, with the views that read it, and the next epoch runs without the build. Correct the "
            "row (UPDATE or DELETE it in its table, or correct its file and restate it) or the SELECT. Then give the "
            "view again: `tussock apply PIPELINE`."
        )


def interval_of(start: str, end: str, time_zone: str) -> Interval:
    """Parse an interval from two ISO 8601 times, in the pipeline's time zone, which formats paths.

    Raises BadIntervalError.
    """
    try:
        first, last = (_time_of(text, time_zone) for text in (start, end))
    except ValueError as err:
        raise BadIntervalError(start, end, str(err)) from err
    if first >= last:
        raise BadIntervalError(start, end, "the end is not after the start")
    return Interval(first, last)


def time_of(text: str, time_zone: str) -> datetime:
    """Parse an ISO 8601 time, which is in the time zone if it has no offset. Raises BadTimeError."""
    try:
        return _time_of(text, time_zone)
    except ValueError as err:
        raise BadTimeError(text, str(err)) from err


def _time_of(text: str, time_zone: str) -> datetime:
    zone, time = tzinfo_of(time_zone), datetime.fromisoformat(text)
    return time.replace(tzinfo=zone) if time.tzinfo is None else time.astimezone(zone)


class BadTimeError(InputError):
    """A text is no valid time."""

    text: str
    reason: str

    def __str__(self) -> str:
        return f"time {self.text}: {self.reason}; expected an ISO 8601 time, such as 2013-01-01T00:00:00Z, or now"


class BadIntervalError(InputError):
    """The two times are not a valid interval."""

    start: str
    end: str
    reason: str

    def __str__(self) -> str:
        return (
            f"interval {self.start} to {self.end}: {self.reason}; expected two ISO 8601 times, such as "
            "2013-01-01T00:00:00Z"
        )
