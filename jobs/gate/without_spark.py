"""Suites that this process can judge with pandas, with Spark's result: 200 rows do not need a JVM.

The pandas and Spark engines of Great Expectations differ in NULL handling, comparisons of different types, regular
expressions, sums of doubles, decimals, times and nested values. The list below contains the cases in which they agree.
An expectation is judged here if its type, its arguments, its columns' types and their values are on the list, and by
Spark otherwise.

    column                      on the list if
    tinyint … bigint, string,   always; comparisons with an ambiguous result are left to Spark
    boolean, date
    double                      it contains no NaN, which pandas treats as NULL
    any, in two or more         none of them contains NULL, because GX then skips different rows
    columns at once

Tests compare records and pages of both engines for every expectation of the list, with passing and with failing rows.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.gate.suite import SuitePart
from tussock.statestore.types import type_name

MOST_ROWS = 100_000
"""Maximum number of rows that this process judges."""

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_NUMBERS = _INTEGERS | {"double"}
_TEXT = frozenset({"string"})
_KEYS = _INTEGERS | _TEXT
_SHOWN = _KEYS | {"double", "boolean", "date"}  # types whose values have the same text in reports

Objection = str | None
Judge = Callable[[pa.Table, Mapping[str, Any]], Objection]
"""Returns why an expectation with these arguments requires Spark; None if pandas gives the same result."""


def objection(part: SuitePart, key: Sequence[str], rows: pa.Table) -> Objection:
    """Return why a part of a suite requires Spark; None if pandas gives the same result.

    Args:
        key: the columns that identify a row in a report.
        rows: all rows that the part reads.

    Requires: the rows have the suite's columns.
    """
    for item in part.items:
        if (why := _item_objection(item, rows)) is not None:
            return f"{item['type']}: {why}"
    return next(
        (f"key {name!r}: {why}" for name in key if (why := _value_objection(rows, name, _SHOWN)) is not None), None
    )


def named_columns(part: SuitePart, key: Sequence[str]) -> frozenset[str]:
    """Return the columns whose values a part of a suite reads or shows."""
    found = set(key)
    for item in part.items:
        arguments = item.get("kwargs", {})
        found |= {arguments[name] for name in ("column", "column_A", "column_B") if name in arguments}
        found |= set(arguments.get("column_list", ()))
    return frozenset(found)


def joined_columns(part: SuitePart) -> frozenset[str]:
    """Return the columns that an expectation reads together with others."""
    together = SuitePart(
        part.name, tuple(i for i in part.items if {"column_A", "column_list"} & i.get("kwargs", {}).keys())
    )
    return named_columns(together, ())


def _item_objection(item: Mapping[str, Any], rows: pa.Table) -> Objection:
    arguments = dict(item.get("kwargs", {}))
    if (known := _JUDGES.get(item["type"])) is None:
        return "not known to have the same result in pandas"
    allowed, judge = known
    mostly = arguments.pop("mostly", 1)
    if isinstance(mostly, bool) or not isinstance(mostly, int | float) or not 0 < mostly <= 1:
        return f"mostly {mostly!r}"
    if unknown := sorted(arguments.keys() - allowed):
        return f"argument {unknown[0]!r}"
    return judge(rows, arguments)


def _value_objection(rows: pa.Table, name: object, kinds: frozenset[str]) -> Objection:
    """Return why a column's values require Spark."""
    if not isinstance(name, str) or name not in rows.column_names:
        return f"column {name!r}"
    column = rows[name]
    if (kind := type_name(column.type)) not in kinds:
        return f"column {name!r} is {kind}"
    if kind == "double" and pc.any(pc.is_nan(column)).as_py():
        return f"column {name!r} contains NaN"
    return None


def _nulls(rows: pa.Table, names: Sequence[str]) -> Objection:
    return next((f"column {name!r} contains NULL" for name in names if rows[name].null_count), None)


def _column_of(*kinds: str) -> Judge:
    allowed = frozenset(kinds)
    return lambda rows, given: _value_objection(rows, given.get("column"), allowed)


