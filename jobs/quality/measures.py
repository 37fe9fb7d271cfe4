"""Measures: data for expectations that need all rows, maintained as views.

Epochs maintain them at the cost of the changes, not of the table. A view has at most these measures. Readers do not see
them (`Relation.internal`):

    __quality__<view>_numbers_<digest>     one row: counts, sums, means, extremes, failures of `mostly` rules
    __quality__<view>_values_<digest>      the distinct values of a column, with their counts
    __quality__<view>_repeated_<digest>    duplicate values of columns that must be unique; usually empty

The digest covers the view, the kind and the columns as values, so different lists of columns never share a measure,
regardless of the characters and length of their names. Names are never parsed: in this process a number is a `Number`.

`tussock apply` creates them (`statements_for`), and epochs maintain them like other views. jobs/quality/measured.py
presents their contents to Great Expectations as its own metrics. The list below contains the metrics that are known to
equal its Spark engine's.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tussock.jobs.catalog.difference import words_of
from tussock.jobs.logical.quoting import quoted, string_text
from tussock.jobs.quality.suite import Suite, relation_of
from tussock.jobs.quality.valid_suite import require_valid
from tussock.jobs.reading.reader import key_of
from tussock.statestore.meta.catalog import INTERNAL, Catalog, Relation

SMALL_VIEW_ROWS = 100_000
"""Views up to this size are read completely: one scan is cheaper than finding changes or maintaining measures."""

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_WIDE = frozenset({"int", "bigint", "float", "double", "decimal"})  # types for which Great Expectations computes a mean
_NUMBERS = _WIDE | _INTEGERS
_ORDERED = _NUMBERS | {"date"}
_HASHED = _ORDERED | {"string", "boolean", "timestamp"}
_IN_SETS = _INTEGERS | {"string"}


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a view: its kind ("nulls", "max", …) and its columns."""

    kind: str
    columns: tuple[str, ...] = ()

    @property
    def column(self) -> str:
        """The column with this number. It is unique per number, even for case-insensitive readers."""
        return " ".join([self.kind, *(", ".join(map(quoted, self.columns)),) * bool(self.columns)])


ROWS = Number("rows")


@dataclass(frozen=True, slots=True)
class Missed:
    """A rule that some rows may miss. `number` is their count.

    `metric` is the name of the rule's metric in Great Expectations. `arguments` distinguish rules on the same column.
    """

    number: Number
    metric: str
    column: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of one expectation: numbers (with their aggregates), values of a column, and duplicates in columns."""

    numbers: Mapping[Number, str] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    repeated: tuple[tuple[str, ...], ...] = ()
    missed: tuple[Missed, ...] = ()


@dataclass(frozen=True, slots=True)
class Measures:
    """The maintained part of a suite: the expectations, and the views that they need (name -> SELECT)."""

    items: tuple[dict[str, Any], ...]
    numbers: tuple[Number, ...]
    values: tuple[str, ...]
    repeated: tuple[tuple[str, ...], ...]
    missed: tuple[Missed, ...]
    views: Mapping[str, str]


def measures_of(suite: Suite, view: Relation) -> Measures:
    """Return the part of a suite over `view` that can be maintained. Requires: the view has the suite's columns."""
    if suite.full_scan or suite.maintain is False:
        return Measures((), (), (), (), (), {})
    items: list[dict[str, Any]] = []
    numbers: dict[Number, str] = {}
    values: dict[str, None] = {}
    repeated: dict[tuple[str, ...], None] = {}
    missed: dict[Number, Missed] = {}
    for item in suite.by_view.items:
        if (needs := _needs(item, view)) is None:
            continue
        items.append(item)
        numbers |= needs.numbers
        values |= dict.fromkeys(needs.values)
        repeated |= dict.fromkeys(needs.repeated)
        missed |= {one.number: one for one in needs.missed}
    if not items:
        return Measures((), (), (), (), (), {})
    numbers = {ROWS: "count(*)", **numbers}
    views = {numbers_view(view.name): _select(numbers, view.name)}
    for column in values:
        name = quoted(column)
        views[values_view(view.name, column)] = (
            f"SELECT {name} AS `value`, count(*) AS `rows` FROM {quoted(view.name)} WHERE {name} IS NOT NULL GROUP BY "
            f"{name}"
        )
    for columns in repeated:
        if not _is_unique_by_key(view, columns):
            views[repeated_view(view.name, columns)] = _repeated(view.name, columns)
    return Measures(tuple(items), tuple(numbers), tuple(values), tuple(repeated), tuple(missed.values()), views)


def numbers_view(view: str) -> str:
    """Return the name of the view with one row."""
    return _name(view, "numbers")


