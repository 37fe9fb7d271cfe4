"""The table of expectations that hidden views answer: what each one counts, stores and compares, as SQL.

Spark binds this SQL when a suite is applied, and epochs maintain the results. So Spark's rules hold for NULL, NaN,
decimals and coercions, and nothing else imitates them. Great Expectations then decides from its own metrics, which
jobs/quality/measured.py reads from these views. The columns' types are limited to those for which the metrics are
known to equal the ones of its Spark engine. Spark judges all other expectations over the view's rows.

`EXPECTATIONS` lists, by expectation: its possible arguments, and a function that returns its needs.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from itertools import combinations
from typing import Any

from tussock.jobs.kernels.patterns import pattern_objection
from tussock.jobs.logical.quoting import quote_name, string_text
from tussock.jobs.quality.suite import history_of

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_WIDE = frozenset({"int", "bigint", "float", "double", "decimal"})  # types for which Great Expectations computes a mean
_NUMBERS = _WIDE | _INTEGERS
_ORDERED = _NUMBERS | {"date"}
_HASHED = _ORDERED | {"string", "boolean", "timestamp", "timestamp_ntz"}
_TEXT = frozenset({"string"})
_KEYS = _INTEGERS | _TEXT
_MOST_DIGITS = 38  # of a decimal
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}

Types = Mapping[str, str]
"""The columns of a view: name -> type."""


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a view: its kind ("nulls", "max", …) and its columns."""

    kind: str
    columns: tuple[str, ...] = ()

    @property
    def column(self) -> str:
        """The hidden view's column with this number. It is unique per number, even for case-insensitive readers.

        It also stands for the number's SQL: a number with other SQL needs another kind.
        """
        return " ".join([self.kind, *(", ".join(map(quote_name, self.columns)),) * bool(self.columns)])


ROWS = Number("rows")


class IgnoredRows(StrEnum):
    """The rows that an expectation on several columns does not judge. The values are Great Expectations' own."""

    ALL_MISSING = "all_values_are_missing"
    ANY_MISSING = "any_value_is_missing"
    NONE = "never"

    def condition(self, columns: Sequence[str]) -> str:
        """Return the SQL condition of these rows. Requires: not NONE."""
        joined = " AND " if self is IgnoredRows.ALL_MISSING else " OR "
        return f"({joined.join(f'{quote_name(column)} IS NULL' for column in columns)})"

    def number(self, columns: tuple[str, ...]) -> dict[Number, str]:
        """Return the number of these rows, with its SQL; none for NONE."""
        if self is IgnoredRows.NONE:
            return {}
        return {self.counted(columns): f"count_if({self.condition(columns)})"}

    def counted(self, columns: tuple[str, ...]) -> Number:
        """Return the number of these rows. Requires: not NONE."""
        one = len(columns) == 1 or self is IgnoredRows.ALL_MISSING
        return Number("nulls" if one else "any null", columns)


_OF_PAIRS = {
    "both_values_are_missing": IgnoredRows.ALL_MISSING,
    "either_value_is_missing": IgnoredRows.ANY_MISSING,
    "neither": IgnoredRows.NONE,
}


def ignored_rows(value: object) -> IgnoredRows | None:
    """Return the rows that an argument `ignore_row_if` leaves out; None if it is unknown."""
    if value is None:
        return IgnoredRows.NONE
    return _OF_PAIRS.get(str(value)) or (IgnoredRows(str(value)) if value in {*IgnoredRows} else None)


