"""Checks a suite against its view before anything runs: types, arguments, columns and values of its expectations.

The installed Great Expectations defines the known expectations and their arguments. They are read from its files,
because importing it takes a second. Without it, types and arguments are not checked.

Cost: one small file per type of expectation in the suite.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import date, datetime
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tussock.jobs.quality.suite import QualitySuiteError, Suite, history_of
from tussock.statestore.meta.catalog import Relation

_COLUMNS = ("column", "column_A", "column_B")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})
_OF_VALUES = frozenset(
    {
        "expect_column_max_to_be_between",
        "expect_column_min_to_be_between",
        "expect_column_values_to_be_between",
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_not_be_in_set",
        "expect_column_distinct_values_to_be_in_set",
        "expect_column_distinct_values_to_contain_set",
        "expect_column_distinct_values_to_equal_set",
        "expect_column_most_common_value_to_be_in_set",
    }
)
"""Expectations whose bounds or sets are values of their column."""
_OF_NUMBERS = frozenset(
    {
        "expect_column_mean_to_be_between",
        "expect_column_median_to_be_between",
        "expect_column_stdev_to_be_between",
        "expect_column_sum_to_be_between",
        "expect_column_quantile_values_to_be_between",
        "expect_column_value_z_scores_to_be_less_than",
    }
)
"""Expectations on columns of numbers."""
_OF_TEXT = frozenset(
    {
        "expect_column_value_lengths_to_be_between",
        "expect_column_value_lengths_to_equal",
        "expect_column_values_to_match_regex",
        "expect_column_values_to_not_match_regex",
        "expect_column_values_to_match_like_pattern",
        "expect_column_values_to_not_match_like_pattern",
    }
)
"""Expectations on columns of strings."""


def require_valid(suite: Suite, relation: Relation) -> None:
    """Raise QualitySuiteError for the first expectation that cannot be evaluated, with the nearest valid name."""
    types = {column.name: column.type for column in relation.columns}
    for column in suite.key or ():
        _require_column(suite, "meta.key: ", column, types)
    for number, item in enumerate(suite.items, 1):
        where = f"expectation {number}: "
        _require_known(suite, where, item)
        arguments = item.get("kwargs", {})
        for name in _COLUMNS:
            if name in arguments and item["type"] != "expect_column_to_exist":
                _require_column(suite, where, arguments[name], types)
        listed = arguments.get("column_list", arguments.get("column_set", ()))
        if not isinstance(listed, list | tuple):
            raise QualitySuiteError(str(suite.file), f"{where}column_list {_shown(listed)}", "a list of column names")
        if not item["type"].startswith("expect_table_columns"):
            for column in listed:
                _require_column(suite, where, column, types)
        for finding, expected in _wrong_values(item, types):
            raise QualitySuiteError(str(suite.file), f"{where}{finding}", expected)


def _require_known(suite: Suite, where: str, item: Mapping[str, Any]) -> None:
    """Require a known type with known arguments, none of which is missing."""
    known = _known_types()
    kind, arguments = item["type"], item.get("kwargs", {})
    if not known:
        return
    if kind not in known:
        raise QualitySuiteError(
            str(suite.file), f"{where}type {kind!r}", _nearest(kind, known, "an expectation of Great Expectations")
        )
    if (signature := _arguments_of(kind)) is None:
        return
    accepted, required = signature
    for name in arguments:
        if name not in accepted:
            raise QualitySuiteError(
                str(suite.file),
                f"{where}argument {name!r} of {kind}",
                _nearest(name, accepted, f"one of {', '.join(sorted(accepted - _COMMON))}"),
            )
    for name in required:
        if name not in arguments:
            raise QualitySuiteError(
                str(suite.file), f"{where}{kind} without {name!r}", f"this argument in {_shown(dict(arguments))}"
            )


def _require_column(suite: Suite, where: str, column: object, types: Collection[str]) -> None:
    if not isinstance(column, str) or column not in types:
        expected = _nearest(str(column), types, f"one of its columns: {', '.join(types)}")
        raise QualitySuiteError(str(suite.file), f"{where}column {column!r}, which {suite.view} lacks", expected)


def _nearest(name: str, known: Collection[str], otherwise: str) -> str:
    near = get_close_matches(name, sorted(known), n=1)
    return f"{near[0]!r}, the nearest known name" if near else otherwise


# --- the expectations of the installed Great Expectations ---------------------------------------------------------

_COMMON = frozenset({"batch_id", "result_format", "catch_exceptions", "meta", "description", "severity", "notes"})


@lru_cache
def _folder() -> Path | None:
    """Return the folder with the modules of all expectations; None if Great Expectations is not installed."""
    spec = find_spec("great_expectations")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "expectations" / "core"
    return folder if folder.is_dir() else None


@lru_cache
def _known_types() -> frozenset[str]:
    folder = _folder()
    return frozenset() if folder is None else frozenset(f.stem for f in folder.glob("*.py") if f.stem != "__init__")


@lru_cache
def _schemas() -> Mapping[str, Path]:
    """Return the file with the arguments of each expectation, by type."""
    folder = _folder()
    files = () if folder is None else (folder / "schemas").glob("*.json")
    return {_WORDS.sub("_", file.stem).lower(): file for file in files}


@lru_cache
def _arguments_of(kind: str) -> tuple[frozenset[str], tuple[str, ...]] | None:
    """Return the accepted and the required arguments of an expectation; None if unknown."""
    if (file := _schemas().get(kind)) is None:
        return None
    try:
        schema = json.loads(file.read_text())
        accepted = frozenset(schema["properties"]) - {"id", "metadata", "rendered_content"}
        required = tuple(name for name in schema.get("required", ()) if name in accepted)
    except (OSError, ValueError, KeyError):
        return None
    return accepted, required


# --- values -------------------------------------------------------------------------------------------------------


def _wrong_values(item: Mapping[str, Any], types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each argument that cannot be meant, with the expected one."""
    kind, arguments = item["type"], item.get("kwargs", {})
    mostly = arguments.get("mostly")
    if mostly is not None and (not _is_number(mostly) or not 0 <= mostly <= 1):
        yield f"mostly {_shown(mostly)}", "a share of the rows, from 0 to 1"
    for name in ("strict_min", "strict_max", "or_equal", "ties_okay"):
        if not isinstance(arguments.get(name, False), bool | None):
            yield f"{name} {_shown(arguments[name])}", "true or false"
    column = arguments.get("column")
    type_ = types.get(column, "") if isinstance(column, str) else ""
    family = type_.partition("(")[0]
    if kind in _OF_NUMBERS and family and family not in _NUMBERS:
        yield f"column {column!r} of type {type_}", "a column of numbers"
    if kind in _OF_TEXT and family and family != "string":
        yield f"column {column!r} of type {type_}", "a column of strings"
    if kind.endswith("_between") and "quantile" not in kind:
        yield from _wrong_bounds(item, column, type_)
    if "value_set" in arguments:
        values = arguments["value_set"]
        if not isinstance(values, list):
            yield f"value_set {_shown(values)}", "a list of values"
        elif kind in _OF_VALUES:
            for value in values:
                if value is not None and not _fits(value, family):
                    yield f"value {_shown(value)} for column {column!r} of type {type_}", _values_of(family)


