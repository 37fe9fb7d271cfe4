"""The quality gate: Great Expectations suites over the views of one committed epoch, in Spark.

Suites are files `<view>.json` in the pipeline's quality folder; jobs/gate/suite.py says what is in them.

The outcome is a `QualityRecord` in the store (record.py), which is what a publish goes by. Data Docs go to a folder outside of the store,
for people.

    spark-submit jobs/quality.py --pipeline FOLDER --epoch N        (or python -m jobs.quality …)

Cost: what is looked at is read once and kept while its suite runs; each expectation is one or two Spark jobs over it.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from jobs.gate.index import Result, add_result
from jobs.gate.record import SAMPLE_KEYS, Failure, QualityRecord, ViewQuality, passed_before, read_record, stays_published, write_record
from jobs.gate.suite import Part, QualitySuiteError, Suite, read_suite, require_columns
from jobs.plan.definition import output_of
from jobs.settings.pipeline import Pipeline
from statestore.meta.version import HummockVersion

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from pyspark.sql import DataFrame, SparkSession

    from statestore.meta.catalog import Relation
    from statestore.meta.store import MetaStore

SMALL_VIEW_ROWS = 100_000
"""Up to so many rows a view is looked at whole: one scan is cheaper than finding what changed."""

_NOT_SHOWN = frozenset({"batch_id", "result_format", "catch_exceptions", "meta", "severity"})


class Found(NamedTuple):
    """What a scan found: rows looked at, expectations that failed."""

    rows: int
    failures: tuple[Failure, ...]


class QualityGate:
    """Runs suites and keeps their Data Docs in `docs` (a folder; created when missing, `docs/index.html` is the page to open)."""

    def __init__(self, docs: Path) -> None:
        with _quiet():
            import great_expectations as gx
            from great_expectations.data_context.types.base import ProgressBarsConfig

            docs.mkdir(parents=True, exist_ok=True)
            self._context = gx.get_context(mode="file", project_root_dir=docs / ".great_expectations")
            self._context.variables.progress_bars = ProgressBarsConfig(globally=False)
            site: Any = {
                "class_name": "SiteBuilder",
                "show_how_to_buttons": False,
                "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs)},
                "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
            }
            for name in [name for name in self._context.get_site_names() if name != "docs"]:
                self._context.delete_data_docs_site(name)
            put = self._context.update_data_docs_site if "docs" in self._context.get_site_names() else self._context.add_data_docs_site
            put(site_name="docs", site_config=site)
        self.docs = docs

    def check(self, suite: Suite, part: Part, rows: "DataFrame", epoch: int, key: Sequence[str]) -> Found:
        """Hold `rows`, as they are at `epoch`, against a part of `suite`, and add the outcome to the Data Docs.

        Args:
            key: the view's own key, which names rows in a report; the suite's goes before it.

        Raises:
            QualitySuiteError: an expectation that GX does not know, or a column the view does not have.
        """
        require_columns(suite, rows.columns)
        rows = rows.persist()
        try:
            with _quiet():
                result, page = self._run(suite, part, rows, epoch, list(suite.key or key))
            found = Found(rows.count(), tuple(_failures(result.results, suite.file)))
            add_result(self.docs, Result(epoch, part.name, suite.view, found.rows, len(part.items), len(found.failures), page))
            return found
        finally:
            rows.unpersist()

    def _run(
        self, suite: Suite, part: Part, rows: "DataFrame", epoch: int, key: list[str]
    ) -> "tuple[ExpectationSuiteValidationResult, str]":
        """The result, and its page as the index names it."""
        import great_expectations as gx
        from great_expectations.core.run_identifier import RunIdentifier
        from great_expectations.data_context.types.resource_identifiers import ExpectationSuiteIdentifier, ValidationResultIdentifier
        from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

        try:
            # One by one: given a list of dicts, GX logs and leaves out an expectation that it does not know.
            configured = [ExpectationConfiguration(item["type"], item.get("kwargs", {}), item.get("meta", {})) for item in part.items]
            expectations = gx.ExpectationSuite(part.name, expectations=[each.to_domain_obj() for each in configured])
        except Exception as err:  # GX raises pydantic's, its own and plain errors here; all mean that the file is wrong
            raise QualitySuiteError(str(suite.file), _first_lines(err), "expectations that GX knows, with their arguments") from err
        context = self._context
        source = context.data_sources.add_or_update_spark("views")
        batches = source.add_dataframe_asset(part.name).add_batch_definition_whole_dataframe("epoch")
        definition = context.validation_definitions.add_or_update(
            gx.ValidationDefinition(name=part.name, data=batches, suite=context.suites.add_or_update(expectations))
        )
        run = RunIdentifier(run_name=f"epoch-{epoch}", run_time=datetime.fromtimestamp((epoch >> 16) / 1000, UTC))
        # Counts first: looking for the keys of failing rows costs two more Spark jobs an expectation, so only a suite that failed does.
        # SUMMARY lets Spark stop at the sample; COMPLETE would collect every failing row to the driver.
        formats: list[dict[str, Any]] = [
            {"result_format": "BASIC", "partial_unexpected_count": SAMPLE_KEYS},
            {"result_format": "SUMMARY", "partial_unexpected_count": SAMPLE_KEYS, "unexpected_index_column_names": key},
        ]
        result = definition.run(batch_parameters={"dataframe": rows}, run_id=run, result_format=formats[0])
        if not result.success:
            result = definition.run(batch_parameters={"dataframe": rows}, run_id=run, result_format=formats[1])
        suite_id = ExpectationSuiteIdentifier(part.name)
        result_id = ValidationResultIdentifier(expectation_suite_identifier=suite_id, run_id=run, batch_identifier=result.batch_id)
        pages: Any = [result_id, suite_id]  # these, however long the history is; the index is our own
        context.build_data_docs(site_names=["docs"], resource_identifiers=pages, build_index=False)
        (site,) = context.get_docs_sites_urls(resource_identifier=result_id, site_name="docs")
        address = site["site_url"] or ""
        return result, address.removeprefix(f"file://{self.docs.resolve()}/")


def validate_epoch(
    spark: "SparkSession", meta: "MetaStore", pipeline: Pipeline, epoch: int, small_view_rows: int = SMALL_VIEW_ROWS
) -> QualityRecord:
    """Run all suites of a pipeline over its views at a committed epoch, and keep the record. What they read is pinned meanwhile.

    A paused view whose rows were published before is passed over: nothing of it has changed since.

    Raises: QualitySuiteError; EpochNotCommittedError, EpochExpiredError.
    Cost: a view of up to `small_view_rows` stored rows is read whole. Of a larger one, expectations by row read what changed since the
    published epoch, if that passed this very suite; only the others read it whole.
    """
    with meta.reading(epoch) as version:
        record = _validate(spark, meta, pipeline, version, epoch, small_view_rows)
    write_record(meta.objects, record)
    return record


def _validate(
    spark: "SparkSession", meta: "MetaStore", pipeline: Pipeline, version: HummockVersion, epoch: int, small_view_rows: int
) -> QualityRecord:
    from jobs.catalog.reader import relation_frame, stored_table

    passed = read_record(meta.objects, version.published) if version.published else None
    relations = {relation.name: relation for relation in version.catalog.at(epoch) if output_of(relation) is not None}
    suites = [read_suite(file) for file in (pipeline.quality.suites() if pipeline.quality is not None else ())]
    for suite in suites:
        if suite.view not in relations:
            raise QualitySuiteError(str(suite.file), f"view {suite.view!r}", f"a view of the pipeline: {', '.join(sorted(relations))}")
    gate = QualityGate(pipeline.quality.docs) if pipeline.quality is not None and suites else None
    views = []
    still = tuple(name for name, relation in relations.items() if stays_published(version, relation, epoch))
    for suite in suites:
        if suite.view in still:
            continue
        assert gate is not None
        relation = relations[suite.view]
        small = _stored_rows(version, stored_table(relation).table_id) <= small_view_rows
        split = not small and passed_before(passed, suite)
        views.append(ViewQuality(suite.view, 0, len(suite.items), suite=suite.digest, all_rows=not split or bool(suite.by_view.items)))
        for part, since in ((suite.by_view, None), (suite.by_row, version.published)) if split else ((suite.whole, None),):
            if part.items:
                frame = relation_frame(spark, meta.objects.uri, version, relation, epoch, since)
                views[-1] = _with(views[-1], gate.check(suite, part, frame, epoch, _key_columns(relation)))
    return QualityRecord(epoch, tuple(views), tuple(suite.view for suite in suites if suite.view in still))


def _with(view: ViewQuality, found: Found) -> ViewQuality:
    # The scan of all rows, where there is one, comes first and sees the most.
    return msgspec.structs.replace(view, rows=max(view.rows, found.rows), failures=(*view.failures, *found.failures))


def _stored_rows(version: HummockVersion, table_id: int) -> int:
    """Rows of a state table in all SSTs, overwritten ones included. No reads."""
    sections = (section for level in version.levels for sst in level for section in sst.sections)
    return sum(section.rows for section in sections if section.table_id == table_id)


def _key_columns(relation: "Relation") -> list[str]:
    """The visible columns of the key that the view's rows are stored by; all of them where none is visible."""
    from jobs.catalog.reader import stored_table

    names = [column.name for column in relation.columns]
    return [names[key.column] for key in stored_table(relation).key if key.column < len(names)] or names


