"""The quality gate: runs Great Expectations suites on the views of one committed epoch.

Each expectation is judged where this costs least: by maintained measures (measures.py), over changed rows or a few rows
in this process if the result is known to equal Spark's (without_spark.py), or by Spark. Suites are files `<view>.json`
in the pipeline's quality folder; jobs/quality/suite.py defines their format.

The result is a `QualityRecord` in the store (record.py), on which a publish depends. Data Docs are written to a folder
outside of the store.

    spark-submit jobs/submitted.py quality --pipeline FOLDER --epoch N
    python -m tussock.jobs.submitted quality --pipeline FOLDER --epoch N

Cost: the rows are read once, and cached while Spark judges them. Each expectation is one or two Spark jobs, or passes
over a column in this process.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tussock.jobs.catalog.definition import output_of
from tussock.jobs.catalog.store_zone import store_zone
from tussock.jobs.quality.arrival import digest_of, judge_arrivals
from tussock.jobs.quality.assertions import Assertion, judge_assertions, read_assertions
from tussock.jobs.quality.history import earlier_values, with_bounds
from tussock.jobs.quality.measured import ViewMeasures, measured
from tussock.jobs.quality.measures import SMALL_VIEW_ROWS, measures_of
from tussock.jobs.quality.record import (
    USABLE_SUITE,
    Failure,
    Judged,
    QualityRecord,
    ViewQuality,
    after_publish,
    is_source,
    passed_before,
    read_record,
    stays_published,
    write_record,
)
from tussock.jobs.quality.row_metrics import RowMetrics
from tussock.jobs.quality.rows import RowsOfMetrics, SparkRows, ViewRows
from tussock.jobs.quality.suite import QualitySuiteError, Suite, SuitePart, read_suites, relation_of
from tussock.jobs.quality.suite_runs import SuiteFound, SuiteRuns
from tussock.jobs.quality.text import expectation_text, item_text
from tussock.jobs.quality.valid_suite import require_valid
from tussock.jobs.quality.without_spark import MOST_ROWS, key_objection, objection
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.tables import GateScope
from tussock.statestore.errors import InputError, did_you_mean
from tussock.statestore.hummock.version import stored_size
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


def without_spark(reasons: Sequence[str]) -> "SparkSession":
    """The SparkStarter of a process without Spark. Raises SparkNeededError."""
    raise SparkNeededError(reasons)


def validate_epoch(
    spark: SparkStarter,
    meta: "MetaStore",
    pipeline: Pipeline,
    epoch: int,
    small_view_rows: int = SMALL_VIEW_ROWS,
    most_rows_here: int = MOST_ROWS,
    costs: Progress = no_progress,
) -> QualityRecord:
    """Run all suites of a pipeline on its views at a committed epoch, and store the record. Pins the epoch meanwhile.

    A paused view is skipped if its rows were already published, because they have not changed.

    Args:
        spark: called at most once, before any suite runs, if one requires Spark.
        small_view_rows: a view of up to this many stored rows is read completely.
        most_rows_here: up to this many rows are judged in this process, if it finds Spark's result; 0: never.
        costs: receives one line per part of a suite, with its cost.

    Raises: QualitySuiteError; SparkNeededError from `spark`, before anything has happened; EpochNotCommittedError,
        EpochExpiredError.
    Cost: a view of up to `small_view_rows` stored rows is read completely. For a larger view, expectations on single
        rows read the changes since the epoch that readers see, if that passed the same suite. Only the other
        expectations read it completely.
    """
    docs = None if pipeline.quality is None else pipeline.quality.docs
    with meta.reading(epoch) as version:
        suites, assertions = read_suites(pipeline.quality), read_assertions(pipeline)
        look = _Request(suites, assertions, docs, costs=costs, sizes=(small_view_rows, most_rows_here))
        record = _validate(spark, meta, pipeline, version, epoch, look)
    record = after_publish(record, read_record(meta.objects, epoch), version)
    write_record(meta.objects, record)
    return record


def check(
    spark: SparkStarter,
    meta: "MetaStore",
    pipeline: Pipeline,
    views: Sequence[str] = (),
    epoch: int | None = None,
    *,
    again: bool = False,
    costs: Progress = no_progress,
) -> QualityRecord:
    """Run suites on a committed epoch as `validate_epoch` does. Writes nothing, neither to the store nor Data Docs.

    Args:
        views: run only the suites of these views, and the assertions in these files; empty: all.
        epoch: a readable epoch; None: the newest.
        again: whether this process may run suites later. Great Expectations is then imported with its Spark engine,
            because it cannot be imported twice.
        costs: as for `validate_epoch`.

    Raises: NoSuiteError: the pipeline has no suites, or not for such a view; NoEpochYetError; as `validate_epoch`.
    """
    suites, assertions = read_suites(pipeline.quality), read_assertions(pipeline)
    known = [suite.view for suite in suites] + [one.name for one in assertions]
    if (
        not (known or pipeline.arrival)
        or (unknown := next((view for view in views if view not in known), None)) is not None
    ):
        raise NoSuiteError(pipeline.name, "" if not (known or pipeline.arrival) else str(unknown), tuple(known))
    if (epoch := meta.latest().epoch if epoch is None else epoch) == 0:
        raise NoEpochYetError(pipeline.name)
    with meta.reading(epoch) as version:
        chosen = [suite for suite in suites if not views or suite.view in views]
        asserted = [one for one in assertions if not views or one.name in views]
        look = _Request(chosen, asserted, None, again, costs, only_views=bool(views))
        return _validate(spark, meta, pipeline, version, epoch, look)


class NoSuiteError(InputError):
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
        sizes: the largest view that is read completely, and the most rows that are judged in this process.
    """

    suites: Sequence[Suite]
    assertions: Sequence[Assertion]
    docs: Path | None
    again: bool = False
    costs: Progress = no_progress
    only_views: bool = False
    sizes: tuple[int, int] = (SMALL_VIEW_ROWS, MOST_ROWS)