def _wrong_bounds(item: Mapping[str, Any], column: object, type_: str) -> Iterator[tuple[str, str]]:
    arguments, family = item.get("kwargs", {}), type_.partition("(")[0]
    bounds = {name: arguments[name] for name in ("min_value", "max_value") if arguments.get(name) is not None}
    if not bounds and history_of(item) is None:
        yield f"{item['type']} without a bound", "min_value or max_value"
    for name, bound in bounds.items():
        if isinstance(bound, dict):  # a parameter or an instant of Great Expectations
            return
        if item["type"] in _OF_VALUES:
            if family and not _fits(bound, family):
                yield f"{name} {_shown(bound)} for column {column!r} of type {type_}", _values_of(family)
        elif not _is_number(bound):
            yield f"{name} {_shown(bound)}", "a number"
    low, high = bounds.get("min_value"), bounds.get("max_value")
    if type(low) is type(high) and low is not None and low > high:
        yield f"min_value {_shown(low)} above max_value {_shown(high)}", "bounds with values between them"


def _fits(value: object, family: str) -> bool:
    """Return whether a value of a suite can be compared with a column of this type."""
    if family in _NUMBERS:
        return _is_number(value)
    if family == "boolean":
        return isinstance(value, bool)
    if family == "string":
        return isinstance(value, str)
    if family in ("date", "timestamp", "timestamp_ntz"):
        return isinstance(value, str) and _is_moment(value)
    return True


def _values_of(family: str) -> str:
    if family in _NUMBERS:
        return "a number"
    return {"boolean": "true or false", "string": "a string"}.get(family, "a date or time such as '2026-01-31'")


def _is_moment(text: str) -> bool:
    for parse in (date.fromisoformat, datetime.fromisoformat):
        try:
            parse(text)
        except ValueError:
            continue
        return True
    return False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return json.dumps(value, default=str)[:100]
