"""Checks one committed epoch: runs the suites of its views, the assertions and the rules on arrival.

Hidden views answer an expectation if they exist at the epoch (measures.py), and Spark judges the others over the view's
rows. Great Expectations decides in both cases. Suites are files `<view>.json` in the pipeline's quality folder;
jobs/quality/suite.py defines their format.

The result is a `QualityRecord` in the store (record.py), on which a publish depends. Data Docs are written to a folder
outside of the store.

    spark-submit jobs/submitted.py quality --pipeline FOLDER --epoch N
    python -m tussock.jobs.submitted quality --pipeline FOLDER --epoch N

Cost: reads the measures, which contain no right rows. Spark reads the rows of a view once, and caches them. Each
expectation is one or two Spark jobs then.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tussock.jobs.catalog.definition import output_of
from tussock.jobs.catalog.store_zone import store_zone
from tussock.jobs.quality.arrival import digest_of, judge_arrivals
from tussock.jobs.quality.assertions import Assertion, judge_assertions, read_assertions
from tussock.jobs.quality.history import earlier_values, with_bounds
from tussock.jobs.quality.measured import MeasureReader, ViewMetrics
from tussock.jobs.quality.measures import find_measures
from tussock.jobs.quality.record import (
    USABLE_SUITE,
    Failure,
    JudgedBy,
    QualityRecord,
    ViewQuality,
    after_publish,
    is_source,
    read_record,
    stays_published,
    write_record,
)
from tussock.jobs.quality.rows import RowsOfMetrics, SparkRows, ViewRows
from tussock.jobs.quality.suite import QualitySuiteError, Suite, SuitePart, read_suites, relation_of
from tussock.jobs.quality.suite_runs import SuiteFound, SuiteRuns
from tussock.jobs.quality.text import expectation_text, item_text
from tussock.jobs.quality.valid_suite import require_valid
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.tables import QualityScope
from tussock.statestore.errors import InputError, did_you_mean
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tussock.statestore.meta.catalog import Relation
    from tussock.statestore.meta.store import MetaStore
    from tussock.statestore.objectstore.base import ObjectStore


class SparkNeededError(InputError):
    """Suites require Spark, and this process must not start it."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(list(reasons))
        self.reasons = tuple(reasons)

    def __str__(self) -> str:
        return "\n".join(["these suites require Spark:", *(f"  {reason}" for reason in self.reasons)])


SparkStarter = Callable[[Sequence[str]], "SparkSession"]
"""Returns a Spark session on first need. Receives the reasons, and may raise SparkNeededError."""


def refuse_spark(reasons: Sequence[str]) -> "SparkSession":
    """The SparkStarter of a process without Spark. Raises SparkNeededError."""
    raise SparkNeededError(reasons)


def check_epoch(
    spark: SparkStarter, meta: "MetaStore", pipeline: Pipeline, epoch: int, costs: Progress = no_progress
) -> QualityRecord:
    """Run all suites of a pipeline on its views at a committed epoch, and store the record. Pins the epoch meanwhile.

    A paused view is skipped if its rows were already published, because they have not changed.

    Args:
        spark: called at most once, before any suite runs, if one requires Spark.
        costs: receives one line per part of a suite, with its cost.

    Raises: QualitySuiteError; SparkNeededError from `spark`, before anything has happened; EpochNotCommittedError,
        EpochExpiredError.
    Cost: see above.
    """
    # The Data Docs are outside of the store, and those of its parent.
    docs = None if pipeline.quality is None or pipeline.branch else pipeline.quality.docs
    with meta.open_for_reading(epoch) as version:
        suites, assertions = read_suites(pipeline.quality), read_assertions(pipeline)
        request = _Request(suites, assertions, docs, costs=costs)
        record = _check(spark, meta, pipeline, version, epoch, request)
    record = after_publish(record, read_record(meta.objects, epoch), version)
    write_record(meta.objects, record)
    return record