def values_view(view: str, column: str) -> str:
    """Return the name of the view of a column's distinct values."""
    return _name(view, "values", column)


def repeated_view(view: str, columns: Sequence[str]) -> str:
    """Return the name of the view of duplicates in some columns. Its columns are named by `repeated_column`."""
    return _name(view, "repeated", *columns)


def _name(view: str, kind: str, *columns: str) -> str:
    """Return a valid view name of at most 96 characters. The digest makes it unique; the rest is for people."""
    digest = hashlib.sha256(json.dumps([view, kind, *columns]).encode()).hexdigest()
    return f"{INTERNAL}{view[:43]}_{kind}_{digest[:32]}"


def repeated_column(place: int) -> str:
    """Return the name of the column at this place of the list, in a `repeated` view."""
    return f"c{place}"


def is_kept(relation: Relation, select: str, view: Relation, sql: str) -> bool:
    """Return whether `relation`, whose SELECT is `sql`, is the measure `select` of this `view`."""
    return relation.depends_on == (view.id,) and words_of(sql) == words_of(select)


# --- the needs of each expectation --------------------------------------------------------------------------------


_Judge = Callable[[Mapping[str, Any], Relation], Needs | None]


def _needs(item: Mapping[str, Any], view: Relation) -> Needs | None:
    """Return the needs of an expectation; None if it must read all rows."""
    arguments = {name: value for name, value in item.get("kwargs", {}).items() if value is not None}
    if (known := _KEPT.get(item["type"])) is None:
        return None
    allowed, judge = known
    return judge(arguments, view) if arguments.keys() <= allowed else None


def _kind(view: Relation, column: object) -> str:
    """Return a column's type without parameters; empty if the column does not exist."""
    found = next((c.type for c in view.columns if c.name == column), "")
    return found.partition("(")[0]


def _nothing(_: Mapping[str, Any], __: Relation) -> Needs:
    return Needs()


def _aggregate(name: str, sql: str, kinds: frozenset[str]) -> _Judge:
    """One number of a column. `sql` contains {} for the column."""

    def judge(arguments: Mapping[str, Any], view: Relation) -> Needs | None:
        column = arguments.get("column")
        if not isinstance(column, str) or _kind(view, column) not in kinds:
            return None
        return Needs({Number(name, (column,)): sql.replace("{}", quoted(column)), **_nulls(column)})

    return judge


def _nulls(*columns: str) -> dict[Number, str]:
    """The number of rows that are NULL in all of these columns."""
    return {Number("nulls", columns): f"count_if({_all_null(columns)})"}


def _in_set(arguments: Mapping[str, Any], view: Relation) -> Needs | None:
    column, values = arguments.get("column"), arguments.get("value_set")
    if not isinstance(column, str) or not _fit(values, _kind(view, column)):
        return None
    return Needs(values=(column,))


def _fit(values: object, kind: str) -> bool:
    """Return whether all values of a set have the column's type, so that Spark and Python compare them alike."""
    if not isinstance(values, list) or not values or kind not in _IN_SETS:
        return False
    return all(isinstance(v, str) if kind == "string" else _is_number(v, int) for v in values)


def _most_common(arguments: Mapping[str, Any], view: Relation) -> Needs | None:
    return (
        _in_set(arguments, view) if "ties_okay" not in arguments or isinstance(arguments["ties_okay"], bool) else None
    )


def _unique(arguments: Mapping[str, Any], view: Relation) -> Needs | None:
    column = arguments.get("column")
    if not isinstance(column, str) or _kind(view, column) not in _HASHED or not _share(arguments):
        return None
    return Needs(_nulls(column), repeated=((column,),))


def _compound(arguments: Mapping[str, Any], view: Relation) -> Needs | None:
    columns = arguments.get("column_list")
    if not isinstance(columns, list) or len(columns) < 2 or len({*columns}) < len(columns) or not _share(arguments):
        return None
    if not all(isinstance(c, str) and _kind(view, c) in _HASHED for c in columns):
        return None
    return Needs(_nulls(*columns), repeated=(tuple(columns),))


def _all_null(columns: Sequence[str]) -> str:
    return " AND ".join(f"{quoted(c)} IS NULL" for c in columns)


def _share(arguments: Mapping[str, Any]) -> bool:
    share = arguments.get("mostly", 1)
    return not isinstance(share, bool) and isinstance(share, int | float) and 0 < share <= 1


def _null(arguments: Mapping[str, Any], view: Relation) -> Needs | None:
    column = arguments.get("column")
    return Needs(_nulls(column)) if isinstance(column, str) and _kind(view, column) and _share(arguments) else None


