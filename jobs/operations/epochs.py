"""Epochs of a pipeline: run them, pause views, commit, and check that a run took in all requested input."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime

from tussock.jobs.barriers import barrier as barriers
from tussock.jobs.barriers.columns import wider_columns
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.follow import BranchConflictError, next_of_branch
from tussock.jobs.barriers.moment import Clock, InputRequest, Pace, micros_of
from tussock.jobs.barriers.release import release_taken_input
from tussock.jobs.barriers.source_holds import HeldSourcesError, HoldKind, require_not_held
from tussock.jobs.catalog.definition import source_of
from tussock.jobs.catalog.store_zone import store_zone
from tussock.jobs.driver import epoch as driver
from tussock.jobs.driver.pauses import PausedViewsError, require_none_paused, require_none_paused_by
from tussock.jobs.driver.run_record import error_text, record_end, recorded_elsewhere, recorded_run
from tussock.jobs.driver.runner import LevelRunner, SparkWantedError
from tussock.jobs.driver.summary import EpochSummary
from tussock.jobs.operations.runners import Where, runner_of, spark_of
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.process import clock_ms
from tussock.jobs.settings.ticks import Ticks
from tussock.jobs.sources.jdbc import store_first_dumps, storing_dumps
from tussock.jobs.sources.listing import Interval
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.errors import InputError, MustStopError
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.progress import Progress
from tussock.statestore.zones import tzinfo_of

log = logging.getLogger(__name__)

__all__ = [
    "InputRequest",
    "LevelRunner",
    "RunResult",
    "Where",
    "commit_sealed",
    "ended_without_input",
    "go_around",
    "holding_run",
    "inject_barrier",
    "input_request_of",
    "interval_between",
    "interval_of",
    "pause_views",
    "recorded_in_job",
    "recorded_to_its_end",
    "require_all_taken_in",
    "require_arrived",
    "require_interval_not_held",
    "require_no_view_paused",
    "require_none_paused_by_run",
    "run_pipeline_epochs",
    "spark_must_ask",
]


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run.

    Args:
        epoch: the newest committed epoch, of this or another run.
        needs_spark: the next epoch should run on Spark, or a source can only be listed by Spark. Earlier epochs are
            committed.
        why_spark: the reason, if an epoch was planned.
    """

    summaries: tuple[EpochSummary, ...]
    epoch: int
    needs_spark: bool = False
    why_spark: str = ""


def recorded_in_job(store: PipelineStore, run: Mapping[str, str]) -> AbstractContextManager[None]:
    """Record the error of a block that starts a job, unless the job has recorded the run. Cost: none on success."""
    return recorded_elsewhere(store.meta, "epoch", run)


@contextmanager
def recorded_to_its_end(store: PipelineStore, what: str) -> Iterator[None]:
    """Record what a command leaves undone after its epochs: the error of its last steps, such as the quality check.

    The epochs in the block record their own errors. Cost: none if the block succeeds; else a GET and a PUT.
    """
    began = clock_ms()
    try:
        yield
    except MustStopError:
        raise
    except BaseException as err:
        record_end(store.meta, what, {}, began, [error_text(err)])
        raise


def interval_of(store: PipelineStore, start: str, end: str) -> Interval:
    """Parse an interval from two ISO 8601 times, in the pipeline's time zone, which formats source paths.

    Raises BadIntervalError.
    """
    return driver.interval_of(start, end, store_zone(store.meta))


def interval_between(store: PipelineStore, moments: tuple[datetime, datetime] | None) -> Interval | None:
    """Convert two times to an interval; None to None."""
    if moments is None:
        return None
    zone = tzinfo_of(store_zone(store.meta))
    return Interval(*(moment.astimezone(zone) for moment in moments))


def pace_of(store: PipelineStore) -> Pace:
    """Return how the pipeline's runs advance."""
    if (schedule := store.pipeline.schedule) is None:
        return Pace()
    first = Ticks(schedule.cron, store.pipeline.time_zone).first_tick(schedule.start)
    return Pace(micros_of(first), schedule.catchup)


def input_request_of(
    store: PipelineStore,
    interval: Interval | None,
    moment: str | None = None,
    run: Mapping[str, str] | None = None,
    *,
    is_scheduled: bool = False,
) -> InputRequest:
    """Return the input that a run of the pipeline requests.

    Args:
        moment: the requested value of now() in views, ISO 8601, in the pipeline's time zone if it has no offset; or
            `now` for the clock.
        is_scheduled: the scheduler chose the interval.

    Raises: BadTimeError.
    """
    asked = None if moment is None else _asked_moment(store, moment)
    return InputRequest(interval, asked, dict(run or {}), replace(pace_of(store), is_scheduled=is_scheduled))