def check_suites(
    spark: SparkStarter,
    meta: "MetaStore",
    pipeline: Pipeline,
    views: Sequence[str] = (),
    epoch: int | None = None,
    *,
    again: bool = False,
    costs: Progress = no_progress,
) -> QualityRecord:
    """Run suites on a committed epoch as `check_epoch` does. Writes nothing, neither to the store nor Data Docs.

    Args:
        views: run only the suites of these views, and the assertions in these files; empty: all.
        epoch: a readable epoch; None: the newest.
        again: whether this process may run suites later. Great Expectations is then imported with its Spark engine,
            because it cannot be imported twice.
        costs: as for `check_epoch`.

    Raises: NoSuiteError: the pipeline has no suites, or not for such a view; NoEpochYetError; as `check_epoch`.
    """
    suites, assertions = read_suites(pipeline.quality), read_assertions(pipeline)
    known = [suite.view for suite in suites] + [one.name for one in assertions]
    if (
        not (known or pipeline.arrival)
        or (unknown := next((view for view in views if view not in known), None)) is not None
    ):
        raise NoSuiteError(pipeline.name, "" if not (known or pipeline.arrival) else str(unknown), tuple(known))
    if (epoch := meta.read_latest().epoch if epoch is None else epoch) == 0:
        raise NoEpochYetError(pipeline.name)
    with meta.open_for_reading(epoch) as version:
        chosen = [suite for suite in suites if not views or suite.view in views]
        asserted = [one for one in assertions if not views or one.name in views]
        request = _Request(chosen, asserted, None, again, costs, only_views=bool(views))
        return _check(spark, meta, pipeline, version, epoch, request)


class NoSuiteError(InputError, hides_row_values=True):
    """A pipeline has no suites, or none for a view."""

    pipeline: str
    view: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        if not self.known:
            return (
                f"pipeline {self.pipeline!r} has no suites. Write quality/<view>.json in its folder, and name that "
                'folder in pipeline.toml: [quality] folder = "quality".'
            )
        near = did_you_mean(self.view, self.known)
        return f"view {self.view!r} has no suite. Found suites of {', '.join(self.known)}.{near}"


class NoEpochYetError(InputError):
    """A store has no epoch that could be checked."""

    pipeline: str

    def __str__(self) -> str:
        return f"the store of {self.pipeline!r} has no epoch yet. Run `tussock epoch --pipeline {self.pipeline}` first."


@dataclass(frozen=True, slots=True)
class _Request:
    """The suites and assertions to run, and how.

    Args:
        docs: the folder for Data Docs; None: write none.
        again: whether this process may run other suites later, which may need Spark.
        costs: receives one line per part of a suite, with its cost.
        only_views: leave out the rules on arrival.
    """

    suites: Sequence[Suite]
    assertions: Sequence[Assertion]
    docs: Path | None
    again: bool = False
    costs: Progress = no_progress
    only_views: bool = False


@dataclass(frozen=True, slots=True)
class _SuitePlan:
    """The plan for one view.

    Args:
        suite: the suite, with the bounds from its history.
        earlier: the values of earlier runs, for expectations with a history.
    """

    suite: Suite
    relation: "Relation"
    earlier: Mapping[str, tuple[float, ...]]

    @staticmethod
    def of(suite: Suite, relation: "Relation", before: QualityRecord | None, epoch: int) -> "_SuitePlan":
        """`before`: the record of the epoch at which readers see the view."""
        return _SuitePlan(with_bounds(suite, before, epoch), relation, _earlier_values(suite, before, epoch))


@dataclass(frozen=True, slots=True)
class _PlannedPart:
    """A part of a suite, and the metrics of the view. None: Spark judges it.

    Args:
        reasons: why Spark judges an expectation, by its text.
    """

    plan: _SuitePlan
    part: SuitePart
    key: tuple[str, ...]
    metrics: ViewMetrics | None
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> JudgedBy:
        """How its expectations are judged."""
        return JudgedBy.SPARK if self.metrics is None else JudgedBy.MAINTAINED


