"""Epochs: one barrier to its commit, or all that waits as a train of them."""

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from tussock.jobs.driver.barrier import ALL, UNBOUNDED, Wish, moment_of
from tussock.jobs.driver.row_names import ViewRowError
from tussock.jobs.driver.runner import LevelRunner
from tussock.jobs.driver.summary import EpochSummary, barrier_text
from tussock.jobs.driver.supersede import finish_build, give_up_build, hold, pause
from tussock.jobs.driver.train import Train
from tussock.jobs.flow.failure import SourceAwayError, SourceFileError, ViewFailedError
from tussock.jobs.plan.builds import is_being_built
from tussock.jobs.settings.pipeline import EpochSettings, OnError
from tussock.jobs.sources.kafka_cluster import listed_once
from tussock.jobs.sources.listing import Interval
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.progress import Progress, no_progress


def run_epoch(runner: LevelRunner, meta: MetaStore, barrier: Barrier, progress: Progress = no_progress) -> EpochSummary:
    """Run one barrier's epoch to its commit: a train of one.

    Args:
        barrier: in force for the latest version (MetaStore.open_barrier or tussock.jobs.driver.barrier.inject).
        progress: called with one line as each part begins or ends.

    Raises: InputError branches when an input stops the epoch (nothing is committed, the barrier stays in force), a file that can't be read
        among them, since no other barrier is put in this one's place;
        LostRaceError when another driver committed first.
    """
    with Train(runner, meta, 1, progress=progress) as train:
        train.run(barrier)
    (summary,) = train.done
    return summary


def next_epoch(
    runner: LevelRunner,
    meta: MetaStore,
    wish: Wish = ALL,
    settings: EpochSettings = UNBOUNDED,
    progress: Progress = no_progress,
) -> EpochSummary | None:
    """Finish the open barrier, or take in what waits, as one epoch; None where nothing does. Arguments and errors: as of `advance`."""
    met, resting = set[tuple[str, str]](), set[str]()
    while True:
        with Train(runner, meta, 1, progress=progress) as train:
            if (barrier := train.next_barrier(wish, settings, frozenset(resting))) is None:
                return None
            ran = _ran(train, barrier, met, resting, settings.on_error)
        if ran:
            (summary,) = train.done
            return summary


def advance(
    runner: LevelRunner,
    meta: MetaStore,
    wish: Wish = ALL,
    settings: EpochSettings = UNBOUNDED,
    progress: Progress = no_progress,
) -> list[EpochSummary]:
    """Finish the open barrier, whichever driver injected it, then take in what waits, as a train of epochs, until nothing does.

    Args:
        wish: with an interval, a run has done its work when all files of the interval are committed. A moment is that of all these
            epochs; None: the interval's end, without one the clock as this begins.
        settings: `max_bytes` and `units` as of `take_in`; `in_flight` epochs may be under way at once, and with 1 each is committed
            before the next begins. With `on_error` "pause", a view that cannot take an epoch's rows is paused, with the views that read
            it. A new view has no rows to stay at, and stops the epoch in any case.

    A source in trouble is held, and everything else goes on; whether this run got all that it wanted, says
    `tussock.jobs.driver.source_holds.require_not_held`. Which views it paused, the summaries say.

    Raises: as Train.run and Train.next_barrier do; epochs before the failing one are committed.
    """
    moment = moment_of(
        meta, wish.interval, wish.moment
    )  # one for all: epochs that only follow the clock would have no end
    wish = replace(wish, moment=moment)
    done: list[EpochSummary] = []
    met, resting = set[tuple[str, str]](), set[str]()
    superseded = True
    while (
        superseded
    ):  # by a barrier without a file that can't be read, or that pauses a view: another train begins with it
        superseded = False
        with listed_once(), Train(runner, meta, settings.in_flight, progress=progress) as train:
            while not superseded:
                if (barrier := train.next_barrier(wish, settings, frozenset(resting))) is None:
                    break
                superseded = not _ran(train, barrier, met, resting, settings.on_error)
        done += train.done
    return done


def _ran(train: Train, barrier: Barrier, met: set[tuple[str, str]], resting: set[str], on_error: OnError) -> bool:
    """Run an epoch; False: another barrier is in force, which holds a source whose new file can't be read, or pauses a view that can't take
    the rows.

    Args:
        met: items that held up an epoch of this run before, by source and name.
        resting: gets the source of an item that is met again (somebody keeps on writing it): it rests until the next run.
    """
    train.progress(barrier_text(barrier, train.meta.latest().catalog))
    try:
        train.run(barrier)
    except (SourceFileError, SourceAwayError) as err:
        source = hold(train.meta, barrier, err)
        if (source, err.path) in met:
            resting.add(source)
        met.add((source, err.path))
        return False
    except ViewRowError as err:
        if _is_of_build(train.meta, barrier, err.view, err.what, build=err.build):
            return False
        if on_error is OnError.STOP or not err.pausable:
            raise
        pause(train.meta, barrier, err.view, err.what, err)
        return False
    except ViewFailedError as err:
        if _is_of_build(train.meta, barrier, err.relation, err.cause, build=err.build):
            return False
        if on_error is OnError.STOP:
            raise
        pause(train.meta, barrier, err.relation, err.cause, err)
        return False
    return True


def _is_of_build(meta: MetaStore, barrier: Barrier, view: str, reason: str, *, build: bool) -> bool:
    """Whether a view that cannot take an epoch's rows is one that is built over several epochs; then the barrier is superseded by one that
    reads all that is left. Raises BuildFailedError where it was that one: the barrier is then superseded by one without the build."""
    if build:
        finish_build(meta, barrier, view)
        return True
    if not is_being_built(meta.latest().catalog, view) or is_being_built(barrier.catalog or Catalog(), view):
        return False
    give_up_build(meta, barrier, view)
    raise BuildFailedError(view, reason)


class BuildFailedError(InputError):
    """A view that was built over several epochs cannot take a row of what it reads. The build was given up; all else is as it was."""

    def __init__(self, view: str, reason: str) -> None:
        super().__init__(view, reason)
        self.view, self.reason = view, reason

    def __str__(self) -> str:
        return (
            f"view {self.view!r} could not be built: {self.reason}. The build was given up: what had the name before goes on as it was, "
            "with the views over it, and the next epoch goes on without the build. Correct the row (UPDATE or DELETE it in its table, "
            "`tussock restate` its file) or the SELECT, then `tussock apply` the view again."
        )


def interval_of(start: str, end: str, time_zone: str) -> Interval:
    """An interval from two ISO 8601 moments, shown to paths in the pipeline's time zone. Raises BadIntervalError."""
    zone = ZoneInfo(time_zone)
    try:
        first, last = (datetime.fromisoformat(text) for text in (start, end))
    except ValueError as err:
        raise BadIntervalError(start, end, str(err)) from err
    first, last = (m.replace(tzinfo=zone) if m.tzinfo is None else m.astimezone(zone) for m in (first, last))
    if first >= last:
        raise BadIntervalError(start, end, "the end is not after the start")
    return Interval(first, last)


class BadIntervalError(InputError):
    """An interval that is none."""

    def __init__(self, start: str, end: str, reason: str) -> None:
        super().__init__(start, end, reason)
        self.start, self.end, self.reason = start, end, reason

    def __str__(self) -> str:
        return f"interval {self.start} to {self.end}: {self.reason}; expected two ISO 8601 moments, e.g. 2013-01-01T00:00:00Z"
