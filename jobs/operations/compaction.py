"""Compaction: what is due, and merging it, in this process or on Spark."""

from tussock.jobs.operations.runners import spark_of
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.upkeep import compaction
from tussock.jobs.upkeep.compaction import TaskDone
from tussock.statestore.hummock.compaction_picker import CompactionOptions, Pick
from tussock.statestore.progress import Progress, no_progress


def due(at: PipelineStore) -> tuple[Pick, ...]:
    """What a round would merge now, most urgent first; nothing is changed."""
    return tuple(compaction.due(at.meta))


def compact(
    at: PipelineStore, *, full: bool = False, on_spark: bool = False, progress: Progress = no_progress
) -> tuple[TaskDone, ...]:
    """Merge until nothing is due: one task after another in this process, or the pieces of a round as Spark tasks.

    Args:
        full: merge everything into the last level, whatever is due.

    Raises: the first error of a task that failed, after the rounds.
    """
    if not on_spark:
        return tuple(compaction.compact(at.meta, full=full, progress=progress))
    with spark_of(at, "compaction") as spark:
        return tuple(compaction.compact_with_spark(spark, at.meta, full=full, progress=progress))


def compact_forever(at: PipelineStore, pause_s: float, progress: Progress) -> None:
    """Compact, rest, and again, until the process is stopped."""
    compaction.compact_forever(at.meta, CompactionOptions(), pause_s, progress)
