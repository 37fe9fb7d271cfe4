"""The expectations that this process can judge over Arrow rows, with the result of Great Expectations' Spark engine.

200 rows do not need a JVM, and one unusual expectation does not need it for the others. An expectation is judged here
(jobs/quality/row_metrics.py) if its type, its arguments and its columns' types are on the list below, and by Spark
otherwise. Left to Spark are regular expressions that Java and RE2 read differently, queries and conditions outside of
the grammar of jobs/quality/conditions.py, nested and binary columns, and values of another type than their column.

Tests compare records and pages of both engines for every expectation of the list, with passing and with failing rows.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from tussock.jobs.kernels.patterns import pattern_objection
from tussock.jobs.quality.conditions import decimal_digits, filter_of, have_common_type
from tussock.jobs.quality.row_metrics import condition_of_query
from tussock.statestore.types import type_name

MOST_ROWS = 100_000
"""Maximum number of rows that this process judges."""

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_NUMBERS = _INTEGERS | {"float", "double", "decimal"}
_MEANS = _NUMBERS - {"tinyint", "smallint"}  # types for which Great Expectations computes a mean
_TEXT = frozenset({"string"})
_KEYS = _INTEGERS | _TEXT
_HASHED = _KEYS | {"boolean", "date", "decimal", "timestamp", "timestamp_ntz"}
_SHOWN = _HASHED | {"float", "double"}  # types whose values have the same text in reports

Objection = str | None
Judge = Callable[[pa.Table, Mapping[str, Any]], Objection]
"""Returns why an expectation with these arguments requires Spark; None if this process finds the same."""


def objection(item: Mapping[str, Any], rows: pa.Table) -> Objection:
    """Return why an expectation requires Spark; None if this process finds the same.

    Args:
        rows: all rows that it reads.

    Requires: the rows have the suite's columns.
    """
    arguments = dict(item.get("kwargs", {}))
    if (known := _JUDGES.get(item["type"])) is None:
        return "it is not among the expectations that are known to be judged alike without Spark"
    allowed, judge = known
    mostly = arguments.pop("mostly", 1)
    if isinstance(mostly, bool) or not isinstance(mostly, int | float) or not 0 < mostly <= 1:
        return f"mostly {mostly!r}"
    condition, parser = arguments.pop("row_condition", None), arguments.pop("condition_parser", None)
    if condition is not None and (
        parser not in ((None,) if isinstance(condition, Mapping) else ("spark",))
        or filter_of(condition, rows.schema) is None
    ):
        return f"row_condition {condition!r}"
    if unknown := sorted(arguments.keys() - allowed):
        return f"argument {unknown[0]!r}"
    return judge(rows, arguments)


def key_objection(key: Sequence[str], rows: pa.Table) -> Objection:
    """Return why rows cannot be named by these columns in a report without Spark; None if they can."""
    return next((f"key {name!r}: {why}" for name in key if (why := _of_column(rows, name, _SHOWN)) is not None), None)


def _of_column(rows: pa.Table, name: object, kinds: frozenset[str]) -> Objection:
    """Return why a column's values require Spark."""
    if not isinstance(name, str) or name not in rows.column_names:
        return f"column {name!r}"
    kind = type_name(rows[name].type)
    return None if kind.partition("(")[0] in kinds else f"column {name!r} is {kind}"


def _column(kinds: frozenset[str]) -> Judge:
    return lambda rows, given: _of_column(rows, given.get("column"), kinds)


