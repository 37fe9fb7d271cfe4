"""The quality gate: run the suites of a pipeline on one committed epoch, and record their results."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tussock.jobs.gate.record import GateVerdict, HeldViewsError, QualityGateError, QualityRecord, judged, read_record
from tussock.jobs.gate.suite import read_suites
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.pipeline import GateScope
from tussock.statestore.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def has_suites(at: PipelineStore) -> bool:
    """Return whether the pipeline has suites. Cost: one directory listing."""
    return at.pipeline.quality is not None and bool(at.pipeline.quality.suites())


def judges_views(at: PipelineStore) -> bool:
    """Return whether a failed suite holds back only its view, and not the whole epoch."""
    return at.pipeline.quality is not None and at.pipeline.quality.scope is GateScope.VIEW


def known(at: PipelineStore, epoch: int) -> QualityRecord | None:
    """Return the record of `epoch` for the current suites; None if they have not run on it."""
    return judged(at.meta.objects, epoch, read_suites(at.pipeline.quality))


def verdict(at: PipelineStore, epoch: int) -> GateVerdict:
    """Return the verdict of `known`; NONE without a record."""
    record = known(at, epoch)
    return GateVerdict.NONE if record is None else record.verdict


def judge_here(at: PipelineStore, epoch: int) -> QualityRecord:
    """Run the suites on `epoch` without Spark, and store the record.

    Raises: SparkNeededError before anything ran; QualitySuiteError.
    """
    from tussock.jobs.gate.gate import validate_epoch, without_spark  # importing Great Expectations takes a second

    return validate_epoch(without_spark, at.meta, at.pipeline, epoch)


def judge(at: PipelineStore, epoch: int, progress: Progress) -> QualityRecord:
    """Run the suites on `epoch`, on Spark if one of them needs it, and store the record. Raises QualitySuiteError."""
    from tussock.jobs.gate.gate import validate_epoch
    from tussock.jobs.operations.runners import spark_of

    with ExitStack() as stack:

        def start(reasons: Sequence[str]) -> "SparkSession":
            progress("\n  ".join(["suites run on Spark, because of:", *reasons]))
            return stack.enter_context(spark_of(at.pipeline, "quality"))

        return validate_epoch(start, at.meta, at.pipeline, epoch)


def require_passed(at: PipelineStore, record: QualityRecord) -> None:
    """Raises QualityGateError if suites failed and the gate judges the whole pipeline."""
    if not record.passed and not judges_views(at):
        raise QualityGateError(record)


def require_none_held_back(at: PipelineStore, epoch: int) -> None:
    """Raises HeldViewsError if suites failed at `epoch`."""
    record = read_record(at.meta.objects, epoch)
    if record is not None and not record.passed:
        raise HeldViewsError(record)


def failure(at: PipelineStore, epoch: int) -> str | None:
    """Return the reason why `epoch` did not pass the gate; None if it passed or was not judged."""
    record = read_record(at.meta.objects, epoch)
    return None if record is None or record.passed else str(QualityGateError(record))