@dataclass(frozen=True, slots=True)
class RowRule:
    """A rule on single rows.

    Args:
        number: the number of failing rows.
        metric: the name of the rule's metric in Great Expectations, without the last part.
        arguments: they distinguish rules on the same columns.
        fails: the SQL condition of failing rows.
    """

    number: Number
    metric: str
    columns: tuple[str, ...]
    arguments: Mapping[str, Any]
    ignored: IgnoredRows
    fails: str

    @property
    def flag(self) -> str:
        """The column of the hidden view of failing rows that marks the rows which fail this rule."""
        return self.number.column


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Columns whose values must be unique, in the rows that are not ignored."""

    columns: tuple[str, ...]
    ignored: IgnoredRows


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of one expectation.

    Args:
        numbers: aggregates, with their SQL.
        values: columns whose distinct values are counted.
        query: a SELECT of the suite that returns wrong rows; empty: none.
    """

    numbers: Mapping[Number, str] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    duplicates: tuple[Duplicates, ...] = ()
    rules: tuple[RowRule, ...] = ()
    query: str = ""


Arguments = Mapping[str, Any]
_Answer = Needs | str
"""The needs of an expectation, or the reason why hidden views cannot answer it."""
_Judge = Callable[[Arguments, Types], _Answer]


def find_needs(item: Mapping[str, Any], types: Types) -> tuple[str, Needs] | str:
    """Return the row condition and the needs of an expectation, or the reason why Spark must judge it."""
    arguments = {name: value for name, value in item.get("kwargs", {}).items() if value is not None}
    if (known := EXPECTATIONS.get(item["type"])) is None:
        return "no hidden view can answer it"
    allowed, judge = known
    mostly = arguments.pop("mostly", 1)
    if isinstance(mostly, bool) or not isinstance(mostly, int | float) or not 0 < mostly <= 1:
        return f"mostly {mostly!r}"
    condition, parser = arguments.pop("row_condition", ""), arguments.pop("condition_parser", None)
    if condition and parser not in ((None,) if isinstance(condition, Mapping) else ("spark",)):
        return f"condition_parser {parser!r}"
    if (sql := condition_sql(condition)) is None:
        return f"row_condition {condition!r}"
    if unknown := sorted(arguments.keys() - allowed):
        return f"argument {unknown[0]!r}"
    if history_of(item) is not None:
        arguments.setdefault("min_value", 0)  # its bounds differ in each epoch, and no measure depends on them
    answer = judge(arguments, types)
    if isinstance(answer, str):
        return answer
    return "a query with a row_condition" if sql and answer.query else (sql, answer)


def condition_sql(condition: Any) -> str | None:
    """Return a row condition as SQL; empty if there is none, and None if it has no SQL.

    Args:
        condition: SQL, or an object of Great Expectations, also as in a suite's file.
    """
    if hasattr(condition, "dict"):
        condition = condition.dict()
    match condition:
        case None:
            return ""
        case str(text) | {"type": "pass_through", "pass_through_filter": str(text)}:
            return text
        case {"type": "comparison", "column": {"name": str(name)}, "operator": str(sign), "parameter": value}:
            literal = _literal(value)
            return f"{quote_name(name)} {sign} {literal}" if literal and sign in _SIGNS else None
        case {"type": "nullity", "column": {"name": str(name)}, "is_null": bool(is_null)}:
            return f"{quote_name(name)} IS {'' if is_null else 'NOT '}NULL"
        case {"type": "and" | "or" as kind, "conditions": [*parts]} if parts:
            texts = [condition_sql(part) for part in parts]
            return f" {kind.upper()} ".join(f"({text})" for text in texts) if all(texts) else None
    return None


_SIGNS = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">="})


def _literal(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, float) and math.isfinite(value):
        return f"CAST({value!r} AS DOUBLE)"
    return str(value) if isinstance(value, int) and abs(value) < 2**63 else None


# --- arguments ----------------------------------------------------------------------------------------------------


def _family(types: Types, column: object) -> str:
    """Return a column's type without parameters; empty if the column does not exist."""
    return types.get(column, "").partition("(")[0] if isinstance(column, str) else ""


def _column_objection(types: Types, column: object, families: frozenset[str]) -> str:
    """Return why a column's values are left to Spark; empty if they are not."""
    if not isinstance(column, str) or column not in types:
        return f"column {column!r}"
    return "" if _family(types, column) in families else f"column {column!r} is {types[column]}"


