"""The quality gate: runs Great Expectations suites on the views of one committed epoch.

A few rows are judged in this process if the result is known to equal Spark's (jobs/gate/without_spark.py). Spark judges
all others. Suites are files `<view>.json` in the pipeline's quality folder; jobs/gate/suite.py defines their format.

The result is a `QualityRecord` in the store (record.py), on which a publish depends. Data Docs are written to a folder
outside of the store.

    spark-submit jobs/submitted/quality.py --pipeline FOLDER --epoch N
    python -m tussock.jobs.submitted.quality --pipeline FOLDER --epoch N

Cost: the rows are read once and cached while the suite runs. Each expectation is one or two Spark jobs over them, or
passes in pandas.
"""

import copy
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import msgspec
import pyarrow as pa

from tussock.jobs.gate.history import earlier_values, with_bounds
from tussock.jobs.gate.import_gx import import_gx
from tussock.jobs.gate.index import SuiteResult, add_results
from tussock.jobs.gate.measured import ViewMeasures, measured
from tussock.jobs.gate.measures import SMALL_VIEW_ROWS, measures_of
from tussock.jobs.gate.record import (
    SAMPLE_KEYS,
    Failure,
    Metric,
    QualityRecord,
    ViewQuality,
    passed_before,
    read_record,
    stays_published,
    write_record,
)
from tussock.jobs.gate.rows import MeasuredRows, PandasRows, SparkRows, ViewRows
from tussock.jobs.gate.suite import QualitySuiteError, Suite, SuitePart, read_suites, require_columns
from tussock.jobs.gate.text import expectation_text
from tussock.jobs.gate.without_spark import MOST_ROWS, objection
from tussock.jobs.plan.definition import output_of
from tussock.jobs.settings.pipeline import GateScope, Pipeline
from tussock.statestore.errors import InputError
from tussock.statestore.meta.epoch import epoch_ms
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.version import HummockVersion

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )
    from pyspark.sql import SparkSession

    from tussock.statestore.meta.catalog import Relation
    from tussock.statestore.meta.store import MetaStore
    from tussock.statestore.objectstore.base import ObjectStore

_REPORTS, _TEXT = "only_reports", "expectation"  # keys in `meta`, which GX copies from an expectation to its result


class SuiteFound(NamedTuple):
    """The result of one part of a suite: rows read, failures, warnings and metrics."""

    rows: int
    failures: tuple[Failure, ...]
    warnings: tuple[Failure, ...] = ()
    metrics: tuple[Metric, ...] = ()


_Pages: TypeAlias = "tuple[ValidationResultIdentifier, ExpectationSuiteIdentifier]"


@dataclass(frozen=True, slots=True)
class _Checked:
    """A part of a suite that has run: its entry in the index, without the page, and the ids of its pages."""

    result: SuiteResult
    pages: _Pages


