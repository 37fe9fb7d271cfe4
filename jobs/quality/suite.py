"""Quality suites: files with the expectations on the rows of a view or table, in Great Expectations' JSON format.

    {"name": "sales", "meta": {"key": ["shop"]},
     "expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "total"}, "meta": {}}, …]}

`meta` may contain:

- `"key"`: the columns that identify a row in a report. Default: the view's own key.
- `"scan": "full"` or `"maintain": false`: Spark judges all expectations over the rows of the view. Without them, hidden
  views answer the expectations that they can (jobs/quality/measures.py).

An expectation, or `meta` for all of them, may contain `"severity"`. If an expectation fails, "error" (the default;
"critical" in Great Expectations) holds rows back from readers. "warning" ("info") only reports.

An expectation on one number may be compared with its own history. `"meta": {"history": {"runs": 10, "within": 0.3}}`
instead of `min_value` and `max_value` requires that the number is within 30 % of the median of the last ten runs that
readers saw.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from tussock.jobs.settings.tables import QualityScope, QualitySettings
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation, RelationKind

WITH_HISTORY = frozenset(
    {
        "expect_column_max_to_be_between",
        "expect_column_mean_to_be_between",
        "expect_column_median_to_be_between",
        "expect_column_min_to_be_between",
        "expect_column_proportion_of_non_null_values_to_be_between",
        "expect_column_proportion_of_unique_values_to_be_between",
        "expect_column_stdev_to_be_between",
        "expect_column_sum_to_be_between",
        "expect_column_unique_value_count_to_be_between",
        "expect_table_row_count_to_be_between",
    }
)
"""Expectations on one number, which may be compared with its history."""

MOST_RUNS = 1_000

_HISTORY = (
    f'{{"runs": 1 to {MOST_RUNS}, "within": a share such as 0.3}} instead of min_value and max_value, '
    "for an expectation on one number: " + ", ".join(sorted(WITH_HISTORY))
)
_SEVERITY = '"error" or "warning" (or the names of Great Expectations, "critical" or "info")'
_FORM = 'a JSON object with a list "expectations" of {"type": …, "kwargs": {…}}'


class QualitySuiteError(InputError):
    """A suite file cannot be used."""

    file: str
    finding: str
    expected: str

    def __str__(self) -> str:
        return f"{self.file}: found {self.finding}, expected {self.expected}."


BLOCKS = frozenset({"error", "critical"})
REPORTS = frozenset({"warning", "info"})


@dataclass(frozen=True, slots=True)
class SuitePart:
    """Expectations that read the same rows. `name` is used in the Data Docs; `items` are in the order of the file."""

    name: str
    items: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """The suite of one view. `digest` changes with the file."""

    view: str
    file: Path
    items: tuple[dict[str, Any], ...]
    key: tuple[str, ...] | None  # columns that identify a row in a report; None: the view's own key
    full_scan: bool
    digest: str
    text: str  # the whole document in canonical form
    severity: str = "error"  # of expectations without their own
    maintain: bool | None = None  # False: no hidden views
    broken: QualitySuiteError | None = None  # the reason why the file is unusable; such a suite has no items

    def reports(self, item: dict[str, Any]) -> bool:
        """Return whether a failure of this expectation is only reported."""
        return item.get("severity", self.severity) in REPORTS

    @property
    def whole(self) -> SuitePart:
        """All expectations."""
        return SuitePart(self.view, self.items)


def read_suite(file: Path) -> Suite:
    """Read the suite in `file`, which is named after its view. Raises QualitySuiteError."""
    try:
        data = file.read_bytes()
        document = json.loads(data)
    except (OSError, ValueError, RecursionError) as err:
        raise QualitySuiteError(str(file), str(err), _FORM) from err
    if not isinstance(document, dict) or not isinstance(document.get("expectations"), list):
        raise QualitySuiteError(str(file), f"a {type(document).__name__} without this list", _FORM)
    for number, item in enumerate(document["expectations"], 1):
        if (
            not isinstance(item, dict)
            or not isinstance(item.get("type"), str)
            or not isinstance(item.get("kwargs", {}), dict)
        ):
            raise QualitySuiteError(str(file), f"expectation {number}: {json.dumps(item)[:100]}", _FORM)
        _require_meta(file, f"expectation {number}: ", item)
        if not _is_severity(item.get("severity", "error")):
            raise QualitySuiteError(
                str(file), f"expectation {number}: severity {json.dumps(item['severity'])}", _SEVERITY
            )
        if (objection := _wrong_history(item)) is not None:
            raise QualitySuiteError(str(file), f"expectation {number}: {objection}", _HISTORY)
    _require_meta(file, "", document)
    meta = document.get("meta") or {}
    if not _is_severity(meta.get("severity", "error")):
        raise QualitySuiteError(str(file), f"meta.severity {json.dumps(meta['severity'])}", _SEVERITY)
    key = meta.get("key")
    if key is not None and not (isinstance(key, list) and key and all(isinstance(column, str) for column in key)):
        raise QualitySuiteError(str(file), f"meta.key {json.dumps(key)}", "a list of column names")
    if meta.get("scan") not in (None, "full"):
        raise QualitySuiteError(str(file), f"meta.scan {json.dumps(meta['scan'])}", '"full" or no value')
    if not isinstance(meta.get("maintain", True), bool):
        raise QualitySuiteError(str(file), f"meta.maintain {json.dumps(meta['maintain'])}", "true, false or no value")
    digest, text = hashlib.sha256(data).hexdigest(), json.dumps(document, indent=1, sort_keys=True)
    items, full_scan = tuple(document["expectations"]), meta.get("scan") == "full"
    key = None if key is None else tuple(key)
    return Suite(
        file.stem, file, items, key, full_scan, digest, text, meta.get("severity", "error"), meta.get("maintain")
    )


def _require_meta(file: Path, where: str, holder: dict[str, Any]) -> None:
    if not isinstance(meta := holder.get("meta") or {}, dict):
        raise QualitySuiteError(str(file), f"{where}meta {json.dumps(meta)[:100]}", "a JSON object")


def _is_severity(value: object) -> bool:
    return isinstance(value, str) and value in BLOCKS | REPORTS


def read_suites(quality: QualitySettings | None) -> list[Suite]:
    """Read the suites of a pipeline. Raises QualitySuiteError for an unusable file.

    If the quality check judges view by view, an unusable file only affects its view: its suite is `broken`.
    """
    if quality is None:
        return []
    return [
        read_suite(file) if quality.scope is QualityScope.PIPELINE else _whole_or_broken(file)
        for file in quality.list_suites()
    ]


def _whole_or_broken(file: Path) -> Suite:
    try:
        return read_suite(file)
    except QualitySuiteError as err:
        return Suite(file.stem, file, (), None, False, hashlib.sha256(str(err).encode()).hexdigest(), "", broken=err)


def relation_of(suite: Suite, relations: Mapping[str, Relation]) -> Relation:
    """Return the view or table that a suite judges. Raises QualitySuiteError if it does not exist."""
    relation = relations.get(suite.view)
    if relation is None or relation.kind not in (RelationKind.VIEW, RelationKind.TABLE):
        names = sorted(
            r.name
            for r in relations.values()
            if r.kind in (RelationKind.VIEW, RelationKind.TABLE) and not r.is_internal
        )
        near = get_close_matches(suite.view, names, n=1)
        expected = f"{near[0]!r}, the nearest name" if near else f"one of {', '.join(names)}"
        raise QualitySuiteError(str(suite.file), f"a suite of {suite.view!r}, which is no view or table", expected)
    return relation


class History(NamedTuple):
    """The number of runs of an expectation's history, and the allowed relative distance from their median."""

    runs: int
    within: float


def history_of(item: Mapping[str, Any]) -> History | None:
    """Return an expectation's history setting, if any. Requires: the suite was read by `read_suite`."""
    history = (item.get("meta") or {}).get("history")
    return None if history is None else History(history["runs"], history["within"])


def _wrong_history(item: Mapping[str, Any]) -> str | None:
    if (history := (item.get("meta") or {}).get("history")) is None:
        return None
    if not isinstance(history, dict) or history.keys() != {"runs", "within"}:
        return f"history {json.dumps(history)}"
    runs, within = history["runs"], history["within"]
    if isinstance(runs, bool) or not isinstance(runs, int) or not 1 <= runs <= MOST_RUNS:
        return f"history.runs {json.dumps(runs)}"
    if isinstance(within, bool) or not isinstance(within, int | float) or not within >= 0:
        return f"history.within {json.dumps(within)}"
    if item["type"] not in WITH_HISTORY:
        return f"history of {item['type']}"
    bounds = sorted({"min_value", "max_value"} & item.get("kwargs", {}).keys())
    return f"history together with {bounds[0]}" if bounds else None