def _bounds_objection(kwargs: Arguments, fits: Callable[[object], bool]) -> str:
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    if low is None and high is None:
        return "no bound"
    for bound in (low, high):
        if bound is not None and not fits(bound):
            return f"bound {bound!r}"
    if low is not None and high is not None and low > high:
        return "no value is between its bounds"
    stricts = (name for name in ("strict_min", "strict_max") if not isinstance(kwargs.get(name, False), bool))
    return next((f"{name} {kwargs[name]!r}" for name in stricts), "")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _is_number(value: object) -> bool:
    """Return whether a value is a finite number that a double represents exactly."""
    return math.isfinite(value) if isinstance(value, float) else _is_whole(value)


def _is_date(value: object) -> bool:
    try:
        return isinstance(value, str) and len(value) == 10 and bool(date.fromisoformat(value))
    except ValueError:
        return False


def _set_objection(values: object, family: str) -> str:
    """Object to a set with values of another type than the column, which Spark and Python compare differently."""
    if not isinstance(values, list) or not values:
        return "an empty set"
    fits = all(isinstance(value, str) if family == "string" else _is_whole(value) for value in values)
    return "" if fits else f"values of another type than {family}"


# --- numbers of a view or a column --------------------------------------------------------------------------------


def _row_count(kwargs: Arguments, _: Types) -> _Answer:
    return _bounds_objection(kwargs, _is_number) or Needs()


def _exact_row_count(kwargs: Arguments, _: Types) -> _Answer:
    return Needs() if _is_whole(kwargs.get("value")) else f"value {kwargs.get('value')!r}"


def _schema(_: Arguments, __: Types) -> _Answer:
    return Needs()


def _nulls(*columns: str) -> dict[Number, str]:
    """The number of rows that are NULL in all of these columns."""
    return IgnoredRows.ALL_MISSING.number(columns)


def _aggregate(name: str, sql: str, families: frozenset[str]) -> _Judge:
    """One number of a column. `sql` contains {} for the column."""

    def judge(kwargs: Arguments, types: Types) -> _Answer:
        column = str(kwargs.get("column", ""))
        why = _column_objection(types, column, families) or _bounds_objection(kwargs, _is_number_or_date)
        return why or Needs({Number(name, (column,)): sql.replace("{}", quote_name(column)), **_nulls(column)})

    return judge


def _is_number_or_date(value: object) -> bool:
    return _is_number(value) or _is_date(value)


def _share_of_values(kwargs: Arguments, types: Types) -> _Answer:
    column = str(kwargs.get("column", ""))
    why = _bounds_objection(kwargs, _is_number) or ("" if column in types else f"column {column!r}")
    return why or Needs(_nulls(column))


# --- distinct values of a column ----------------------------------------------------------------------------------


def _distinct_in_set(kwargs: Arguments, types: Types) -> _Answer:
    column = str(kwargs.get("column", ""))
    why = _column_objection(types, column, _KEYS) or _set_objection(kwargs.get("value_set"), _family(types, column))
    return why or Needs(values=(column,))


def _most_common(kwargs: Arguments, types: Types) -> _Answer:
    ties = kwargs.get("ties_okay", False)
    return _distinct_in_set(kwargs, types) if isinstance(ties, bool) else f"ties_okay {ties!r}"


def _median(kwargs: Arguments, types: Types) -> _Answer:
    column = str(kwargs.get("column", ""))
    why = _column_objection(types, column, _NUMBERS) or _bounds_objection(kwargs, _is_number)
    return why or Needs(_nulls(column), values=(column,))


