"""Runs the suites of views with Great Expectations, and writes their Data Docs.

Data Docs are written to a folder outside of the store, or not at all.

Cost: each expectation is one or two Spark jobs over rows that are read once, or a pass in this process.
"""

import copy
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import msgspec

from tussock.jobs.quality.import_gx import import_gx
from tussock.jobs.quality.index import SuiteResult, add_results
from tussock.jobs.quality.record import SAMPLE_KEYS, Failure, Metric
from tussock.jobs.quality.rows import ViewRows
from tussock.jobs.quality.suite import QualitySuiteError, Suite, SuitePart
from tussock.jobs.quality.text import item_text
from tussock.statestore.meta.epoch import epoch_ms, time_of_ms

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )


_REPORTS, _TEXT = "only_reports", "expectation"  # keys in `meta`, which GX copies from an expectation to its result


class SuiteFound(NamedTuple):
    """The result of one part of a suite: rows read, failures, warnings and metrics."""

    rows: int
    failures: tuple[Failure, ...]
    warnings: tuple[Failure, ...] = ()
    metrics: tuple[Metric, ...] = ()


_MOST_LINES = 6  # of an error
_Pages: TypeAlias = "tuple[ValidationResultIdentifier, ExpectationSuiteIdentifier]"


@dataclass(frozen=True, slots=True)
class _Checked:
    """A part of a suite that has run: its entry in the index, without the page, and the ids of its pages."""

    result: SuiteResult
    pages: _Pages


class SuiteRuns:
    """Runs suites and writes their Data Docs to the folder `docs`, if given, with `index.html` as the start page.

    Use it as a context manager: it writes the pages of all results at the exit, also after an error. Great Expectations
    compiles its templates for each call that writes pages, which takes longer than judging a small view.
    """

    def __init__(self, docs: Path | None, *, spark: bool = True) -> None:
        """
        Args:
            spark: whether `check` may get SparkRows; without them, importing Great Expectations takes half the time.
        """
        with _quiet():
            import_gx(spark=spark)
            import great_expectations as gx
            from great_expectations.data_context.types.base import ProgressBarsConfig

            self._context = gx.get_context(mode="ephemeral")
            self._context.variables.progress_bars = ProgressBarsConfig(globally=False)
            for name in self._context.get_site_names():
                self._context.delete_data_docs_site(name)
            if docs is not None:
                docs.mkdir(parents=True, exist_ok=True)
                site: Any = {
                    "class_name": "SiteBuilder",
                    "show_how_to_buttons": False,
                    "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs)},
                    "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
                }
                self._context.add_data_docs_site(site_name="docs", site_config=site)
            _store_what_can_be_written(self._context.validation_results_store)
        self.docs = docs
        self._checked: list[_Checked] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.docs is None or not self._checked:
            return
        with _quiet():
            pages: Any = [
                page for one in self._checked for page in one.pages
            ]  # only the new pages, regardless of the history; the index is written by add_results
            self._context.build_data_docs(site_names=["docs"], resource_identifiers=pages, build_index=False)
            add_results(
                self.docs,
                [
                    msgspec.structs.replace(one.result, page=self._address(self.docs, one.pages[0]))
                    for one in self._checked
                ],
            )

    def check(self, suite: Suite, part: SuitePart, rows: ViewRows, epoch: int, key: Sequence[str]) -> SuiteFound:
        """Judge `rows` of `epoch` by a part of `suite`.

        Args:
            key: the view's own key, which identifies rows in a report unless the suite has a key.

        Raises:
            QualitySuiteError: an expectation is unknown to Great Expectations, or a column is not in the view.
        """
        with rows.frame() as frame:
            named_by = list(suite.key or key)
            with _quiet():
                result, pages = self._run(suite, part, rows.source(self._context), frame, epoch, named_by)
            reported = [r for r in result.results if _only_reports(r)]
            blocking = [r for r in result.results if not _only_reports(r)]
            failures, warnings = (tuple(_failures(results, named_by)) for results in (blocking, reported))
            verdict = SuiteFound(
                rows.count(), failures, warnings, tuple(Metric(_text(r), _number(r)) for r in result.results)
            )
            shown = SuiteResult(
                epoch, part.name, suite.view, verdict.rows, len(part.items), len(failures), "", len(warnings)
            )
            self._checked.append(_Checked(shown, pages))
            return verdict

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
        run = RunIdentifier(run_name=f"epoch-{epoch}", run_time=time_of_ms(epoch_ms(epoch)))
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

    def _address(self, docs: Path, page: "ValidationResultIdentifier") -> str:
        """Return the path of a written page, relative to the index."""
        (site,) = self._context.get_docs_sites_urls(resource_identifier=page, site_name="docs")
        return (site["site_url"] or "").removeprefix(f"file://{docs.resolve()}/")