@dataclass(frozen=True, slots=True)
class GatePlan:
    """The plan for one view.

    Args:
        suite: the suite, with the bounds from its history.
        since: the epoch that readers see, if it is an earlier one and its rows passed this suite: only later changes
            are read.
        earlier: the values of earlier runs, for expectations with a history.
    """

    suite: Suite
    relation: "Relation"
    since: int | None
    earlier: Mapping[str, tuple[float, ...]]

    @staticmethod
    def of(suite: Suite, relation: "Relation", seen: int, before: QualityRecord | None, epoch: int) -> "GatePlan":
        """`seen`: the epoch at which readers see the view, 0 if they do not; `before`: the record of that epoch."""
        bounded = with_bounds(suite, before, epoch)
        passed = relation.created <= seen and passed_before(before, bounded)
        return GatePlan(bounded, relation, seen if passed and seen < epoch else None, _earlier(suite, before, epoch))


@dataclass(frozen=True, slots=True)
class _Look:
    """A part of a suite and its input: rows in this process, measures of all rows, or None for Spark.

    Args:
        reasons: why Spark judges an expectation, by its text.
        scans: whether it reads all rows of a large view.
    """

    plan: GatePlan
    part: SuitePart
    since: int | None  # only rows changed after this epoch
    key: tuple[str, ...]
    rows: pa.Table | ViewMeasures | None
    reasons: Mapping[str, str] = field(default_factory=dict)
    scans: bool = False

    @property
    def place(self) -> Judged:
        """How its expectations are judged."""
        if isinstance(self.rows, ViewMeasures):
            return Judged.MAINTAINED
        if self.rows is None:
            return Judged.SPARK
        return Judged.ROWS if self.since is None else Judged.CHANGED_ROWS