def _asked_moment(store: PipelineStore, text: str) -> int | Clock:
    if text == "now":
        return Clock.NOW
    return micros_of(driver.time_of(text, store_zone(store.meta)))


def inject_barrier(store: PipelineStore, request: InputRequest) -> Barrier | None:
    """Put the run's barrier in force, or return the open one of an earlier run; None if there is no new input.

    An open barrier always comes first: `run_pipeline_epochs` finishes it, and then takes in this run's interval. In a
    following branch, it is the next epoch of the parent. Otherwise sources of databases store their dumps, also if a
    barrier is open, since the epochs after it take them.
    """
    with recorded_run(store.meta, "epoch", request.run, request.interval, only_errors=True):
        if store.meta.follows:
            return next_of_branch(store.meta)
        _widen_columns(store, request)
        with storing_dumps(lambda: spark_of(store.pipeline, "dump")):
            barrier = barriers.inject_barrier(store.meta, request, store.pipeline.epoch)
            if barrier is not None and barrier.writer != store.meta.writer:
                relations = store.meta.read_latest().catalog.live_relations()
                store_first_dumps(source for r in relations if (source := source_of(r)) is not None)
            return barrier


def _widen_columns(store: PipelineStore, request: InputRequest) -> None:
    """Log the wider types of waiting files. Only then a session is opened, which binds views by Spark."""
    with store.meta.glances():  # a run without news costs no further request
        if not wider_columns(store.meta, request.interval):
            return
    from tussock.jobs.session import Session, widen_columns

    with (
        ExitStack() as stack,
        Session(
            store.pipeline.store,
            lambda: stack.enter_context(spark_of(store.pipeline, "bind", brief=True)),
            create=False,
        ) as session,
    ):
        widen_columns(session, request.interval)


def ended_without_input(store: PipelineStore, request: InputRequest) -> None:
    """Record that a run has ended because no input waits. `run_pipeline_epochs` records its runs itself.

    Without a record, a pipeline without new input would look as if its runs had stopped, and an error of an earlier
    attempt would stay its last state.
    """
    with recorded_run(store.meta, "epoch", request.run, request.interval):
        pass


def run_pipeline_epochs(
    store: PipelineStore,
    request: InputRequest,
    where: Where,
    progress: Progress,
    *,
    runner: LevelRunner | None = None,
) -> RunResult:
    """Finish the open barrier, then take in all input that the run requests.

    If the pipeline decides where its epochs run and there is no input, Spark is not started.

    Args:
        runner: an open runner for `where`, which stays open; None: one for this call.

    Raises: as tussock.jobs.driver.epoch.advance_store.
    """
    with recorded_run(store.meta, "epoch", request.run, request.interval) as recording:
        try:
            done = _run_pipeline_epochs(store, request, where, progress, runner)
        except BranchConflictError:
            _publish_followed(store, progress)
            raise
        recording.ends = not done.needs_spark
    release_taken_input(store.meta)
    return done


def _publish_followed(store: PipelineStore, progress: Progress) -> None:
    """Publish the epochs that a branch has taken and that no later run can publish, as far as its suites pass."""
    from tussock.jobs.operations.publish import publish_newest  # imports the suites

    try:
        publish_newest(store, progress)
    except InputError as err:  # the caller raises the reason that ended the run
        progress(f"the epochs that the branch has taken are not published: {err}")


def _run_pipeline_epochs(
    store: PipelineStore, request: InputRequest, where: Where, progress: Progress, runner: LevelRunner | None
) -> RunResult:
    if where is Where.AS_SET:
        request = replace(request, clock=store.meta.moment_now())
        if inject_barrier(store, request) is None:
            return RunResult((), store.meta.read_latest().epoch)
    else:
        _widen_columns(store, request)
    try:
        with runner_of(store, where, "epoch", progress) if runner is None else nullcontext(runner) as chosen:
            done = driver.advance_store(chosen, store.meta, request, store.pipeline.epoch, progress)
    except SparkWantedError as err:
        return RunResult((), store.meta.read_latest().epoch, needs_spark=True, why_spark=err.why)
    return RunResult(
        tuple(done), store.meta.read_latest().epoch, where in (Where.HERE, Where.SMALL_HERE) and spark_must_ask(store)
    )