class QualityGate:
    """Runs suites and writes their Data Docs to the folder `docs`, with `index.html` as the start page.

    Use it as a context manager: it writes the pages of all results at the exit, also after an error. Great Expectations
    compiles its templates for each call that writes pages, which takes longer than judging a small view.
    """

    def __init__(self, docs: Path, *, spark: bool = True) -> None:
        """
        Args:
            spark: whether `check` may get SparkRows; without them, importing Great Expectations takes half the time.
        """
        with _quiet():
            import_gx(spark=spark)
            import great_expectations as gx
            from great_expectations.data_context.types.base import ProgressBarsConfig

            docs.mkdir(parents=True, exist_ok=True)
            self._context = gx.get_context(mode="ephemeral")
            self._context.variables.progress_bars = ProgressBarsConfig(globally=False)
            site: Any = {
                "class_name": "SiteBuilder",
                "show_how_to_buttons": False,
                "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs)},
                "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
            }
            for name in self._context.get_site_names():
                self._context.delete_data_docs_site(name)
            self._context.add_data_docs_site(site_name="docs", site_config=site)
            _store_what_can_be_written(self._context.validation_results_store)
        self.docs = docs
        self._checked: list[_Checked] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._checked:
            return
        with _quiet():
            pages: Any = [
                page for one in self._checked for page in one.pages
            ]  # only the new pages, regardless of the history; the index is written by add_results
            self._context.build_data_docs(site_names=["docs"], resource_identifiers=pages, build_index=False)
            add_results(
                self.docs,
                [msgspec.structs.replace(one.result, page=self._address(one.pages[0])) for one in self._checked],
            )

    def check(self, suite: Suite, part: SuitePart, rows: ViewRows, epoch: int, key: Sequence[str]) -> SuiteFound:
        """Judge `rows` of `epoch` by a part of `suite`.

        Args:
            key: the view's own key, which identifies rows in a report unless the suite has a key.

        Raises:
            QualitySuiteError: an expectation is unknown to Great Expectations, or a column is not in the view.
        """
        require_columns(suite, rows.columns)
        with rows.frame() as frame:
            named_by = list(suite.key or key)
            with _quiet():
                result, pages = self._run(suite, part, rows.source(self._context), frame, epoch, named_by)
            reported = [r for r in result.results if _only_reports(r)]
            gates = [r for r in result.results if not _only_reports(r)]
            failures, warnings = (tuple(_failures(results, named_by)) for results in (gates, reported))
            found = SuiteFound(
                rows.count(), failures, warnings, tuple(Metric(_text(r), _number(r)) for r in result.results)
            )
            shown = SuiteResult(
                epoch, part.name, suite.view, found.rows, len(part.items), len(failures), "", len(warnings)
            )
            self._checked.append(_Checked(shown, pages))
            return found

    def _run(
        self, suite: Suite, part: SuitePart, source: Any, frame: Any, epoch: int, key: list[str]
    ) -> "tuple[ExpectationSuiteValidationResult, _Pages]":
        """Run the part; return its result and the ids of its pages."""
        import great_expectations as gx
        from great_expectations.core.run_identifier import RunIdentifier
        from great_expectations.data_context.types.resource_identifiers import (
            ExpectationSuiteIdentifier,
            ValidationResultIdentifier,
        )
        from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

        try:
            # One by one: from a list of dicts, GX would log and skip an unknown expectation.
            configured = [
                ExpectationConfiguration(item["type"], item.get("kwargs", {}), _meta(suite, item))
                for item in part.items
            ]
            expectations = gx.ExpectationSuite(part.name, expectations=[each.to_domain_obj() for each in configured])
        except Exception as err:  # GX raises pydantic's, its own and plain errors here; all mean an invalid file
            raise QualitySuiteError(
                str(suite.file), _first_lines(err), "expectations of Great Expectations with valid arguments"
            ) from err
        context = self._context
        batches = source.add_dataframe_asset(part.name).add_batch_definition_whole_dataframe("epoch")
        definition = context.validation_definitions.add_or_update(
            gx.ValidationDefinition(name=part.name, data=batches, suite=context.suites.add_or_update(expectations))
        )
        run = RunIdentifier(run_name=f"epoch-{epoch}", run_time=datetime.fromtimestamp(epoch_ms(epoch) / 1000, UTC))
        # Counts first: finding the keys of failing rows costs two more Spark jobs per expectation, so only failed
        # suites do.
        # SUMMARY lets Spark stop at the sample; COMPLETE would collect all failing rows on the driver.
        formats: list[dict[str, Any]] = [
            {"result_format": "BASIC", "partial_unexpected_count": SAMPLE_KEYS},
            {"result_format": "SUMMARY", "partial_unexpected_count": SAMPLE_KEYS, "unexpected_index_column_names": key},
        ]
        result = definition.run(batch_parameters={"dataframe": frame}, run_id=run, result_format=formats[0])
        if not result.success:
            result = definition.run(batch_parameters={"dataframe": frame}, run_id=run, result_format=formats[1])
        suite_id = ExpectationSuiteIdentifier(part.name)
        return result, (
            ValidationResultIdentifier(
                expectation_suite_identifier=suite_id, run_id=run, batch_identifier=result.batch_id
            ),
            suite_id,
        )

    def _address(self, page: "ValidationResultIdentifier") -> str:
        """Return the path of a written page, relative to the index."""
        (site,) = self._context.get_docs_sites_urls(resource_identifier=page, site_name="docs")
        return (site["site_url"] or "").removeprefix(f"file://{self.docs.resolve()}/")


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
) -> QualityRecord:
    """Run all suites of a pipeline on its views at a committed epoch, and store the record. Pins the epoch meanwhile.

    A paused view is skipped if its rows were already published, because they have not changed.

    Args:
        spark: called at most once, before any suite runs, if one requires Spark.
        small_view_rows: a view of up to this many stored rows is read completely.
        most_rows_here: up to this many rows are judged in this process, if pandas gives Spark's result; 0: never.

    Raises: QualitySuiteError; SparkNeededError from `spark`, before anything has happened; EpochNotCommittedError,
        EpochExpiredError.
    Cost: a view of up to `small_view_rows` stored rows is read completely. For a larger view, expectations on single
        rows read the changes since the epoch that readers see, if that passed the same suite. Only the other
        expectations read it completely.
    """
    with meta.reading(epoch) as version:
        record = _validate(spark, meta, pipeline, version, epoch, (small_view_rows, most_rows_here))
    write_record(meta.objects, record)
    return record