def _validate(
    spark: SparkStarter,
    meta: "MetaStore",
    pipeline: Pipeline,
    version: HummockVersion,
    epoch: int,
    asked: _Request,
) -> QualityRecord:
    relations = {relation.name: relation for relation in version.catalog.at(epoch) if output_of(relation) is not None}
    suites: list[Suite] = []
    broken: dict[str, ViewQuality] = {}
    for suite in asked.suites:
        with _own_trouble(pipeline, suite, broken):
            _require_fits(suite, relations)
            suites.append(suite)
    still = {name for name, relation in relations.items() if stays_published(version, relation, epoch)}
    plans = _plans(meta, version, relations, [suite for suite in suites if suite.view not in still], epoch)
    looks: list[_Look] = []
    for plan in plans:
        with _own_trouble(pipeline, plan.suite, broken):
            looks += _looks(meta.objects, version, relations, plan, epoch, asked.sizes)
    in_part = {look.plan.suite.view for look in looks if look.since is not None}
    whole = {look.plan.suite.view for look in looks if look.since is None}
    views = {
        suite.view: ViewQuality(
            suite.view, 0, len(suite.items), suite=suite.digest, all_rows=suite.view not in in_part - whole
        )
        for suite in (plan.suite for plan in plans)
    }
    reasons = [
        f"{look.plan.suite.file.name}: {text}: {reason}" for look in looks for text, reason in look.reasons.items()
    ]
    session = _session(spark(reasons), meta) if reasons else None
    if looks:
        with SuiteRuns(asked.docs, spark=session is not None or asked.again) as gate:
            for look in looks:
                suite = look.plan.suite
                rows = _rows_of(look, session, meta.objects.uri, version, epoch)
                with _own_trouble(pipeline, suite, broken):
                    began = time.process_time(), time.monotonic()
                    found = gate.check(suite, look.part, rows, epoch, look.key)
                    views[suite.view] = _with(views[suite.view], look, found)
                    asked.costs(_cost(look, found.rows, *began))
    arrived = (
        [] if asked.only_views else judge_arrivals(meta, version, pipeline, _judged_since(meta, version, epoch), epoch)
    )
    asserted, paused = judge_assertions(meta.objects, version, relations, asked.assertions, epoch)
    return QualityRecord(
        epoch,
        (*(views | broken).values(), *asserted, *arrived),
        (*(suite.view for suite in suites if suite.view in still), *paused),
        arrival=msgspec.UNSET if asked.only_views else digest_of(pipeline.arrival) or msgspec.UNSET,
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
    sealed = meta.sealed(epoch)
    return epoch if sealed is None else sealed.prev_epoch


def _arrivals_passed(record: QualityRecord | None) -> bool:
    """Return whether the gate judged an epoch and refused no source's intake, so that other checks hold views back."""
    return record is not None and not record.unchecked and not any(is_source(name) for name in record.failed)


def _plans(
    meta: "MetaStore", version: HummockVersion, relations: "Mapping[str, Relation]", suites: Sequence[Suite], epoch: int
) -> list[GatePlan]:
    """Return one plan per suite. Cost: a GET for each epoch at which readers see a view."""
    sight = published_sight(version)
    seen = [sight.epoch_of(suite.view) for suite in suites]
    records = {at: read_record(meta.objects, at) if at else None for at in set(seen)}
    return [
        GatePlan.of(suite, relations[suite.view], at, records[at], epoch)
        for suite, at in zip(suites, seen, strict=True)
    ]


def _rows_of(look: _Look, session: "SparkSession | None", store: str, version: HummockVersion, epoch: int) -> ViewRows:
    """Return the rows of a look in the form that Great Expectations reads."""
    match look.rows:
        case None:
            from tussock.jobs.reading.reader import relation_frame

            assert session is not None, "Spark is started for looks without rows"
            return SparkRows(relation_frame(session, store, version, look.plan.relation, epoch, look.since))
        case ViewMeasures() as kept:
            return RowsOfMetrics(kept)
        case held:
            return RowsOfMetrics(RowMetrics(held))


def _cost(look: _Look, rows: int, cpu: float, clock: float) -> str:
    n = len(look.part.items)
    what = f"{look.plan.suite.view}: {n} expectation{'s' * (n != 1)}"
    if look.place is Judged.MAINTAINED:
        return f"{what} by maintained measures: {time.process_time() - cpu:.2f} CPU s"
    if look.place is Judged.SPARK:
        return f"{what} over {rows:,} rows on Spark: {time.monotonic() - clock:.1f} s"
    return f"{what} over {rows:,} {look.place}: {time.process_time() - cpu:.2f} CPU s"


@contextmanager
def _own_trouble(pipeline: Pipeline, suite: Suite, broken: dict[str, ViewQuality]) -> Iterator[None]:
    """If the gate judges view by view, record an unusable suite as a failure of its view in `broken`; else raise it."""
    try:
        yield
    except QualitySuiteError as err:
        if pipeline.quality is None or pipeline.quality.scope is GateScope.PIPELINE:
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


def _looks(
    objects: "ObjectStore",
    version: HummockVersion,
    relations: "Mapping[str, Relation]",
    plan: GatePlan,
    epoch: int,
    sizes: tuple[int, int],
) -> Iterator[_Look]:
    """Yield the inputs of a suite.

    A small view is read completely. For a large view these are its measures, the changes since it last passed, and all
    rows for the expectations that neither can answer.
    """
    from tussock.jobs.reading.reader import relation_rows, stored_table

    small_view_rows, most_rows = sizes
    suite, relation = plan.suite, plan.relation
    stored, _ = stored_size(version, stored_table(relation).table_id)  # including overwritten rows
    is_large = stored > small_view_rows
    key = suite.key or tuple(_key_columns(relation))
    measures = measures_of(suite, relation)
    if (is_large or suite.maintain) and (
        kept := measured(objects, version, relations, relation, measures, epoch)
    ) is not None:
        yield _Look(plan, SuitePart(f"{suite.view}.maintained", measures.items), None, key, kept)
        rest = suite.without(measures.items)
    else:
        rest = suite
    split = is_large and plan.since is not None
    for part, since in ((rest.by_view, None), (rest.by_row, plan.since)) if split else ((rest.whole, None),):
        if not part.items:
            continue
        rows, whole = None, f"{stored:,} stored rows"
        if since is not None or stored <= most_rows:
            rows = relation_rows(objects, version, relation, epoch, most_rows, since)
            whole = f"more than {most_rows:,} changed rows" if rows is None else key_objection(key, rows) or ""
        scans = is_large and since is None
        if rows is None or whole:
            yield _Look(plan, part, since, key, None, {item_text(item): whole for item in part.items}, scans)
            continue
        reasons = {item_text(item): why for item in part.items if (why := objection(item, rows)) is not None}
        here = tuple(item for item in part.items if item_text(item) not in reasons)
        if here:
            yield _Look(plan, SuitePart(part.name, here), since, key, rows, {}, scans)
        if reasons:
            left = tuple(item for item in part.items if item_text(item) in reasons)
            by_spark = SuitePart(f"{part.name}.by_spark" if here else part.name, left)
            yield _Look(plan, by_spark, since, key, None, reasons, scans)


def _with(view: ViewQuality, look: _Look, found: SuiteFound) -> ViewQuality:
    metrics = (
        msgspec.structs.replace(
            metric,
            earlier=look.plan.earlier.get(metric.expectation, ()),
            place=look.place,
            why=look.reasons.get(metric.expectation, ""),
        )
        for metric in found.metrics
    )
    return msgspec.structs.replace(
        view,
        rows=max(view.rows, found.rows),
        failures=(*view.failures, *found.failures),
        warnings=(*view.warnings, *found.warnings),
        metrics=(*view.metrics, *metrics),
        maintained=view.maintained + (len(look.part.items) if isinstance(look.rows, ViewMeasures) else 0),
        scanned=view.scanned + (len(look.part.items) if look.scans else 0),
    )


def _earlier(suite: Suite, before: QualityRecord | None, epoch: int) -> dict[str, tuple[float, ...]]:
    """Return the values of earlier runs by expectation, for those with a history."""
    found = ((item, earlier_values(suite, item, before, epoch)) for item in suite.items)
    return {expectation_text(item["type"], item.get("kwargs", {})): values for item, values in found if values}


def _key_columns(relation: "Relation") -> list[str]:
    """Return the visible columns of the view's key; all columns if none is visible."""
    from tussock.jobs.reading.reader import key_of

    names = [column.name for column in relation.columns]
    return [names[place] for place in key_of(relation) if place < len(names)] or names
