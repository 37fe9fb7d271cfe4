"""Compaction: list the due tasks and run them, in this process or on Spark."""

from tussock.jobs.operations.runners import spark_of
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.upkeep import compaction
from tussock.jobs.upkeep.compaction import TaskDone
from tussock.statestore.hummock.compaction_picker import CompactionOptions, Pick
from tussock.statestore.progress import Progress, no_progress


def due_picks(store: PipelineStore, *, full: bool = False) -> tuple[Pick, ...]:
    """Return the picks of the next round, or of a full compaction, most urgent first. Changes nothing."""
    return tuple(compaction.due_picks(store.meta, full=full))


def compact(
    store: PipelineStore, *, full: bool = False, on_spark: bool = False, progress: Progress = no_progress
) -> tuple[TaskDone, ...]:
    """Run compaction tasks until none is due, one by one in this process, or as Spark tasks per piece of a round.

    Args:
        full: merge everything into the last level, due or not.

    Raises: the first error of a failed task, after the rounds.
    """
    options = CompactionOptions()
    if not on_spark:
        return tuple(compaction.compact_store(store.meta, options, full=full, progress=progress))
    with spark_of(store.pipeline, "compaction") as spark:
        return tuple(compaction.compact_with_spark(spark, store.meta, options, full=full, progress=progress))


def compact_forever(store: PipelineStore, pause_s: float, progress: Progress) -> None:
    """Compact, sleep, and repeat until the process is stopped."""
    compaction.compact_forever(store.meta, CompactionOptions(), pause_s, progress)
