"""Restate a source: replace rows that it has taken with the current rows of its files."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from tussock.jobs.barriers.release import release_taken_input
from tussock.jobs.driver.epoch import next_epoch
from tussock.jobs.driver.run_record import recorded_run
from tussock.jobs.operations.epochs import RunResult, input_request_of, pace_of
from tussock.jobs.operations.runners import Where, runner_of, spark_of
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.errors import CannotRestateError
from tussock.jobs.sources.listing import Interval
from tussock.jobs.trouble.restate import Restatement, Restating
from tussock.statestore.progress import Progress

_EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Begun:
    """A restatement whose barrier is in force, or an empty one without a barrier.

    `resumed`: this run's earlier epoch.
    """

    restatement: Restatement | None
    resumed: int | None = None


def preview_restatement(store: PipelineStore, source: str, restated: Restated, run: Mapping[str, str]) -> Restating:
    """Return the changes that restating a source would make. Changes nothing. Raises as Restating."""
    return Restating(store.meta, source, restated, run, pace_of(store))


def count_rows(store: PipelineStore, restating: Restating) -> tuple[int, int]:
    """Return the number of removed and of added rows. Starts Spark if only Spark reads the files. Cost: reads them."""
    with ExitStack() as stack:
        return restating.count_rows(lambda: stack.enter_context(spark_of(store.pipeline, "restate")))


def restate_source(store: PipelineStore, restating: Restating, progress: Progress) -> RunResult:
    """Run a restatement as one epoch. Raises LostRaceError if another barrier came first; as `next_epoch`."""
    whole = msgspec.structs.replace(store.pipeline.epoch, max_bytes=None, units=None)
    what = f"restate {restating.restatement.source}"
    with recorded_run(store.meta, what), runner_of(store, Where.AS_SET, "restate", progress) as runner:
        restating.begin_restating()
        done = next_epoch(runner, store.meta, input_request_of(store, None), whole, progress)
    release_taken_input(store.meta)
    return RunResult(() if done is None else (done,), store.meta.read_latest().epoch)


def restated_of_form(files: str, interval: Interval | None) -> Restated:
    """Return the restatement that a form describes.

    Args:
        files: names of files, folders or globs, one per line; `*` alone: everything, also of a source without files.
        interval: of the run; it applies if no file is named.
    """
    first, *more = [line.strip() for line in files.splitlines() if line.strip()] or [""]
    if (first, more) == (_EVERYTHING, []):
        return Restated()
    return Restated(first, interval=None if first else interval, more=tuple(more))


def begin_restatement(store: PipelineStore, source: str, restated: Restated, run: Mapping[str, str]) -> Begun:
    """Put the barrier of a restatement in force, for the epoch job. No effect if this run's barrier is already open.

    Raises: EpochUnderWayError if another run's barrier is open; CannotRestateError; UnknownRelationError.
    """
    if (barrier := store.meta.open_barrier()) is not None and barrier.run == run:
        return Begun(None, barrier.epoch)
    if not restated.items and restated.interval is None:
        raise CannotRestateError(source, "neither a file nor an interval is given")
    restating = preview_restatement(store, source, restated, run)
    restating.begin_restating()
    return Begun(restating.restatement)