@dataclass(frozen=True, slots=True)
class GatePlan:
    """The plan for one view.

    Args:
        suite: the suite, with the bounds from its history.
        since: the epoch that readers see, if its rows passed this suite: only later changes are read.
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
        return GatePlan(bounded, relation, seen if passed else None, _earlier(suite, before, epoch))


@dataclass(frozen=True, slots=True)
class _Look:
    """A part of a suite and its input: rows in this process, measures of all rows, or None and a reason for Spark."""

    plan: GatePlan
    part: SuitePart
    since: int | None  # only rows changed after this epoch
    key: tuple[str, ...]
    rows: pa.Table | ViewMeasures | None
    reason: str = ""
    scans: bool = False  # whether it reads all rows of a large view


def _validate(
    spark: SparkStarter,
    meta: "MetaStore",
    pipeline: Pipeline,
    version: HummockVersion,
    epoch: int,
    sizes: tuple[int, int],
) -> QualityRecord:
    relations = {relation.name: relation for relation in version.catalog.at(epoch) if output_of(relation) is not None}
    suites: list[Suite] = []
    broken: dict[str, ViewQuality] = {}
    for suite in read_suites(pipeline.quality):
        with _own_trouble(pipeline, suite, broken):
            _require_fits(suite, relations)
            suites.append(suite)
    still = {name for name, relation in relations.items() if stays_published(version, relation, epoch)}
    plans = _plans(meta, version, relations, [suite for suite in suites if suite.view not in still], epoch)
    looks: list[_Look] = []
    for plan in plans:
        with _own_trouble(pipeline, plan.suite, broken):
            looks += _looks(meta.objects, version, relations, plan, epoch, sizes)
    in_part = {look.plan.suite.view for look in looks if look.since is not None}
    whole = {look.plan.suite.view for look in looks if look.since is None}
    views = {
        suite.view: ViewQuality(
            suite.view, 0, len(suite.items), suite=suite.digest, all_rows=suite.view not in in_part - whole
        )
        for suite in (plan.suite for plan in plans)
    }
    reasons = [f"{look.plan.suite.file.name}: {look.reason}" for look in looks if look.rows is None]
    session = _session(spark(reasons), meta) if reasons else None
    if pipeline.quality is not None and looks:
        with QualityGate(pipeline.quality.docs, spark=session is not None) as gate:
            for look in looks:
                suite = look.plan.suite
                rows = _rows_of(look, session, meta.objects.uri, version, epoch)
                with _own_trouble(pipeline, suite, broken):
                    found = gate.check(suite, look.part, rows, epoch, look.key)
                    views[suite.view] = _with(views[suite.view], look, found)
    return QualityRecord(
        epoch, tuple((views | broken).values()), tuple(suite.view for suite in suites if suite.view in still)
    )


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
            return MeasuredRows(kept)
        case held:
            return PandasRows(held, look.part, look.key)


@contextmanager
def _own_trouble(pipeline: Pipeline, suite: Suite, broken: dict[str, ViewQuality]) -> Iterator[None]:
    """If the gate judges view by view, record an unusable suite as a failure of its view in `broken`; else raise it."""
    try:
        yield
    except QualitySuiteError as err:
        if pipeline.quality is None or pipeline.quality.scope is GateScope.PIPELINE:
            raise
        failure = Failure("a usable suite", str(err).rstrip("."))
        broken[suite.view] = ViewQuality(suite.view, 0, len(suite.items), (failure,), suite=suite.digest)


def _require_fits(suite: Suite, relations: "Mapping[str, Relation]") -> None:
    """Raises QualitySuiteError if a suite is broken, or its view or a column does not exist."""
    if suite.broken is not None:
        raise suite.broken
    if suite.view not in relations:
        raise QualitySuiteError(
            str(suite.file), f"view {suite.view!r}", f"a view of the pipeline: {', '.join(sorted(relations))}"
        )
    require_columns(suite, [column.name for column in relations[suite.view].columns])


def _session(spark: "SparkSession", meta: "MetaStore") -> "SparkSession":
    """Return the session of the suites. It compares instants with texts in the store's time zone."""
    from tussock.jobs.spark.session import sql_session

    return sql_session(spark, meta.settings.time_zone)


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
    stored = _stored_rows(version, stored_table(relation).table_id)
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
        rows, reason = None, f"{stored:,} stored rows"
        if since is not None or stored <= most_rows:
            rows = relation_rows(objects, version, relation, epoch, most_rows, since)
            reason = "" if rows is None else objection(part, key, rows) or ""
        scans = is_large and since is None
        if rows is None or reason:
            yield _Look(plan, part, since, key, None, reason or f"more than {most_rows:,} changed rows", scans)
        else:
            yield _Look(plan, part, since, key, rows, "", scans)