def _by_row(
    metric: str, told_by: Sequence[str], condition: Callable[[str, str, Mapping[str, Any]], str | None]
) -> _Judge:
    """A rule on single rows that some rows may miss.

    Args:
        told_by: the names of its arguments, without the column.
        condition: (column as SQL, its type, arguments) -> the condition that a row meets; None if it is not known to
            equal the one of GX's Spark engine.
    """

    def judge(arguments: Mapping[str, Any], view: Relation) -> Needs | None:
        column = arguments.get("column")
        if not isinstance(column, str) or not _share(arguments):
            return None
        met = condition(quoted(column), _kind(view, column), arguments)
        if met is None:
            return None
        given = {name: arguments[name] for name in told_by if arguments.get(name) not in (None, False)}
        number = Number(f"missed {hashlib.sha256(repr((metric, given)).encode()).hexdigest()[:32]}", (column,))
        missed = Missed(number, metric, column, given)
        sql = f"count_if({quoted(column)} IS NOT NULL AND NOT ({met}))"
        return Needs({number: sql, **_nulls(column)}, missed=(missed,))

    return judge


def _is_number(value: object, *kinds: type) -> bool:
    if isinstance(value, float):
        return float in kinds and math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _bounds(what: str, arguments: Mapping[str, Any], literal: Callable[[Any], str]) -> str | None:
    parts = []
    for name, strict, sign in (("min_value", "strict_min", ">"), ("max_value", "strict_max", "<")):
        if (bound := arguments.get(name)) is None:
            continue
        if not _is_number(bound, int, float) or not isinstance(arguments.get(strict, False), bool):
            return None
        parts.append(f"{what} {sign}{'' if arguments.get(strict) else '='} {literal(bound)}")
    return " AND ".join(parts) or None


def _between(column: str, kind: str, arguments: Mapping[str, Any]) -> str | None:
    # Great Expectations passes its bounds to Spark as doubles.
    return (
        _bounds(column, arguments, lambda bound: f"CAST({float(bound)!r} AS DOUBLE)")
        if kind in _INTEGERS | {"double"}
        else None
    )


def _length_between(column: str, kind: str, arguments: Mapping[str, Any]) -> str | None:
    if kind != "string" or any(isinstance(arguments.get(name), float) for name in ("min_value", "max_value")):
        return None
    return _bounds(f"length({column})", arguments, str)


def _length(column: str, kind: str, arguments: Mapping[str, Any]) -> str | None:
    return (
        f"length({column}) = {arguments['value']}"
        if kind == "string" and _is_number(arguments.get("value"), int)
        else None
    )


def _member(column: str, kind: str, arguments: Mapping[str, Any]) -> str | None:
    values = arguments.get("value_set")
    if not _fit(values, kind):
        return None
    assert isinstance(values, list), "a set that fits is a list"
    return f"{column} IN ({', '.join(string_text(v) if kind == 'string' else str(v) for v in values)})"


def _no_member(column: str, kind: str, arguments: Mapping[str, Any]) -> str | None:
    found = _member(column, kind, arguments)
    return None if found is None else f"NOT {found}"


def _matches(column: str, kind: str, arguments: Mapping[str, Any]) -> str | None:
    pattern = arguments.get("regex")
    return f"{column} RLIKE {string_text(pattern)}" if kind == "string" and isinstance(pattern, str) else None


def _no_match(column: str, kind: str, arguments: Mapping[str, Any]) -> str | None:
    found = _matches(column, kind, arguments)
    return None if found is None else f"NOT {found}"


_COLUMN = frozenset({"column"})
_BETWEEN = frozenset({"min_value", "max_value", "strict_min", "strict_max"})
_NUMBER = _COLUMN | _BETWEEN
_MOSTLY = _COLUMN | {"mostly"}
_SPAN = ("min_value", "max_value", "strict_min", "strict_max")