def _between(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    column = given.get("column")
    if _of_column(rows, column, frozenset({"date"})) is None:
        return _bounds(given, _is_date)
    return _of_column(rows, column, _NUMBERS) or _bounds(given, is_number)


def _lengths(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    return _of_column(rows, given.get("column"), _TEXT) or _bounds(given, _is_whole)


def _length(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    wrong = None if _is_whole(given.get("value")) else f"value {given.get('value')!r}"
    return _of_column(rows, given.get("column"), _TEXT) or wrong


def _row_count(_: pa.Table, given: Mapping[str, Any]) -> Objection:
    return _bounds(given, is_number)


def _exact_row_count(_: pa.Table, given: Mapping[str, Any]) -> Objection:
    return None if _is_whole(given.get("value")) else f"value {given.get('value')!r}"


def _statistic(kinds: frozenset[str]) -> Judge:
    """One number of a column that contains a value."""

    def judge(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
        column = given.get("column")
        if (why := _of_column(rows, column, kinds) or _bounds(given, is_number)) is not None:
            return why
        # A condition may leave no value although the column has some.
        no_value = rows[column].null_count == rows.num_rows or "row_condition" in given
        return f"column {column!r} contains no value" if no_value else None

    return judge


def _count(kinds: frozenset[str]) -> Judge:
    """A count or a share of a column."""
    return lambda rows, given: _of_column(rows, given.get("column"), kinds) or _bounds(given, is_number)


def _quantiles(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    column, ranges = given.get("column"), given.get("quantile_ranges")
    if (why := _of_column(rows, column, _NUMBERS)) is not None:
        return why
    if not isinstance(ranges, Mapping) or given.get("allow_relative_errors", False) is not False:
        return "quantile_ranges or allow_relative_errors"
    shares, bounds = ranges.get("quantiles"), ranges.get("value_ranges")
    if not isinstance(shares, list) or not isinstance(bounds, list) or len(shares) != len(bounds) or not shares:
        return f"quantile_ranges {ranges!r}"
    if not all(is_number(share) and 0 <= share <= 1 for share in shares):
        return f"quantiles {shares!r}"
    return f"column {column!r} contains no value" if rows[column].null_count == rows.num_rows else None


def _bounds(given: Mapping[str, Any], fits: Callable[[object], bool]) -> Objection:
    low, high = given.get("min_value"), given.get("max_value")
    if low is None and high is None:
        return "no bound"
    for bound in (low, high):
        if bound is not None and not fits(bound):
            return f"bound {bound!r}"
    if low is not None and high is not None and low > high:
        return "no value is between its bounds"
    return next(
        (
            f"{name} {given[name]!r}"
            for name in ("strict_min", "strict_max")
            if not isinstance(given.get(name, False), bool)
        ),
        None,
    )


def is_number(value: object) -> bool:
    """Return whether a value is a finite number that a double represents exactly."""
    return math.isfinite(value) if isinstance(value, float) else _is_whole(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _is_date(value: object) -> bool:
    try:
        return isinstance(value, str) and len(value) == 10 and bool(date.fromisoformat(value))
    except ValueError:
        return False


def _in_set(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    return _set_of(_KEYS | {"decimal"}, rows, given)


def _distinct_in_set(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    return _set_of(_KEYS, rows, given)


def _set_of(kinds: frozenset[str], rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    column, values = given.get("column"), given.get("value_set")
    if (why := _of_column(rows, column, kinds)) is not None:
        return why
    if not isinstance(values, list) or not values:
        return "an empty set"
    is_text = type_name(rows[column].type) == "string"
    fits = all(isinstance(value, str) if is_text else _is_whole(value) for value in values)
    return None if fits else f"values of another type than column {column!r}"


def _most_common(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    ties = given.get("ties_okay")
    return _distinct_in_set(rows, given) or (None if ties is None or isinstance(ties, bool) else f"ties_okay {ties!r}")


def _matches(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    pattern = given.get("regex")
    if (why := _of_column(rows, given.get("column"), _TEXT)) is not None:
        return why
    return pattern_objection(pattern) if isinstance(pattern, str) else f"regex {pattern!r}"


def _pair(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    pair = [given.get("column_A"), given.get("column_B")]
    return _columns(rows, pair, _INTEGERS | {"double", "decimal"}) or _too_wide(rows, pair)


def _too_wide(rows: pa.Table, pair: Sequence[Any]) -> Objection:
    """Object to two numbers without a common decimal type: Spark rounds them to compare them."""
    kinds = [rows[name].type for name in pair]
    if any(pa.types.is_float64(kind) for kind in kinds) or have_common_type(*map(decimal_digits, kinds)):
        return None
    return f"columns {pair!r} have no common decimal type"


def _equal_pair(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    pair = [given.get("column_A"), given.get("column_B")]
    are_texts = _of_column(rows, pair[0], _TEXT) is None
    return _columns(rows, pair, _TEXT if are_texts else _INTEGERS)


def _compound(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    names = given.get("column_list")
    return _columns(rows, names, _HASHED) if isinstance(names, list) and len(names) > 1 else f"columns {names!r}"


def _columns(rows: pa.Table, names: Sequence[Any], kinds: frozenset[str]) -> Objection:
    wrong: Iterator[str] = (why for name in names if (why := _of_column(rows, name, kinds)) is not None)
    return next(wrong, None)


def _any_table(_: pa.Table, given: Mapping[str, Any]) -> Objection:
    return None


def _query(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    condition = condition_of_query(given.get("unexpected_rows_query"))
    known = condition is not None and filter_of(condition, rows.schema) is not None
    return None if known else "its query is not SELECT * FROM {batch} WHERE with simple comparisons"


_COLUMN = frozenset({"column"})
_BOUNDS = frozenset({"column", "min_value", "max_value", "strict_min", "strict_max"})
_SET = frozenset({"column", "value_set"})
_PAIR = frozenset({"column_A", "column_B", "ignore_row_if"})
_LIST = frozenset({"column_list", "ignore_row_if"})

_JUDGES: Mapping[str, tuple[frozenset[str], Judge]] = {
    "expect_column_values_to_be_null": (_COLUMN, _column(_SHOWN)),
    "expect_column_values_to_not_be_null": (_COLUMN, _column(_SHOWN)),
    "expect_column_values_to_be_between": (_BOUNDS, _between),
    "expect_column_values_to_be_in_set": (_SET, _in_set),
    "expect_column_values_to_not_be_in_set": (_SET, _in_set),
    "expect_column_values_to_be_unique": (_COLUMN, _column(_HASHED)),
    "expect_column_values_to_match_regex": (_COLUMN | {"regex"}, _matches),
    "expect_column_values_to_not_match_regex": (_COLUMN | {"regex"}, _matches),
    "expect_column_value_lengths_to_be_between": (_BOUNDS, _lengths),
    "expect_column_value_lengths_to_equal": (_COLUMN | {"value"}, _length),
    "expect_column_min_to_be_between": (_BOUNDS, _statistic(_NUMBERS)),
    "expect_column_max_to_be_between": (_BOUNDS, _statistic(_NUMBERS)),
    "expect_column_sum_to_be_between": (_BOUNDS, _statistic(_NUMBERS)),
    "expect_column_mean_to_be_between": (_BOUNDS, _statistic(_MEANS)),
    "expect_column_median_to_be_between": (_BOUNDS, _statistic(_NUMBERS)),
    "expect_column_stdev_to_be_between": (_BOUNDS, _statistic(_NUMBERS)),
    "expect_column_quantile_values_to_be_between": (
        _COLUMN | {"quantile_ranges", "allow_relative_errors"},
        _quantiles,
    ),
    "expect_column_unique_value_count_to_be_between": (_BOUNDS, _count(_HASHED)),
    "expect_column_proportion_of_unique_values_to_be_between": (_BOUNDS, _count(_HASHED)),
    "expect_column_proportion_of_non_null_values_to_be_between": (_BOUNDS, _count(_SHOWN)),
    "expect_column_distinct_values_to_be_in_set": (_SET, _distinct_in_set),
    "expect_column_distinct_values_to_contain_set": (_SET, _distinct_in_set),
    "expect_column_distinct_values_to_equal_set": (_SET, _distinct_in_set),
    "expect_column_most_common_value_to_be_in_set": (_SET | {"ties_okay"}, _most_common),
    "expect_column_pair_values_a_to_be_greater_than_b": (_PAIR | {"or_equal"}, _pair),
    "expect_column_pair_values_to_be_equal": (_PAIR, _equal_pair),
    "expect_compound_columns_to_be_unique": (_LIST, _compound),
    "expect_table_row_count_to_be_between": (frozenset({"min_value", "max_value"}), _row_count),
    "expect_table_row_count_to_equal": (frozenset({"value"}), _exact_row_count),
    "expect_table_columns_to_match_ordered_list": (frozenset({"column_list"}), _any_table),
    "expect_column_to_exist": (_COLUMN, _any_table),
    "unexpected_rows_expectation": (frozenset({"unexpected_rows_query", "description"}), _query),
}
"""By expectation: its possible arguments, and the check of its arguments and columns."""

EXPECTATIONS = frozenset(_JUDGES)