def _with(view: ViewQuality, look: _Look, found: SuiteFound) -> ViewQuality:
    metrics = (
        msgspec.structs.replace(metric, earlier=look.plan.earlier.get(metric.expectation, ()))
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


def _meta(suite: Suite, item: dict[str, Any]) -> dict[str, Any]:
    """Return the data that an expectation carries through Great Expectations to its result: severity and text."""
    text = item.get("text") or expectation_text(item["type"], item.get("kwargs", {}))
    return {**(item.get("meta") or {}), _TEXT: text, **({_REPORTS: True} if suite.reports(item) else {})}


def _carried(result: "ExpectationValidationResult", name: str) -> Any:
    config = result.expectation_config
    return None if config is None else (config.meta or {}).get(name)


def _only_reports(result: "ExpectationValidationResult") -> bool:
    return bool(_carried(result, _REPORTS))


def _text(result: "ExpectationValidationResult") -> str:
    return str(_carried(result, _TEXT))


def _number(result: "ExpectationValidationResult") -> float | None:
    """Return the observed value or the count of failing rows; None if it is not a finite number."""
    found: Mapping[str, Any] = result.result or {}
    value = found.get("observed_value")
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        if "unexpected_count" not in found:
            return None
        value = found["unexpected_count"] or 0  # GX's Spark engine counts None for zero rows
    return float(value) if math.isfinite(value) else None


def _stored_rows(version: HummockVersion, table_id: int) -> int:
    """Return the rows of a state table in all SSTs, including overwritten ones. Reads nothing."""
    sections = (section for level in version.levels for sst in level for section in sst.sections)
    return sum(section.rows for section in sections if section.table_id == table_id)


def _key_columns(relation: "Relation") -> list[str]:
    """Return the visible columns of the view's key; all columns if none is visible."""
    from tussock.jobs.reading.reader import key_of

    names = [column.name for column in relation.columns]
    return [names[place] for place in key_of(relation) if place < len(names)] or names


def _failures(results: Iterable["ExpectationValidationResult"], key: Sequence[str]) -> Iterator[Failure]:
    for result in results:
        if not result.success:
            yield Failure(_text(result), _observed(result), tuple(_failing_keys(result.result, key)))


def _observed(result: "ExpectationValidationResult") -> str:
    found: Mapping[str, Any] = result.result or {}
    if "unexpected_count" in found:
        sample = ", ".join(str(value) for value in found.get("partial_unexpected_list", [])[:SAMPLE_KEYS])
        # An expectation on distinct values counts those, not rows.
        of_all = f" of {found['element_count']} rows" if "element_count" in found else " distinct values"
        return f"{found['unexpected_count']}{of_all}{sample and f', e.g. {sample}'}"
    if "observed_value" in found:
        history, config = _carried(result, "history"), result.expectation_config
        bounds = "" if history is None or config is None else _history_text(history, config.kwargs)
        return f"{found['observed_value']}{bounds}"
    return f"an error: {_exception_text(result.exception_info or {})}"


def _history_text(history: Mapping[str, Any], bounds: Mapping[str, Any]) -> str:
    low, high = bounds["min_value"], bounds["max_value"]
    return f"; the last {history['runs']} runs and a tolerance of {history['within']:.0%} allow {low:g} to {high:g}"


def _exception_text(info: Mapping[str, Any]) -> str:
    """Return the first message of GX's exceptions; GX stores one, or one per metric."""
    if "exception_message" in info:
        return str(info["exception_message"])
    texts = (one.get("exception_message") for one in info.values() if isinstance(one, Mapping))
    return next((str(text) for text in texts if text is not None), "unknown")


def _failing_keys(found: Mapping[str, Any], key: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield each row with its key first and the other columns after it; the order of engines differs."""
    rows = found.get("partial_unexpected_index_list") or found.get("details", {}).get("unexpected_rows") or []
    for row in rows[:SAMPLE_KEYS]:
        if isinstance(row, Mapping):
            in_order = [name for name in key if name in row] + [name for name in row if name not in key]
            yield {str(name): str(row[name]) for name in in_order}


def _first_lines(err: Exception, lines: int = 6) -> str:
    return " ".join(line.strip() for line in str(err).splitlines()[:lines])


def _store_what_can_be_written(store: Any) -> None:
    """Patch a store of results so that it accepts results which Great Expectations creates but cannot write or show."""
    serialize = store.serialize

    def writable(value: Any) -> Any:
        suite = copy.copy(value)
        suite.results = [_writable(result) for result in value.results]
        return serialize(suite)

    store.serialize = writable


def _writable(result: "ExpectationValidationResult") -> "ExpectationValidationResult":
    """Return a result that can be written.

    `success` of quantile expectations is a numpy boolean. A result that counts distinct values has no row count, by
    which its page would divide.
    """
    shown, found = copy.copy(result), result.result or {}
    shown.success = bool(result.success)
    if "unexpected_count" in found and "element_count" not in found:
        values = ", ".join(map(str, found.get("partial_unexpected_list") or ()))
        shown.result = {"observed_value": f"{found['unexpected_count']} distinct values{values and f', e.g. {values}'}"}
    return shown


@contextmanager
def _quiet() -> Iterator[None]:
    """Disable analytics and progress bars of Great Expectations."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at GX's import and for each context
    os.environ["TQDM_DISABLE"] = "1"
    yield