def spark_must_ask(store: PipelineStore) -> bool:
    """Return whether a source is held because only Spark can list it. Cost: reads the newest version."""
    return any(
        hold.kind == HoldKind.NEEDS_SPARK
        for relation in store.meta.read_latest().catalog.live_relations()
        for hold in relation.holds
    )


def require_interval_not_held(store: PipelineStore, interval: Interval | None) -> None:
    """Raises HeldSourcesError if a held source kept files from a run of this interval.

    Cost: reads the newest version.
    """
    require_not_held(store.meta.read_latest().catalog, interval)


def require_none_paused_by_run(store: PipelineStore, run: Mapping[str, str]) -> None:
    """Raises PausedViewsError if an epoch of this run paused a view that is still paused.

    Cost: two GETs per paused view.
    """
    require_none_paused_by(store.meta, run)


def require_no_view_paused(store: PipelineStore, done: Sequence[EpochSummary]) -> None:
    """Raises PausedViewsError if these epochs paused a view."""
    require_none_paused(store.meta, done)


def require_all_taken_in(store: PipelineStore, done: Sequence[EpochSummary], interval: Interval | None) -> None:
    """Raises PausedViewsError if these epochs paused a view, with held sources as a note; else HeldSourcesError."""
    try:
        require_no_view_paused(store, done)
    except PausedViewsError as err:
        try:
            require_interval_not_held(store, interval)
        except HeldSourcesError as held:
            err.add_note(str(held))
        raise
    require_interval_not_held(store, interval)


def require_arrived(store: PipelineStore, interval: Interval | None) -> None:
    """Raises MissingFilesError if the interval's deadline has passed and its files are not the expected ones.

    Rules with the severity "warning" only log. A file that lies in its place has arrived, whichever run takes it.

    Cost: none without a rule in pipeline.toml; as tussock.jobs.quality.arrival.missing_files.
    """
    if interval is None or not store.pipeline.arrival:
        return
    from tussock.jobs.quality.arrival import MissingFilesError, missing_files

    missing = missing_files(store.meta, store.meta.read_latest(), store.pipeline.arrival, [interval], store.now)
    for one in missing:
        if one.warns:
            log.warning("%s", one)
    if failing := [one for one in missing if not one.warns]:
        raise MissingFilesError(failing)


def pause_views(store: PipelineStore, views: Sequence[str], run: Mapping[str, str]) -> None:
    """Put a barrier in force that pauses these views and the views that read them. It supersedes an open barrier.

    Views that are already paused stay paused.

    Raises: InputError if a view is unknown or cannot be paused; LostRaceError.
    """
    barrier = store.meta.open_barrier()
    catalog = store.meta.read_latest().catalog if barrier is None or barrier.catalog is None else barrier.catalog
    paused = {r.name for r in catalog.live_relations() if r.paused is not None}
    if wanted := tuple(view for view in dict.fromkeys(views) if view not in paused):
        abandon_barrier(store.meta, Detour(pause=wanted), run)


def go_around(store: PipelineStore, detour: Detour) -> Barrier:
    """Supersede the open barrier with one that avoids an input that blocks it. Raises as `abandon_barrier`."""
    return abandon_barrier(store.meta, detour)


def commit_sealed(store: PipelineStore) -> HummockVersion:
    """Commit a sealed epoch. No effect if the epoch job committed it, which it does unless it was killed."""
    if (barrier := store.meta.open_barrier()) is not None and (
        sealed := store.meta.read_manifest(barrier.epoch)
    ) is not None:
        store.meta.commit_epoch(sealed)
    version = store.meta.read_latest()
    release_taken_input(store.meta, version)
    return version


def holding_run(store: PipelineStore, dag: str) -> str | None:
    """Return the run of `dag` whose epoch is open, or committed and unpublished.

    None without such an epoch, or if another program made it. Cost: two GETs, three if an epoch waits for its publish.
    """
    version = store.meta.read_latest()
    barrier = store.meta.barrier_after(version.epoch)
    if (
        barrier is None
        and version.published < version.epoch
        and (sealed := store.meta.read_manifest(version.epoch)) is not None
    ):
        barrier = store.meta.barrier_after(sealed.prev_epoch)
    return barrier.run.get("run") if barrier is not None and barrier.run.get("dag") == dag else None