def _quantiles(kwargs: Arguments, types: Types) -> _Answer:
    column, ranges = str(kwargs.get("column", "")), kwargs.get("quantile_ranges")
    if why := _column_objection(types, column, _NUMBERS):
        return why
    if not isinstance(ranges, Mapping) or kwargs.get("allow_relative_errors", False) is not False:
        return "quantile_ranges or allow_relative_errors"
    shares, bounds = ranges.get("quantiles"), ranges.get("value_ranges")
    if not isinstance(shares, list) or not isinstance(bounds, list) or len(shares) != len(bounds) or not shares:
        return f"quantile_ranges {ranges!r}"
    if not all(_is_number(share) and 0 <= share <= 1 for share in shares):
        return f"quantiles {shares!r}"
    return Needs(_nulls(column), values=(column,))


def _unique(kwargs: Arguments, types: Types) -> _Answer:
    column = str(kwargs.get("column", ""))
    why = _column_objection(types, column, _HASHED)
    return why or Needs(_nulls(column), duplicates=(Duplicates((column,), IgnoredRows.ANY_MISSING),))


def _compound(kwargs: Arguments, types: Types) -> _Answer:
    columns = kwargs.get("column_list")
    ignored = ignored_rows(kwargs.get("ignore_row_if", IgnoredRows.ALL_MISSING))
    if not isinstance(columns, list) or len(columns) < 2 or len({*map(str, columns)}) < len(columns):
        return f"columns {columns!r}"
    if why := "".join(_column_objection(types, column, _HASHED) for column in columns):
        return why
    if ignored is None:
        return f"ignore_row_if {kwargs['ignore_row_if']!r}"
    return Needs(ignored.number(tuple(columns)), duplicates=(Duplicates(tuple(columns), ignored),))


# --- rules on single rows -----------------------------------------------------------------------------------------


def _failing(metric: str, columns: Sequence[str], arguments: Arguments, ignored: IgnoredRows, fails: str) -> Needs:
    """The needs of a rule whose failing rows have the condition `fails`, unless they are ignored."""
    if ignored is not IgnoredRows.NONE:
        fails = f"NOT {ignored.condition(columns)} AND ({fails})"
    digest = hashlib.sha256(repr((metric, sorted(arguments.items()), ignored)).encode()).hexdigest()[:32]
    rule = RowRule(Number(f"failing {digest}", tuple(columns)), metric, tuple(columns), arguments, ignored, fails)
    numbers = {rule.number: f"count_if({fails})", **ignored.number(tuple(columns)), **_nulls(*columns)}
    return Needs(numbers, rules=(rule,))


def _by_value(
    metric: str,
    names: Sequence[str],
    families: frozenset[str],
    condition: Callable[[str, str, Arguments], tuple[str, str]],
) -> _Judge:
    """A rule on the values of one column, except NULL.

    Args:
        names: the names of its arguments, without the column.
        condition: (column as SQL, its type without parameters, arguments) -> the condition that a row meets, and an
            objection, one of them empty.
    """

    def judge(kwargs: Arguments, types: Types) -> _Answer:
        column = str(kwargs.get("column", ""))
        if why := _column_objection(types, column, families):
            return why
        met, why = condition(quote_name(column), _family(types, column), kwargs)
        arguments = {name: kwargs[name] for name in names if name in kwargs and kwargs[name] is not False}
        return why or _failing(metric, (column,), arguments, IgnoredRows.ANY_MISSING, f"NOT ({met})")

    return judge


def _null(metric: str, fails: str) -> _Judge:
    def judge(kwargs: Arguments, types: Types) -> _Answer:
        column = str(kwargs.get("column", ""))
        if column not in types:
            return f"column {column!r}"
        return _failing(metric, (column,), {}, IgnoredRows.NONE, f"{quote_name(column)} {fails}")

    return judge


def _within_bounds(what: str, kwargs: Arguments, literal: Callable[[Any], str]) -> str:
    parts = []
    for name, strict, sign in (("min_value", "strict_min", ">"), ("max_value", "strict_max", "<")):
        if (bound := kwargs.get(name)) is not None:
            parts.append(f"{what} {sign}{'' if kwargs.get(strict) else '='} {literal(bound)}")
    return " AND ".join(parts)