def _check(
    spark: SparkStarter,
    meta: "MetaStore",
    pipeline: Pipeline,
    version: HummockVersion,
    epoch: int,
    request: _Request,
) -> QualityRecord:
    relations = {
        relation.name: relation for relation in version.catalog.relations_at(epoch) if output_of(relation) is not None
    }
    suites: list[Suite] = []
    broken: dict[str, ViewQuality] = {}
    for suite in request.suites:
        with _own_trouble(pipeline, suite, broken):
            _require_fits(suite, relations)
            suites.append(suite)
    still = {name for name, relation in relations.items() if stays_published(version, relation, epoch)}
    plans = _plans(meta, version, relations, [suite for suite in suites if suite.view not in still], epoch)
    parts: list[_PlannedPart] = []
    for plan in plans:
        with _own_trouble(pipeline, plan.suite, broken):
            parts += _planned_parts(meta.objects, version, relations, plan, epoch)
    views = {
        suite.view: ViewQuality(suite.view, 0, len(suite.items), suite=suite.digest)
        for suite in (plan.suite for plan in plans)
    }
    reasons = [f"{one.plan.suite.file.name}: {text}: {reason}" for one in parts for text, reason in one.reasons.items()]
    session = _session(spark(reasons), meta) if reasons else None
    if parts:
        with SuiteRuns(request.docs, spark=session is not None or request.again) as runs:
            for one in parts:
                suite = one.plan.suite
                rows = _part_rows(one, session, meta.objects.uri, version, epoch)
                with _own_trouble(pipeline, suite, broken):
                    began = time.process_time(), time.monotonic()
                    result = runs.check(suite, one.part, rows, epoch, one.key)
                    views[suite.view] = _with_result(views[suite.view], one, result)
                    request.costs(_cost_line(one, result.rows, *began))
    since = _judged_since(meta, version, epoch)
    arrived = [] if request.only_views else judge_arrivals(meta, version, pipeline, since, epoch)
    asserted, paused = judge_assertions(meta.objects, version, relations, request.assertions, epoch)
    return QualityRecord(
        epoch,
        (*(views | broken).values(), *asserted, *arrived),
        (*(suite.view for suite in suites if suite.view in still), *paused),
        arrival=msgspec.UNSET if request.only_views else digest_of(pipeline.arrival) or msgspec.UNSET,
    )


def _judged_since(meta: "MetaStore", version: HummockVersion, epoch: int) -> int:
    """Return the epoch after which the intake is judged: what readers do not see yet.

    A refused intake must be judged again with every later epoch until its views are released. Without views that are
    held back, this is the published epoch, or, if that is judged again, the one before it.

    Cost: a GET if views are held back.
    """
    refused = min((version.published, *(held.epoch for held in version.held)))
    if version.published < epoch:
        passed = refused == version.published or _arrivals_passed(read_record(meta.objects, version.published))
        return version.published if passed else refused
    if refused < epoch:
        return refused
    sealed = meta.read_manifest(epoch)
    return epoch if sealed is None else sealed.prev_epoch


def _arrivals_passed(record: QualityRecord | None) -> bool:
    """Return whether the check judged an epoch and refused no source's intake, so that other checks hold views back."""
    return record is not None and not record.unchecked and not any(is_source(name) for name in record.failed)


def _plans(
    meta: "MetaStore", version: HummockVersion, relations: "Mapping[str, Relation]", suites: Sequence[Suite], epoch: int
) -> list[_SuitePlan]:
    """Return one plan per suite. Cost: a GET for each epoch at which readers see a view."""
    sight = published_sight(version)
    seen = [sight.epoch_of(suite.view) for suite in suites]
    records = {at: read_record(meta.objects, at) if at else None for at in set(seen)}
    return [
        _SuitePlan.of(suite, relations[suite.view], records[at], epoch) for suite, at in zip(suites, seen, strict=True)
    ]


def _part_rows(
    one: _PlannedPart, session: "SparkSession | None", store: str, version: HummockVersion, epoch: int
) -> ViewRows:
    """Return the input of a part in the form that Great Expectations reads."""
    if one.metrics is not None:
        return RowsOfMetrics(one.metrics)
    from tussock.jobs.reading.reader import relation_frame

    assert session is not None, "Spark is started for parts without metrics"
    return SparkRows(relation_frame(session, store, version, one.plan.relation, epoch))


