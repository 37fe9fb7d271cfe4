"""Epochs: one barrier to its commit, or all that waits as a train of them."""

from collections.abc import Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession

from jobs.driver.barrier import MAX_EPOCH_BYTES, Base, inject
from jobs.driver.levels import plan_levels, told_by_name
from jobs.driver.summary import EpochSummary, Progress, Timed, row_counts, step_seconds, summary_of
from jobs.driver.train import DEPTH, Train
from jobs.plan.schedule import Schedule, schedule
from jobs.sources.listing import Interval
from jobs.wire.epoch_task import FragmentReport
from statestore.errors import InputError
from statestore.meta.barrier import Barrier
from statestore.meta.catalog import Catalog
from statestore.meta.errors import LostRaceError
from statestore.meta.manifest import manifest_of
from statestore.meta.store import MetaStore
from statestore.meta.version import SstInfo


def run_epoch(spark: SparkSession, meta: MetaStore, barrier: Barrier, progress: Progress = lambda _: None) -> EpochSummary:
    """Run one barrier's epoch to its commit.

    Args:
        barrier: in force for the latest version (MetaStore.open_barrier or jobs.barrier.inject).
        progress: called with one line as each part begins or ends.

    Raises: InputError branches when an input stops the epoch (nothing is committed, the barrier stays in force);
        LostRaceError when another driver committed first.
    """
    seconds: dict[str, float] = {}
    with Timed(seconds, "plan"):
        version = meta.latest()
        if version.epoch != barrier.prev_epoch:
            raise LostRaceError(f"epoch {barrier.epoch}", f"epoch {version.epoch} is committed after {barrier.prev_epoch} already")
        catalog = version.catalog if barrier.catalog is None else barrier.catalog
        plan = schedule(catalog, barrier.epoch)
        base = Base(version)
    sealed = meta.sealed(barrier.epoch)
    if sealed is None:
        progress(f"running {sum(len(level) for level in plan.levels)} fragments in {len(plan.levels)} levels")
        with Timed(seconds, "run"):
            try:
                reports, ssts = _run_actors(spark, meta, base, barrier, catalog, plan)
            except InputError as err:
                raise told_by_name(err, meta, base, barrier, catalog, plan) from None
        progress("actors done")
        sealed = meta.seal(manifest_of(barrier, meta.writer, tuple(ssts), row_counts(reports, plan), step_seconds(seconds)))
        progress("sealed")
    with Timed(seconds, "commit"):
        committed, mine = meta.commit_epoch(sealed)
    if not mine:
        raise LostRaceError(f"epoch {barrier.epoch}", "another run of the same barrier committed it first, with the same rows")
    progress(f"committed version {committed.id}")
    return summary_of(sealed, committed.id, seconds)


def _run_actors(
    spark: SparkSession, meta: MetaStore, base: Base, barrier: Barrier, catalog: Catalog, plan: Schedule
) -> tuple[list[FragmentReport], list[SstInfo]]:
    if (levels := plan_levels(spark, meta, base, barrier, catalog, plan)) is None:
        return [], []
    try:
        return levels.finish()
    finally:
        levels.close()


def advance(
    spark: SparkSession,
    meta: MetaStore,
    interval: Interval | None = None,
    max_epoch_bytes: int = MAX_EPOCH_BYTES,
    run: Mapping[str, str] | None = None,
    progress: Progress = lambda _: None,
    in_flight: int = DEPTH,
) -> list[EpochSummary]:
    """Finish the open barrier, whoever's it is, then take in what waits, as a train of epochs, until nothing does.

    Args:
        interval: take in this data interval's files only; a run has done its work when they are all committed.
        in_flight: epochs that may be under way at once; with 1 each is committed before the next begins.

    Raises: as Train.run and Train.next_barrier do; epochs before the failing one are committed.
    """
    done = []
    barrier = inject(meta, interval, max_epoch_bytes, run)
    if barrier is not None and meta.sealed(barrier.epoch) is not None:
        done.append(run_epoch(spark, meta, barrier, progress))  # only its commit is left to do
        barrier = inject(meta, interval, max_epoch_bytes, run)
    with Train(spark, meta, in_flight, progress=progress) as train:
        while barrier is not None:
            told = f": {', '.join(barrier.skipped)}" if barrier.skipped else ""
            progress(f"barrier {barrier.epoch} after {barrier.prev_epoch}{told}")
            train.run(barrier)
            barrier = train.next_barrier(interval, max_epoch_bytes, run)
    return [*done, *train.done]


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