def _between(column: str, family: str, kwargs: Arguments) -> tuple[str, str]:
    if family == "date":
        why = _bounds_objection(kwargs, _is_date)
        return ("", why) if why else (_within_bounds(column, kwargs, lambda bound: f"DATE '{bound}'"), "")
    if why := _bounds_objection(kwargs, _is_number):
        return "", why
    # Great Expectations passes its bounds to Spark as doubles.
    return _within_bounds(column, kwargs, lambda bound: f"CAST({float(bound)!r} AS DOUBLE)"), ""


def _length_between(column: str, _: str, kwargs: Arguments) -> tuple[str, str]:
    why = _bounds_objection(kwargs, _is_whole)
    return ("", why) if why else (_within_bounds(f"length({column})", kwargs, str), "")


def _length(column: str, _: str, kwargs: Arguments) -> tuple[str, str]:
    value = kwargs.get("value")
    return (f"length({column}) = {value}", "") if _is_whole(value) else ("", f"value {value!r}")


def _member(column: str, family: str, kwargs: Arguments) -> tuple[str, str]:
    values = kwargs.get("value_set")
    if why := _set_objection(values, family):
        return "", why
    assert isinstance(values, list), "a set without an objection is a list"
    literals = (string_text(value) if family == "string" else str(value) for value in values)
    return f"{column} IN ({', '.join(literals)})", ""


def _matches(column: str, _: str, kwargs: Arguments) -> tuple[str, str]:
    pattern = kwargs.get("regex")
    why = (pattern_objection(pattern) or "") if isinstance(pattern, str) else f"regex {pattern!r}"
    return (f"{column} RLIKE {string_text(str(pattern))}", why)


def _matches_any_or_all(column: str, _: str, kwargs: Arguments) -> tuple[str, str]:
    patterns, match_on = kwargs.get("regex_list"), kwargs.get("match_on", "any")
    if not isinstance(patterns, list) or not patterns or match_on not in ("any", "all"):
        return "", f"regex_list {patterns!r}"
    joined = ["|".join(map(str, patterns))] if match_on == "any" else patterns
    matches = [_matches(column, "", {"regex": pattern}) for pattern in joined]
    return " AND ".join(met for met, _ in matches), next((why for _, why in matches if why), "")


def _matches_none(column: str, _: str, kwargs: Arguments) -> tuple[str, str]:
    patterns = kwargs.get("regex_list")
    if not isinstance(patterns, list) or not patterns:
        return "", f"regex_list {patterns!r}"
    matches = [_matches(column, "", {"regex": pattern}) for pattern in patterns]
    return " AND ".join(f"NOT {met}" for met, _ in matches), next((why for _, why in matches if why), "")


def _inverted(
    condition: Callable[[str, str, Arguments], tuple[str, str]],
) -> Callable[[str, str, Arguments], tuple[str, str]]:
    def opposite(column: str, family: str, kwargs: Arguments) -> tuple[str, str]:
        met, why = condition(column, family, kwargs)
        return f"NOT ({met})", why

    return opposite


def _greater(kwargs: Arguments, types: Types) -> _Answer:
    pair, or_equal = (kwargs.get("column_A"), kwargs.get("column_B")), kwargs.get("or_equal", False)
    if why := "".join(_column_objection(types, column, _INTEGERS | {"double", "decimal"}) for column in pair):
        return why
    if not (_has_doubles(types, pair) or _have_common_type(types, pair)):
        return f"columns {list(pair)!r} have no common decimal type"  # Spark rounds them to compare them
    a, b = (quote_name(str(column)) for column in pair)
    met = f"{a} >= {b} OR {a} <=> {b}" if or_equal else f"{a} > {b}"
    return _of_pair("column_pair_values.a_greater_than_b", pair, kwargs, {"or_equal": True} if or_equal else {}, met)