def _cost_line(one: _PlannedPart, rows: int, cpu: float, clock: float) -> str:
    n = len(one.part.items)
    what = f"{one.plan.suite.view}: {n} expectation{'s' * (n != 1)} over {rows:,} rows"
    if one.metrics is None:
        return f"{what} on Spark: {time.monotonic() - clock:.1f} s"
    return f"{what} by hidden views: {time.process_time() - cpu:.2f} CPU s"


@contextmanager
def _own_trouble(pipeline: Pipeline, suite: Suite, broken: dict[str, ViewQuality]) -> Iterator[None]:
    """If the check judges view by view, record an unusable suite as a failure of its view in `broken`; else raise."""
    try:
        yield
    except QualitySuiteError as err:
        if pipeline.quality is None or pipeline.quality.scope is QualityScope.PIPELINE:
            raise
        failure = Failure(USABLE_SUITE, str(err).rstrip("."))
        broken[suite.view] = ViewQuality(suite.view, 0, len(suite.items), (failure,), suite=suite.digest)


def _require_fits(suite: Suite, relations: "Mapping[str, Relation]") -> None:
    """Raises QualitySuiteError if a suite is broken, its view does not exist, or an expectation is not valid."""
    if suite.broken is not None:
        raise suite.broken
    require_valid(suite, relation_of(suite, relations))


def _session(spark: "SparkSession", meta: "MetaStore") -> "SparkSession":
    """Return the session of the suites. It compares instants with texts in the store's time zone."""
    from tussock.jobs.spark.session import sql_session

    return sql_session(spark, store_zone(meta))


def _planned_parts(
    objects: "ObjectStore",
    version: HummockVersion,
    relations: "Mapping[str, Relation]",
    plan: _SuitePlan,
    epoch: int,
) -> Iterator[_PlannedPart]:
    """Yield the part that hidden views answer, and the part for Spark."""
    suite, relation = plan.suite, plan.relation
    key = suite.key or tuple(_key_columns(relation))
    wanted = find_measures(suite, relation)
    metrics, items, reasons = MeasureReader(objects, version, relations, relation, epoch).read(wanted)
    if metrics is not None:
        yield _PlannedPart(plan, SuitePart(suite.view, items), key, metrics)
    reasons = {**wanted.by_spark, **reasons}
    if left := tuple(item for item in suite.items if item_text(item) in reasons):
        name = suite.view if metrics is None else f"{suite.view}.by_spark"
        yield _PlannedPart(plan, SuitePart(name, left), key, None, reasons)


def _with_result(view: ViewQuality, one: _PlannedPart, result: SuiteFound) -> ViewQuality:
    metrics = (
        msgspec.structs.replace(
            metric,
            earlier=one.plan.earlier.get(metric.expectation, ()),
            place=one.place,
            why=one.reasons.get(metric.expectation, ""),
        )
        for metric in result.metrics
    )
    return msgspec.structs.replace(
        view,
        rows=max(view.rows, result.rows),
        failures=(*view.failures, *result.failures),
        warnings=(*view.warnings, *result.warnings),
        metrics=(*view.metrics, *metrics),
    )


def _earlier_values(suite: Suite, before: QualityRecord | None, epoch: int) -> dict[str, tuple[float, ...]]:
    """Return the values of earlier runs by expectation, for those with a history."""
    values_by_item = ((item, earlier_values(suite, item, before, epoch)) for item in suite.items)
    return {expectation_text(item["type"], item.get("kwargs", {})): values for item, values in values_by_item if values}


def _key_columns(relation: "Relation") -> list[str]:
    """Return the visible columns of the view's key; all columns if none is visible."""
    from tussock.jobs.reading.reader import key_of

    names = [column.name for column in relation.columns]
    return [names[place] for place in key_of(relation) if place < len(names)] or names
