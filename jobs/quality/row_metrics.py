"""Metrics of Great Expectations over Arrow rows, with the values of its Spark engine.

The engine of jobs/quality/metrics_engine.py answers each metric with `RowMetrics.metric`. jobs/quality/without_spark.py
lists the expectations, arguments and column types for which the values are known to equal Spark's.

The values follow Spark's rules: NaN is greater than any number and equals itself, -0.0 equals 0.0, integers and
decimals are compared with a bound as doubles, a comparison with NULL is neither true nor false, and lengths count code
points.

Cost: one vectorized pass over a column per rule. A result is remembered, because Great Expectations requests the count,
the values and the rows of a rule separately.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.kernels.patterns import regex_of
from tussock.jobs.quality.conditions import compared, filter_of, number
from tussock.jobs.quality.errors import UnknownMetricError
from tussock.statestore.types import type_name

_INNER = (".condition", ".map", ".aggregate_fn", ".parameters", ".standard_deviation.partial")
"""Suffixes of metrics that Great Expectations plans as intermediate steps. They are never computed here."""

_PARTIAL = ("column.value_counts", "column.distinct_values", "column.non_null_count.partial")
"""Metrics that Great Expectations requests next to their parts, which it then uses."""


def is_inner(metric: str) -> bool:
    """Return whether a metric is an intermediate step, whose value nobody reads."""
    return metric.endswith(_INNER) or metric in _PARTIAL


class RowMetrics:
    """The rows of a view, or the changed ones, as input of metrics.

    Requires: jobs/quality/without_spark.py has no objection to the expectations.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._conditions: dict[str, pa.Table] = {}
        self._failing: dict[str, tuple[pa.Table, pa.Table]] = {}

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns: (name, type)."""
        return tuple((field.name, type_name(field.type)) for field in self._rows.schema)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self._rows.num_rows)

    def metric(self, name: str, domain: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        """Return a metric by its name in Great Expectations. Raises UnknownMetricError."""
        if is_inner(name):
            return None
        rows = self._domain(domain)
        match name:
            case "table.row_count":
                return rows.num_rows
            case "table.columns":
                return [column for column, _ in self.columns]
            case "table.column_types":
                return [{"name": column, "type": kind} for column, kind in self.columns]
            case "unexpected_rows_query.row_count":
                return self._unexpected(arguments).num_rows
            case "unexpected_rows_query.table":
                return self._unexpected(arguments).slice(0, _MOST_UNEXPECTED).to_pylist()
        family, _, detail = name.rpartition(".")
        if (rule := _RULES.get(family)) is not None and detail in _DETAILS:
            return self._detail(detail, family, rule, rows, domain, arguments)
        if isinstance(column := domain.get("column"), str):
            return _of_column(name, rows[column], rows.schema.field(column).type, arguments)
        raise UnknownMetricError(name, dict(domain))

    def _domain(self, domain: Mapping[str, Any]) -> pa.Table:
        """Return the rows that meet the expectation's condition."""
        if not (condition := domain.get("row_condition")):
            return self._rows
        key = repr(condition)
        if key not in self._conditions:
            meets = filter_of(condition, self._rows.schema)
            assert meets is not None, "conditions that are not understood are left to Spark"
            self._conditions[key] = self._rows.filter(meets(self._rows))
        return self._conditions[key]

    def _unexpected(self, arguments: Mapping[str, Any]) -> pa.Table:
        return self._domain({"row_condition": condition_of_query(arguments["unexpected_rows_query"])})

    def _detail(
        self,
        detail: str,
        family: str,
        rule: "_Rule",
        rows: pa.Table,
        domain: Mapping[str, Any],
        arguments: Mapping[str, Any],
    ) -> Any:
        """Return one of a rule's metrics: the count of failing rows, their values, or the rows."""
        columns = columns_of(domain)
        given = {name: arguments.get(name) for name in _TELLING if arguments.get(name) is not None}
        key = repr((family, sorted(domain.items(), key=repr), sorted(given.items())))
        if key not in self._failing:
            judged = rows.filter(_taken(rows, columns, domain.get("ignore_row_if")))
            if rule.skips_null:
                judged = judged.filter(pc.is_valid(judged[columns[0]]))
            self._failing[key] = judged, judged.filter(rule.fails(judged, columns, given))
        judged, failing = self._failing[key]
        form = arguments.get("result_format") or {}
        most = form.get("partial_unexpected_count", 20)
        match detail:
            case "unexpected_count":
                return failing.num_rows
            case "filtered_row_count":
                return judged.num_rows
            case "unexpected_values":
                values = [python_values(failing[column].slice(0, most)) for column in columns]
                if "column" in domain:
                    return values[0]
                if "column_A" in domain:
                    return list(zip(*values, strict=True))
                return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
            case "unexpected_index_list":
                if not (names := form.get("unexpected_index_column_names")):
                    return None
                shown = {name: python_values(failing[name].slice(0, most)) for name in (*names, *columns)}
                return [dict(zip(shown, row, strict=True)) for row in zip(*shown.values(), strict=True)] or None
        return None