def _meta(suite: Suite, item: dict[str, Any]) -> dict[str, Any]:
    """Return the data that an expectation carries through Great Expectations to its result: severity and text."""
    return {**(item.get("meta") or {}), _TEXT: item_text(item), **({_REPORTS: True} if suite.reports(item) else {})}


def _carried(result: "ExpectationValidationResult", name: str) -> Any:
    config = result.expectation_config
    return None if config is None else (config.meta or {}).get(name)


def _only_reports(result: "ExpectationValidationResult") -> bool:
    return bool(_carried(result, _REPORTS))


def _text(result: "ExpectationValidationResult") -> str:
    return str(_carried(result, _TEXT))


def _number(result: "ExpectationValidationResult") -> float | None:
    """Return the observed value or the count of failing rows; None if it is not a finite number."""
    details: Mapping[str, Any] = result.result or {}
    value = details.get("observed_value")
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        if "unexpected_count" not in details:
            return None
        value = details["unexpected_count"] or 0  # GX's Spark engine counts None for zero rows
    return float(value) if math.isfinite(value) else None


def _failures(results: Iterable["ExpectationValidationResult"], key: Sequence[str]) -> Iterator[Failure]:
    for result in results:
        if not result.success:
            yield Failure(_text(result), _observed(result), tuple(_failing_keys(result.result, key)))


def _observed(result: "ExpectationValidationResult") -> str:
    details: Mapping[str, Any] = result.result or {}
    if "unexpected_count" in details:
        sample = ", ".join(str(value) for value in details.get("partial_unexpected_list", [])[:SAMPLE_KEYS])
        # An expectation on distinct values counts those, not rows.
        of_all = f" of {details['element_count']} rows" if "element_count" in details else " distinct values"
        return f"{details['unexpected_count']}{of_all}{sample and f', e.g. {sample}'}"
    if "observed_value" in details:
        history, config = _carried(result, "history"), result.expectation_config
        bounds = "" if history is None or config is None else _history_text(history, config.kwargs)
        return f"{details['observed_value']}{bounds}"
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


def _failing_keys(details: Mapping[str, Any], key: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield each row with its key first and the other columns after it; the order of engines differs."""
    rows = details.get("partial_unexpected_index_list") or details.get("details", {}).get("unexpected_rows") or []
    for row in rows[:SAMPLE_KEYS]:
        if isinstance(row, Mapping):
            in_order = [name for name in key if name in row] + [name for name in row if name not in key]
            yield {str(name): str(row[name]) for name in in_order}


def _first_lines(err: Exception) -> str:
    return " ".join(line.strip() for line in str(err).splitlines()[:_MOST_LINES])


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
    shown, details = copy.copy(result), result.result or {}
    shown.success = bool(result.success)
    if "unexpected_count" in details and "element_count" not in details:
        values = ", ".join(map(str, details.get("partial_unexpected_list") or ()))
        shown.result = {
            "observed_value": f"{details['unexpected_count']} distinct values{values and f', e.g. {values}'}"
        }
    return shown


@contextmanager
def _quiet() -> Iterator[None]:
    """Disable analytics and progress bars of Great Expectations."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at GX's import and for each context
    os.environ["TQDM_DISABLE"] = "1"
    yield