def _equal(kwargs: Arguments, types: Types) -> _Answer:
    pair = (kwargs.get("column_A"), kwargs.get("column_B"))
    families = _TEXT if _family(types, pair[0]) == "string" else _INTEGERS
    if why := "".join(_column_objection(types, column, families) for column in pair):
        return why
    a, b = (quote_name(str(column)) for column in pair)
    return _of_pair("column_pair_values.equal", pair, kwargs, {}, f"{a} <=> {b}")


def _of_pair(metric: str, pair: Sequence[Any], kwargs: Arguments, arguments: Arguments, met: str) -> _Answer:
    ignored = ignored_rows(kwargs.get("ignore_row_if", "both_values_are_missing"))
    if ignored is None:
        return f"ignore_row_if {kwargs['ignore_row_if']!r}"
    return _failing(metric, pair, arguments, ignored, f"NOT ({met})")


def _unique_within_record(kwargs: Arguments, types: Types) -> _Answer:
    columns, ignored = kwargs.get("column_list"), ignored_rows(kwargs.get("ignore_row_if", IgnoredRows.ALL_MISSING))
    if not isinstance(columns, list) or len(columns) < 2 or ignored is None:
        return f"columns {columns!r}"
    families = _TEXT if _family(types, columns[0]) == "string" else _INTEGERS
    if why := "".join(_column_objection(types, column, families) for column in columns):
        return why
    equal = (f"{quote_name(a)} <=> {quote_name(b)}" for a, b in combinations(columns, 2))
    return _failing("select_column_values.unique.within_record", columns, {}, ignored, " OR ".join(equal))


def _has_doubles(types: Types, columns: Sequence[Any]) -> bool:
    return any(_family(types, column) == "double" for column in columns)


def _have_common_type(types: Types, columns: Sequence[Any]) -> bool:
    """Return whether Spark compares integers or decimals exactly. It rounds others to 38 digits."""
    digits = [_digits(types[column]) for column in columns]
    return max(whole for whole, _ in digits) + max(scale for _, scale in digits) <= _MOST_DIGITS


def _digits(kind: str) -> tuple[int, int]:
    """Return the digits before and after the point of an integer's or a decimal's type."""
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    precision, scale = (int(part) for part in kind.removeprefix("decimal(").removesuffix(")").split(","))
    return precision - scale, scale


def _query(kwargs: Arguments, _: Types) -> _Answer:
    query = kwargs.get("unexpected_rows_query")
    if not isinstance(query, str) or "{batch}" not in query or "{" in query.replace("{batch}", ""):
        return "its query does not read {batch}, or contains other braces"
    return Needs(query=without_end(query))


def without_end(query: str) -> str:
    """Return a query without blanks and semicolons at its end, which Great Expectations removes too."""
    return query.strip().rstrip("; \n\t")


_BOUNDS = frozenset({"column", "min_value", "max_value", "strict_min", "strict_max"})
_COLUMN = frozenset({"column"})
_SET = frozenset({"column", "value_set"})
_PAIR = frozenset({"column_A", "column_B", "ignore_row_if"})
_LIST = frozenset({"column_list", "ignore_row_if"})
_SPAN = ("min_value", "max_value", "strict_min", "strict_max")