def _between(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    return _value_objection(rows, given.get("column"), _NUMBERS) or _bounds(given, (int, float))


def _lengths(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    return _value_objection(rows, given.get("column"), _TEXT) or _bounds(given, (int,))


def _length(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    wrong = None if _is_number(given.get("value"), (int,)) else f"value {given.get('value')!r}"
    return _value_objection(rows, given.get("column"), _TEXT) or wrong


def _row_count(_: pa.Table, given: Mapping[str, Any]) -> Objection:
    return _bounds(given, (int,))


def _exact_row_count(_: pa.Table, given: Mapping[str, Any]) -> Objection:
    return None if _is_number(given.get("value"), (int,)) else f"value {given.get('value')!r}"


def _extreme(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    column = given.get("column")
    if (why := _value_objection(rows, column, _NUMBERS) or _bounds(given, (int, float))) is not None:
        return why
    return f"column {column!r} contains no value" if rows[column].null_count == rows.num_rows else None


def _bounds(given: Mapping[str, Any], kinds: tuple[type, ...]) -> Objection:
    low, high = given.get("min_value"), given.get("max_value")
    if low is None and high is None:
        return "no bound"
    for bound in (low, high):
        if bound is not None and not _is_number(bound, kinds):
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


def _is_number(value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, float):
        return float in kinds and math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _in_set(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    column, values = given.get("column"), given.get("value_set")
    if (why := _value_objection(rows, column, _KEYS)) is not None:
        return why
    if not isinstance(values, list) or not values:
        return "an empty set"
    is_text = type_name(rows[column].type) == "string"
    fits = all(isinstance(value, str) if is_text else _is_number(value, (int,)) for value in values)
    return None if fits else f"values of another type than column {column!r}"


def _pair(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    return _columns(rows, [given.get("column_A"), given.get("column_B")], _NUMBERS)


def _equal_pair(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    pair = [given.get("column_A"), given.get("column_B")]
    are_texts = _value_objection(rows, pair[0], _TEXT) is None
    return _columns(rows, pair, _TEXT if are_texts else _INTEGERS)


def _compound(rows: pa.Table, given: Mapping[str, Any]) -> Objection:
    names = given.get("column_list")
    return _columns(rows, names, _KEYS) if isinstance(names, list) and len(names) > 1 else f"columns {names!r}"


def _columns(rows: pa.Table, names: Sequence[Any], kinds: frozenset[str]) -> Objection:
    wrong: Iterator[str] = (why for name in names if (why := _value_objection(rows, name, kinds)) is not None)
    return next(wrong, None) or _nulls(rows, names)


def _any_table(_: pa.Table, given: Mapping[str, Any]) -> Objection:
    return None


_BOUNDS = frozenset({"column", "min_value", "max_value", "strict_min", "strict_max"})
_PAIR = frozenset({"column_A", "column_B"})
_COLUMN = frozenset({"column"})

_JUDGES: Mapping[str, tuple[frozenset[str], Judge]] = {
    "expect_column_values_to_be_null": (_COLUMN, _column_of(*_SHOWN)),
    "expect_column_values_to_not_be_null": (_COLUMN, _column_of(*_SHOWN)),
    "expect_column_values_to_be_between": (_BOUNDS, _between),
    "expect_column_values_to_be_in_set": (frozenset({"column", "value_set"}), _in_set),
    "expect_column_values_to_not_be_in_set": (frozenset({"column", "value_set"}), _in_set),
    "expect_column_values_to_be_unique": (_COLUMN, _column_of(*_KEYS)),
    "expect_column_value_lengths_to_be_between": (_BOUNDS, _lengths),
    "expect_column_value_lengths_to_equal": (frozenset({"column", "value"}), _length),
    "expect_column_min_to_be_between": (_BOUNDS, _extreme),
    "expect_column_max_to_be_between": (_BOUNDS, _extreme),
    "expect_column_pair_values_a_to_be_greater_than_b": (_PAIR | {"or_equal"}, _pair),
    "expect_column_pair_values_to_be_equal": (_PAIR, _equal_pair),
    "expect_compound_columns_to_be_unique": (frozenset({"column_list"}), _compound),
    "expect_table_row_count_to_be_between": (frozenset({"min_value", "max_value"}), _row_count),
    "expect_table_row_count_to_equal": (frozenset({"value"}), _exact_row_count),
    "expect_table_columns_to_match_ordered_list": (frozenset({"column_list"}), _any_table),
    "expect_column_to_exist": (_COLUMN, _any_table),
}
"""By expectation: its possible arguments, and the check of its arguments, columns and values."""

EXPECTATIONS = frozenset(_JUDGES)