_DETAILS = frozenset(
    {"unexpected_count", "filtered_row_count", "unexpected_values", "unexpected_index_list", "unexpected_index_query"}
)
_TELLING = ("min_value", "max_value", "strict_min", "strict_max", "value_set", "value", "regex", "or_equal")
_MOST_UNEXPECTED = 200
_UNEXPECTED_ROWS = "SELECT * FROM {batch} WHERE "


def condition_of_query(query: object) -> str | None:
    """Return the condition of a query over the view's rows, `SELECT * FROM {batch} WHERE …`; None for another query."""
    text = " ".join(str(query).split()).rstrip("; ")
    return text[len(_UNEXPECTED_ROWS) :] if text.upper().startswith(_UNEXPECTED_ROWS.upper()) else None


def columns_of(domain: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of an expectation, by its arguments."""
    if isinstance(column := domain.get("column"), str):
        return (column,)
    if "column_A" in domain:
        return domain["column_A"], domain["column_B"]
    return tuple(domain.get("column_list", ()))


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return values as Spark collects them: an instant becomes a naive time in this process's time zone."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return [None if at is None else at.astimezone().replace(tzinfo=None) for at in values]
    return values


def _taken(rows: pa.Table, columns: Sequence[str], ignored: str | None) -> pa.ChunkedArray:
    """Return a mask of the rows that an expectation on several columns judges."""
    missing = [pc.is_null(rows[column]) for column in columns]
    if len(columns) < 2 or ignored in (None, "neither", "never"):
        return pa.chunked_array([pa.array(np.ones(rows.num_rows, bool))])
    together = pc.and_ if ignored in ("both_values_are_missing", "all_values_are_missing") else pc.or_
    found = missing[0]
    for one in missing[1:]:
        found = together(found, one)
    return pc.invert(found)


# --- rules on single rows -----------------------------------------------------------------------------------------


class _Rule:
    """A rule that each row meets or fails. `fails` returns a mask; NULL in it counts as met."""

    def __init__(
        self, fails: Callable[[pa.Table, Sequence[str], Mapping[str, Any]], Any], *, skips_null: bool = True
    ) -> None:
        self.fails, self.skips_null = fails, skips_null


def _between(values: Any, given: Mapping[str, Any]) -> Any:
    low, high = given.get("min_value"), given.get("max_value")
    if pa.types.is_date(values.type):
        low, high = (None if bound is None else _date(bound) for bound in (low, high))
    else:
        values = number(values)
        low, high = (None if bound is None else float(bound) for bound in (low, high))
    met = pa.scalar(True)
    if low is not None:
        above = (pc.greater if given.get("strict_min") else pc.greater_equal)(values, low)
        met = pc.or_kleene(above, pc.is_nan(values)) if pa.types.is_floating(values.type) else above
    if high is not None:
        met = pc.and_kleene(met, (pc.less if given.get("strict_max") else pc.less_equal)(values, high))
    return met


def _date(bound: object) -> date:
    if isinstance(bound, datetime):
        return bound.date()
    return bound if isinstance(bound, date) else date.fromisoformat(str(bound))


def _outside(rows: pa.Table, columns: Sequence[str], given: Mapping[str, Any]) -> Any:
    return pc.invert(_between(rows[columns[0]], given))


def _member(column: Any, values: Sequence[Any]) -> Any:
    if pa.types.is_decimal(column.type):
        whole = pa.array([Decimal(value) for value in values], pa.decimal128(38, 0)).cast(pa.decimal256(76, 18))
        return pc.is_in(column.cast(pa.decimal256(76, 18)), value_set=whole)
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64())  # a set may contain values beyond the column's type
    return pc.is_in(column, value_set=pa.array(values, column.type))


def _repeated(rows: pa.Table, columns: Sequence[str], _: Mapping[str, Any]) -> Any:
    """Return a mask of the rows whose values in these columns occur more than once. NULL equals NULL."""
    if not rows.num_rows:
        return pa.array([], pa.bool_())
    keys = [pc.dictionary_encode(_alike(rows[c]), null_encoding="encode").combine_chunks().indices for c in columns]
    # Combine the codes of the columns into one number per row; each step renumbers, so that it never overflows.
    code = np.zeros(rows.num_rows, np.int64)
    for indices in keys:
        numbers = indices.to_numpy(zero_copy_only=False).astype(np.int64)
        code = np.unique(code * (numbers.max(initial=0) + 1) + numbers, return_inverse=True)[1]
    return pa.array(np.bincount(code, minlength=1)[code] > 1)


def _alike(column: Any) -> Any:
    """Return values in which Spark's equal values are equal: -0.0 becomes 0.0."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _length_outside(rows: pa.Table, columns: Sequence[str], given: Mapping[str, Any]) -> Any:
    return pc.invert(_between(pc.utf8_length(rows[columns[0]]), given))


def _unequal(rows: pa.Table, columns: Sequence[str], _: Mapping[str, Any]) -> pa.Array:
    """Return which pairs differ; NULL differs from every value, as in Spark's null-safe comparison."""
    one, other = rows[columns[0]], rows[columns[1]]
    return pc.coalesce(pc.not_equal(one, other), pc.xor(pc.is_null(one), pc.is_null(other)))


def _greater(rows: pa.Table, columns: Sequence[str], given: Mapping[str, Any]) -> Any:
    a, b = (rows[column] for column in columns)
    met = compared(">=" if given.get("or_equal") else ">", a, b)
    if given.get("or_equal"):
        met = pc.or_kleene(met, pc.and_(pc.is_null(a), pc.is_null(b)))
    return pc.invert(met)


_RULES: Mapping[str, _Rule] = {
    "column_values.nonnull": _Rule(lambda rows, columns, _: pc.is_null(rows[columns[0]]), skips_null=False),
    "column_values.null": _Rule(lambda rows, columns, _: pc.is_valid(rows[columns[0]]), skips_null=False),
    "column_values.between": _Rule(_outside),
    "column_values.in_set": _Rule(lambda rows, c, given: pc.invert(_member(rows[c[0]], given["value_set"]))),
    "column_values.not_in_set": _Rule(lambda rows, c, given: _member(rows[c[0]], given["value_set"])),
    "column_values.unique": _Rule(_repeated),
    "column_values.value_length.between": _Rule(_length_outside),
    "column_values.value_length.equals": _Rule(
        lambda rows, c, given: pc.not_equal(pc.utf8_length(rows[c[0]]), given["value"])
    ),
    "column_values.match_regex": _Rule(
        lambda rows, c, given: pc.invert(pc.match_substring_regex(rows[c[0]], regex_of(given["regex"])))
    ),
    "column_values.not_match_regex": _Rule(
        lambda rows, c, given: pc.match_substring_regex(rows[c[0]], regex_of(given["regex"]))
    ),
    "column_pair_values.a_greater_than_b": _Rule(_greater, skips_null=False),
    "column_pair_values.equal": _Rule(_unequal, skips_null=False),
    "compound_columns.unique": _Rule(_repeated, skips_null=False),
}


# --- numbers of a column ------------------------------------------------------------------------------------------


def _of_column(name: str, column: Any, kind: pa.DataType, arguments: Mapping[str, Any]) -> Any:
    filled = len(column) - column.null_count
    match name:
        case "column.max" | "column.min":
            return _extreme(name, column)
        case "column.sum":
            return _sum(column)
        case "column.mean":
            return _mean(column, kind)
        case "column.standard_deviation":
            return pc.stddev(number(column), ddof=1).as_py()
        case "column.median":
            middle = [
                value for value in _at_shares(column, [0.5, 0.5 + 1 / (2 + 2 * len(column))]) if value is not None
            ]
            return sum(middle) / 2 if middle else float("nan")
        case "column.quantile_values":
            return _at_shares(column, list(arguments["quantiles"]))
        case "column.distinct_values.count":
            return pc.count_distinct(_alike(column)).as_py()
        case "column.unique_proportion":
            return pc.count_distinct(_alike(column)).as_py() / filled if filled else 0
        case "column.non_null_count":
            return filled
        case "column.non_null_proportion":
            return filled / len(column) if len(column) else 0
        case "column.most_common_value":
            counts = pc.value_counts(column.drop_null())
            most = pc.max(counts.field(1))
            return sorted(counts.field(0).filter(pc.equal(counts.field(1), most)).to_pylist())
    if name.startswith("column.distinct_values."):
        return distinct_in_set(name.removeprefix("column.distinct_values."), pc.unique(column.drop_null()), arguments)
    raise UnknownMetricError(name, None)


def distinct_in_set(what: str, there: Any, arguments: Mapping[str, Any]) -> Any:
    """Compare the distinct values of a column with a set: the values (or their count) that one of them lacks."""
    wanted = list(arguments.get("value_set") or ())
    if pa.types.is_integer(there.type):
        there = there.cast(pa.int64())  # a set may contain values beyond the column's type
    limit = arguments.get("limit") or 20
    if what.startswith("not_in_set"):
        others = there.filter(pc.invert(pc.is_in(there, value_set=pa.array(wanted, there.type))))
        return len(others) if what.endswith(".count") else sorted(others.to_pylist())[:limit]
    known = {*there.to_pylist()}
    missing = [value for value in wanted if value not in known]
    return len(missing) if what.endswith(".count") else missing[:limit]


def _extreme(name: str, column: Any) -> Any:
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        numbers = column.filter(pc.invert(pc.is_nan(column)))  # NaN is the greatest number
        if name == "column.max" or numbers.null_count == len(numbers):
            return float("nan")
        column = numbers
    found = (pc.max if name == "column.max" else pc.min)(column).as_py()
    return float(found) if isinstance(found, Decimal) else found


def _sum(column: Any) -> float | None:
    if not pa.types.is_decimal(column.type):
        total: float | None = pc.sum(number(column)).as_py()
        return total
    found = _exact_sum(column)
    return None if found is None else float(found)


def _exact_sum(column: Any) -> Decimal | None:
    found: Decimal | None = pc.sum(column.cast(pa.decimal256(76, column.type.scale))).as_py()
    return found


def _mean(column: Any, kind: pa.DataType) -> float | None:
    if not pa.types.is_decimal(kind):
        mean_of_doubles: float | None = pc.mean(number(column)).as_py()
        return mean_of_doubles
    total = _exact_sum(column)
    if total is None:
        return None
    with localcontext(prec=76):  # Spark's average of decimals has four more digits
        mean = (total / (len(column) - column.null_count)).quantize(
            Decimal(1).scaleb(-min(kind.scale + 4, 38)), ROUND_HALF_UP
        )
    return float(mean)


def _at_shares(column: Any, shares: Sequence[float]) -> list[float | None]:
    """Return the values at these shares of the ordered values, as Spark's approxQuantile without an error does."""
    values = number(column.drop_null()).to_numpy()
    values = np.sort(values[~np.isnan(values)])
    if not len(values):
        return [None] * len(shares)
    ranks = [min(max(int(np.ceil(share * len(values))), 1), len(values)) for share in shares]
    return [float(values[rank - 1]) for rank in ranks]