EXPECTATIONS: Mapping[str, tuple[frozenset[str], _Judge]] = {
    "expect_table_row_count_to_be_between": (_BOUNDS - _COLUMN, _row_count),
    "expect_table_row_count_to_equal": (frozenset({"value"}), _exact_row_count),
    "expect_table_columns_to_match_ordered_list": (frozenset({"column_list"}), _schema),
    "expect_column_to_exist": (_COLUMN, _schema),
    "expect_column_max_to_be_between": (_BOUNDS, _aggregate("max", "max({})", _ORDERED)),
    "expect_column_min_to_be_between": (_BOUNDS, _aggregate("min", "min({})", _ORDERED)),
    "expect_column_mean_to_be_between": (_BOUNDS, _aggregate("mean", "try_avg({})", _WIDE)),
    "expect_column_sum_to_be_between": (_BOUNDS, _aggregate("sum", "try_sum({})", _NUMBERS)),
    "expect_column_stdev_to_be_between": (_BOUNDS, _aggregate("stdev", "stddev_samp({})", _NUMBERS)),
    "expect_column_unique_value_count_to_be_between": (
        _BOUNDS,
        _aggregate("distinct", "count(DISTINCT {})", _HASHED),
    ),
    "expect_column_proportion_of_unique_values_to_be_between": (
        _BOUNDS,
        _aggregate("distinct", "count(DISTINCT {})", _HASHED),
    ),
    "expect_column_proportion_of_non_null_values_to_be_between": (_BOUNDS, _share_of_values),
    "expect_column_median_to_be_between": (_BOUNDS, _median),
    "expect_column_quantile_values_to_be_between": (
        _COLUMN | {"quantile_ranges", "allow_relative_errors"},
        _quantiles,
    ),
    "expect_column_distinct_values_to_be_in_set": (_SET, _distinct_in_set),
    "expect_column_distinct_values_to_contain_set": (_SET, _distinct_in_set),
    "expect_column_distinct_values_to_equal_set": (_SET, _distinct_in_set),
    "expect_column_most_common_value_to_be_in_set": (_SET | {"ties_okay"}, _most_common),
    "expect_column_values_to_be_unique": (_COLUMN, _unique),
    "expect_compound_columns_to_be_unique": (_LIST, _compound),
    "expect_column_values_to_not_be_null": (_COLUMN, _null("column_values.nonnull", "IS NULL")),
    "expect_column_values_to_be_null": (_COLUMN, _null("column_values.null", "IS NOT NULL")),
    "expect_column_values_to_be_between": (
        _BOUNDS,
        _by_value("column_values.between", _SPAN, _ORDERED, _between),
    ),
    "expect_column_values_to_be_in_set": (
        _SET,
        _by_value("column_values.in_set", ("value_set",), _KEYS | {"decimal"}, _member),
    ),
    "expect_column_values_to_not_be_in_set": (
        _SET,
        _by_value("column_values.not_in_set", ("value_set",), _KEYS | {"decimal"}, _inverted(_member)),
    ),
    "expect_column_value_lengths_to_be_between": (
        _BOUNDS,
        _by_value("column_values.value_length.between", _SPAN, _TEXT, _length_between),
    ),
    "expect_column_value_lengths_to_equal": (
        _COLUMN | {"value"},
        _by_value("column_values.value_length.equals", ("value",), _TEXT, _length),
    ),
    "expect_column_values_to_match_regex": (
        _COLUMN | {"regex"},
        _by_value("column_values.match_regex", ("regex",), _TEXT, _matches),
    ),
    "expect_column_values_to_not_match_regex": (
        _COLUMN | {"regex"},
        _by_value("column_values.not_match_regex", ("regex",), _TEXT, _inverted(_matches)),
    ),
    "expect_column_values_to_match_regex_list": (
        _COLUMN | {"regex_list", "match_on"},
        _by_value("column_values.match_regex_list", ("regex_list", "match_on"), _TEXT, _matches_any_or_all),
    ),
    "expect_column_values_to_not_match_regex_list": (
        _COLUMN | {"regex_list"},
        _by_value("column_values.not_match_regex_list", ("regex_list",), _TEXT, _matches_none),
    ),
    "expect_column_pair_values_a_to_be_greater_than_b": (_PAIR | {"or_equal"}, _greater),
    "expect_column_pair_values_to_be_equal": (_PAIR, _equal),
    "expect_select_column_values_to_be_unique_within_record": (_LIST, _unique_within_record),
    "unexpected_rows_expectation": (frozenset({"unexpected_rows_query", "description"}), _query),
}