def _failures(results: Iterable["ExpectationValidationResult"], file: Path) -> Iterator[Failure]:
    for result in results:
        if result.success:
            continue
        config = result.expectation_config
        if config is None:
            raise QualitySuiteError(str(file), "a result that names no expectation", "GX to say which expectation it evaluated")
        arguments = ", ".join(f"{name}={value!r}" for name, value in config.kwargs.items() if name not in _NOT_SHOWN)
        yield Failure(f"{config.type}({arguments})", _observed(result), tuple(_failing_keys(result.result)))


def _observed(result: "ExpectationValidationResult") -> str:
    found: Mapping[str, Any] = result.result or {}
    if "unexpected_count" in found:
        sample = ", ".join(str(value) for value in found.get("partial_unexpected_list", [])[:SAMPLE_KEYS])
        return f"{found['unexpected_count']} of {found['element_count']} rows, e.g. {sample}"
    if "observed_value" in found:
        return f"{found['observed_value']}"
    return f"an error: {_exception_text(result.exception_info or {})}"


def _exception_text(info: Mapping[str, Any]) -> str:
    """GX keeps one exception, or one per metric; the first message says enough."""
    if "exception_message" in info:
        return str(info["exception_message"])
    texts = (one.get("exception_message") for one in info.values() if isinstance(one, Mapping))
    return next((str(text) for text in texts if text is not None), "unknown")


def _failing_keys(found: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    rows = found.get("partial_unexpected_index_list") or found.get("details", {}).get("unexpected_rows") or []
    for row in rows[:SAMPLE_KEYS]:
        if isinstance(row, Mapping):
            yield {str(name): str(value) for name, value in row.items()}


def _first_lines(err: Exception, lines: int = 6) -> str:
    return " ".join(line.strip() for line in str(err).splitlines()[:lines])


@contextmanager
def _quiet() -> Iterator[None]:
    """GX neither calls home nor reports progress from here."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read when GX is imported and whenever a context is made
    os.environ["TQDM_DISABLE"] = "1"
    yield
