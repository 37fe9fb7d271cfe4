"""The quality gate: the suites of a pipeline, run on one committed epoch, and the record of what they found."""

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
    """Whether the pipeline has suites to run. Cost: a listing of its folder."""
    return at.pipeline.quality is not None and bool(at.pipeline.quality.suites())


def judges_views(at: PipelineStore) -> bool:
    """Whether a suite that fails holds back its view, and not the epoch."""
    return at.pipeline.quality is not None and at.pipeline.quality.scope is GateScope.VIEW


def known(at: PipelineStore, epoch: int) -> QualityRecord | None:
    """The record of `epoch` by the suites as they are now; None if they were not run on it."""
    return judged(at.meta.objects, epoch, read_suites(at.pipeline.quality))


def verdict(at: PipelineStore, epoch: int) -> GateVerdict:
    """What `known` found; NONE if nothing."""
    record = known(at, epoch)
    return GateVerdict.NONE if record is None else record.verdict


def judge_here(at: PipelineStore, epoch: int) -> QualityRecord:
    """Run the suites on `epoch` without Spark, and keep the record.

    Raises: SparkNeededError, before anything is done; QualitySuiteError.
    """
    from tussock.jobs.gate.gate import validate_epoch, without_spark  # Great Expectations takes a second

    return validate_epoch(without_spark, at.meta, at.pipeline, epoch)


def judge(at: PipelineStore, epoch: int, progress: Progress) -> QualityRecord:
    """Run the suites on `epoch`, on Spark if one of them needs it, and keep the record. Raises QualitySuiteError."""
    from tussock.jobs.gate.gate import validate_epoch
    from tussock.jobs.operations.runners import spark_of

    with ExitStack() as stack:

        def start(reasons: Sequence[str]) -> "SparkSession":
            progress("\n  ".join(["Spark judges", *reasons]))
            return stack.enter_context(spark_of(at, "quality"))

        return validate_epoch(start, at.meta, at.pipeline, epoch)


def require_passed(at: PipelineStore, record: QualityRecord) -> None:
    """Raises QualityGateError if suites failed and the gate judges the pipeline as a whole."""
    if not record.passed and not judges_views(at):
        raise QualityGateError(record)


def require_none_held_back(at: PipelineStore, epoch: int) -> None:
    """Raises HeldViewsError if suites failed at `epoch`."""
    record = read_record(at.meta.objects, epoch)
    if record is not None and not record.passed:
        raise HeldViewsError(record)


def failure(at: PipelineStore, epoch: int) -> str | None:
    """Why the gate does not let `epoch` pass, for people; None if it passed, or was not judged."""
    record = read_record(at.meta.objects, epoch)
    return None if record is None or record.passed else str(QualityGateError(record))