_KEPT: Mapping[str, tuple[frozenset[str], _Judge]] = {
    "expect_table_row_count_to_be_between": (_BETWEEN, _nothing),
    "expect_table_row_count_to_equal": (frozenset({"value"}), _nothing),
    "expect_column_max_to_be_between": (_NUMBER, _aggregate("max", "max({})", _ORDERED)),
    "expect_column_min_to_be_between": (_NUMBER, _aggregate("min", "min({})", _ORDERED)),
    "expect_column_mean_to_be_between": (_NUMBER, _aggregate("mean", "try_avg({})", _WIDE)),
    "expect_column_sum_to_be_between": (_NUMBER, _aggregate("sum", "try_sum({})", _NUMBERS)),
    "expect_column_stdev_to_be_between": (_NUMBER, _aggregate("stdev", "stddev_samp({})", _NUMBERS)),
    "expect_column_unique_value_count_to_be_between": (_NUMBER, _aggregate("distinct", "count(DISTINCT {})", _HASHED)),
    "expect_column_proportion_of_unique_values_to_be_between": (
        _NUMBER,
        _aggregate("distinct", "count(DISTINCT {})", _HASHED),
    ),
    "expect_column_proportion_of_non_null_values_to_be_between": (_NUMBER, _null),
    "expect_column_distinct_values_to_be_in_set": (_COLUMN | {"value_set"}, _in_set),
    "expect_column_distinct_values_to_contain_set": (_COLUMN | {"value_set"}, _in_set),
    "expect_column_distinct_values_to_equal_set": (_COLUMN | {"value_set"}, _in_set),
    "expect_column_most_common_value_to_be_in_set": (_COLUMN | {"value_set", "ties_okay"}, _most_common),
    "expect_column_values_to_be_unique": (_MOSTLY, _unique),
    "expect_compound_columns_to_be_unique": (frozenset({"column_list", "mostly"}), _compound),
    "expect_column_values_to_not_be_null": (_MOSTLY, _null),
    "expect_column_values_to_be_null": (_MOSTLY, _null),
    "expect_column_values_to_be_between": (_MOSTLY | _BETWEEN, _by_row("column_values.between", _SPAN, _between)),
    "expect_column_values_to_be_in_set": (
        _MOSTLY | {"value_set"},
        _by_row("column_values.in_set", ("value_set",), _member),
    ),
    "expect_column_values_to_not_be_in_set": (
        _MOSTLY | {"value_set"},
        _by_row("column_values.not_in_set", ("value_set",), _no_member),
    ),
    "expect_column_value_lengths_to_be_between": (
        _MOSTLY | _BETWEEN,
        _by_row("column_values.value_length.between", _SPAN, _length_between),
    ),
    "expect_column_value_lengths_to_equal": (
        _MOSTLY | {"value"},
        _by_row("column_values.value_length.equals", ("value",), _length),
    ),
    "expect_column_values_to_match_regex": (
        _MOSTLY | {"regex"},
        _by_row("column_values.match_regex", ("regex",), _matches),
    ),
    "expect_column_values_to_not_match_regex": (
        _MOSTLY | {"regex"},
        _by_row("column_values.not_match_regex", ("regex",), _no_match),
    ),
}
"""By expectation: its possible arguments, and a function that returns its needs."""

EXPECTATIONS = frozenset(_KEPT)


# --- the views ----------------------------------------------------------------------------------------------------


def _select(numbers: Mapping[Number, str], view: str) -> str:
    columns = ", ".join(f"{sql} AS {quoted(number.column)}" for number, sql in numbers.items())
    return f"SELECT {columns} FROM {quoted(view)}"


def _repeated(view: str, columns: Sequence[str]) -> str:
    names = [quoted(column) for column in columns]
    picked = ", ".join(f"{name} AS {repeated_column(place)}" for place, name in enumerate(names))
    rest = f"WHERE NOT ({_all_null(columns)}) GROUP BY {', '.join(names)} HAVING count(*) > 1"
    return f"SELECT {picked}, count(*) AS `rows` FROM {quoted(view)} {rest}"


def _is_unique_by_key(view: Relation, columns: Sequence[str]) -> bool:
    """Return whether the view's key is among these columns. They cannot have duplicates then."""
    names = [c.name for c in view.columns]
    return all(place < len(names) and names[place] in columns for place in key_of(view))


def statements_for(
    suites: Sequence[Suite], catalog: Catalog, stored_rows: Callable[[Relation], int]
) -> Iterator[tuple[Path, str]]:
    """Yield the statements that create the measures of a pipeline's suites, each with the file of its suite.

    A view gets measures if it is large, or if its suite requests them. A view that already has measures keeps them,
    even if it has become small.

    Args:
        catalog: the catalog with the views of the pipeline's files.
        stored_rows: returns the current number of stored rows of a relation.

    Raises: QualitySuiteError if a relation does not exist or an expectation is not valid.
    """
    there = {relation.name: relation for relation in catalog.live()}
    for suite in suites:
        view = relation_of(suite, there)
        require_valid(suite, view)
        if suite.maintain or numbers_view(view.name) in there or stored_rows(view) > SMALL_VIEW_ROWS:
            for name, select in measures_of(suite, view).views.items():
                yield suite.file, f"CREATE MATERIALIZED VIEW {quoted(name)} AS {select}"
