"""Measures of a view as metrics of Great Expectations, so that its decisions equal those over all rows."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.quality.errors import UnknownMetricError
from tussock.jobs.quality.expectations import (
    ROWS,
    Duplicates,
    IgnoredRows,
    Number,
    RowRule,
    condition_sql,
    ignored_rows,
    without_end,
)
from tussock.jobs.quality.measures import (
    AnsweredItem,
    Measures,
    SuiteMeasures,
    failing_view,
    is_unique_by_key,
    numbers_view,
    repeated_column,
    repeated_view,
    unexpected_view,
    values_view,
)
from tussock.jobs.quality.record import SAMPLE_KEYS
from tussock.jobs.quality.text import item_text
from tussock.jobs.reading.reader import scan_relation
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.months import shown_values
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.types import arrow_type

NOT_MAINTAINED = (
    "the store does not maintain it in this form. `tussock apply` does from the next epoch on, or notes why not"
)
"""The reason why Spark judges an expectation whose hidden views do not exist at the epoch."""

_INNER = (".condition", ".map", ".aggregate_fn", ".parameters", ".standard_deviation.partial")
"""Suffixes of metrics that Great Expectations plans as intermediate steps. They are never computed here."""

_PARTIAL = ("column.value_counts", "column.distinct_values", "column.non_null_count.partial")
"""Metrics that Great Expectations requests next to their parts, which it then uses."""

_MOST_UNEXPECTED = 200


@dataclass(frozen=True, slots=True)
class WrongRows:
    """Rows that fail an expectation: their number, and the first of them as columns of values."""

    count: int
    sample: pa.Table

    def values(self, columns: Sequence[str], most: int) -> list[tuple[Any, ...]]:
        """Return the values of some columns in the first rows."""
        return list(zip(*(_python_values(self.sample[column].slice(0, most)) for column in columns), strict=True))

    def rows(self) -> list[dict[str, Any]]:
        """Return the first rows, by column."""
        names, count = self.sample.column_names, self.sample.num_rows
        return [dict(zip(names, row, strict=True)) for row in self.values(names, count)]


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return values as Spark collects them: an instant becomes a naive time in this process's time zone.

    Texts stand for values that Python lacks, also in its time zone.
    """
    values = shown_values(column)
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return [_local_time(at) if isinstance(at, datetime) else at for at in values]
    return values


def _local_time(at: datetime) -> datetime | str:
    try:
        return at.astimezone().replace(tzinfo=None)
    except OverflowError:
        return str(at)


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """The contents of the measures of a view's rows that meet one condition."""

    numbers: Mapping[Number, Any]
    values: Mapping[str, pa.Table]  # by column: (value, rows)
    duplicates: Mapping[Duplicates, WrongRows]
    failing: Mapping[Number, tuple[RowRule, WrongRows]]  # by the number of failing rows
    unexpected: Mapping[str, WrongRows]  # by query

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.numbers[ROWS])

    def column_metric(self, name: str, column: str, arguments: Mapping[str, Any]) -> Any:
        """Return a metric of a column. Raises KeyError if it is unknown."""
        match name:
            case "column.max" | "column.min" | "column.mean" | "column.sum":
                value = self.numbers[Number(name.removeprefix("column."), (column,))]
                # GX's Spark engine sums integers as doubles, and GX shows decimals as doubles: 4507.6, not 4507.60.
                is_double = isinstance(value, Decimal) or (name == "column.sum" and isinstance(value, int))
                return float(value) if is_double else value
            case "column.standard_deviation":
                return self.numbers[Number("stdev", (column,))]
            case "column.distinct_values.count":
                return self.numbers[Number("distinct", (column,))]
            case "column.unique_proportion":
                filled = self.rows - self._nulls(column)
                return self.numbers[Number("distinct", (column,))] / filled if filled else 0
            case "column.non_null_count":
                return self.rows - self._nulls(column)
            case "column.non_null_proportion":
                return (self.rows - self._nulls(column)) / self.rows if self.rows else 0
            case "column.most_common_value":
                return _most_common_values(self.values[column])
            case "column.median":
                shares = [0.5, 0.5 + 1 / (2 + 2 * self.rows)]
                middle = [value for value in _values_at(self.values[column], shares) if value is not None]
                return sum(middle) / 2 if middle else float("nan")
            case "column.quantile_values":
                return _values_at(self.values[column], list(arguments["quantiles"]))
        family, _, what = name.partition("column.distinct_values.")
        if family or not what:
            raise KeyError(name)
        return _compare_distinct(what, self.values[column]["value"], arguments)

    def _nulls(self, column: str) -> int:
        return int(self.numbers[Number("nulls", (column,))])

    def wrong_rows(self, family: str, domain: Mapping[str, Any], arguments: Mapping[str, Any]) -> WrongRows:
        """Return the rows that fail a rule. Raises UnknownMetricError."""
        columns, ignored = _columns_of(domain), ignored_rows(domain.get("ignore_row_if"))
        if family in ("column_values.unique", "compound_columns.unique"):
            of = Duplicates(columns, IgnoredRows.ANY_MISSING if len(columns) == 1 else ignored or IgnoredRows.NONE)
            return self.duplicates[of]
        for rule, wrong in self.failing.values():
            same_rows = len(columns) == 1 or rule.ignored is ignored
            if (rule.metric, rule.columns) == (family, columns) and same_rows and _same(rule.arguments, arguments):
                return wrong
        if family == "column_values.nonnull":  # each rule on values needs the number of NULLs
            return WrongRows(self._nulls(columns[0]), pa.table({}))
        raise UnknownMetricError(family, columns)

    def judged_rows(self, domain: Mapping[str, Any]) -> int:
        """Return the number of rows that an expectation on several columns judges."""
        ignored = ignored_rows(domain.get("ignore_row_if")) or IgnoredRows.NONE
        left_out = 0 if ignored is IgnoredRows.NONE else int(self.numbers[ignored.counted(_columns_of(domain))])
        return self.rows - left_out


def _columns_of(domain: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of an expectation, by its arguments."""
    if isinstance(column := domain.get("column"), str):
        return (column,)
    if "column_A" in domain:
        return domain["column_A"], domain["column_B"]
    return tuple(domain.get("column_list", ()))


@dataclass(frozen=True, slots=True)
class ViewMetrics:
    """The metrics of a view at an epoch.

    Args:
        columns: the view's: (name, type).
        parts: the measured rows, by row condition.
    """

    columns: tuple[tuple[str, str], ...]
    parts: Mapping[str, MeasuredRows]

    @property
    def rows(self) -> int:
        """The number of rows of the view."""
        return self.parts[""].rows

    def metric(self, name: str, domain: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        """Return a metric by its name in Great Expectations. Raises UnknownMetricError."""
        if name.endswith(_INNER) or name in _PARTIAL:
            return None
        part = self.parts[condition_sql(domain.get("row_condition")) or ""]
        match name:
            case "table.row_count":
                return part.rows
            case "table.columns":
                return [column for column, _ in self.columns]
            case "table.column_types":
                return [{"name": column, "type": kind} for column, kind in self.columns]
            case "unexpected_rows_query.row_count":
                return part.unexpected[without_end(arguments["unexpected_rows_query"])].count
            case "unexpected_rows_query.table":
                return part.unexpected[without_end(arguments["unexpected_rows_query"])].rows()
        family, _, detail = name.rpartition(".")
        if detail == "filtered_row_count":
            return part.judged_rows(domain)
        if detail in _DETAILS:
            return _detail(detail, part.wrong_rows(family, domain, arguments), domain, arguments)
        if isinstance(column := domain.get("column"), str):
            try:
                return part.column_metric(name, column, arguments)
            except KeyError as err:
                raise UnknownMetricError(name, column) from err
        raise UnknownMetricError(name, dict(domain))


_DETAILS = frozenset({"unexpected_count", "unexpected_values", "unexpected_index_list", "unexpected_index_query"})


def _detail(detail: str, wrong: WrongRows, domain: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Return one of a rule's metrics: the number of failing rows, their values, or the rows."""
    columns, form = _columns_of(domain), arguments.get("result_format") or {}
    most = form.get("partial_unexpected_count", SAMPLE_KEYS)
    match detail:
        case "unexpected_count":
            return wrong.count
        case "unexpected_values" if wrong.sample.num_columns:
            rows = wrong.values(columns, most)
            if "column" in domain:
                return [value for (value,) in rows]
            return rows if "column_A" in domain else [dict(zip(columns, row, strict=True)) for row in rows]
        case "unexpected_values":
            return []
        case "unexpected_index_list":
            if not (names := form.get("unexpected_index_column_names")) or not wrong.sample.num_columns:
                return None
            # Duplicates are counted by value, so only their own columns are known.
            shown = [name for name in dict.fromkeys((*names, *columns)) if name in wrong.sample.column_names]
            return [dict(zip(shown, row, strict=True)) for row in wrong.values(shown, most)] or None
    return None


# --- values -------------------------------------------------------------------------------------------------------


def _most_common_values(counts: pa.Table) -> list[Any]:
    most = pc.max(counts["rows"]).as_py()
    return [] if most is None else sorted(counts.filter(pc.equal(counts["rows"], most))["value"].to_pylist())


def _values_at(counts: pa.Table, shares: Sequence[float]) -> list[float | None]:
    """Return the values at these shares of the ordered values, as Spark's approxQuantile without an error does."""
    column = counts["value"]
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())  # Arrow's cast of decimals to doubles does not round to the nearest
    values = column.cast(pa.float64(), safe=False).to_numpy()
    rows = counts["rows"].to_numpy()[~np.isnan(values)]
    values = values[~np.isnan(values)]
    if not len(values):
        return [None] * len(shares)
    order = np.argsort(values)
    upto = np.cumsum(rows[order])
    ranks = [min(max(int(np.ceil(share * upto[-1])), 1), upto[-1]) for share in shares]
    return [float(values[order][np.searchsorted(upto, rank)]) for rank in ranks]


def _compare_distinct(what: str, values: Any, arguments: Mapping[str, Any]) -> Any:
    """Compare the distinct values of a column with a set: the values (or their count) that one of them lacks."""
    wanted = list(arguments.get("value_set") or ())
    if pa.types.is_integer(values.type):
        values = values.cast(pa.int64())  # a set may contain values beyond the column's type
    limit = arguments.get("limit") or 20
    family, _, is_count = what.partition(".")
    if family == "not_in_set":
        others = values.filter(pc.invert(pc.is_in(values, value_set=pa.array(wanted, values.type))))
        return len(others) if is_count else sorted(others.to_pylist())[:limit]
    known = {*values.to_pylist()}
    missing = [value for value in wanted if value not in known]
    return len(missing) if is_count else missing[:limit]


def _same(rule: Mapping[str, Any], requested: Mapping[str, Any]) -> bool:
    """Compare the arguments of two rules. GX adds arguments with defaults, and converts integers to floats."""
    described = {
        name: value
        for name, value in requested.items()
        if name in _TELLING and value is not None and value is not False
    }
    defaults = {"match_on": "any"} if "regex_list" in rule else {}
    return _plain(defaults | described) == _plain(defaults | dict(rule))


_TELLING = frozenset(
    {
        "min_value",
        "max_value",
        "strict_min",
        "strict_max",
        "value_set",
        "value",
        "regex",
        "regex_list",
        "match_on",
        "or_equal",
    }
)


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments in a form that ignores the order of sets. GX passes a date as an instant."""
    return {name: _plain_value(value) for name, value in arguments.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return sorted(value, key=repr) if isinstance(value, list | tuple | set | frozenset) else value


# --- reading ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MeasureReader:
    """Reads the measures of a view at an epoch.

    Args:
        relations: the relations that a reader sees at `epoch`, by name.
    """

    objects: ObjectStore
    version: HummockVersion
    relations: Mapping[str, Relation]
    view: Relation
    epoch: int
    _numbers: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def read(self, wanted: SuiteMeasures) -> tuple[ViewMetrics | None, tuple[dict[str, Any], ...], dict[str, str]]:
        """Return the metrics, the expectations that they answer, and why they do not answer the others, by text.

        Cost: reads one row per condition, the distinct values of columns that a rule needs, and the wrong rows.
        """
        objections = {item_text(one.item): self._objection(one) for one in wanted.answered}
        answered = tuple(one for one in wanted.answered if not objections[item_text(one.item)])
        reasons = {text: why for text, why in objections.items() if why}
        if not answered:
            return None, (), reasons
        conditions = dict.fromkeys(["", *(one.condition for one in answered)])
        parts = {condition: self._part(condition, answered) for condition in conditions}
        columns = tuple((column.name, column.type) for column in self.view.columns)
        return ViewMetrics(columns, parts), tuple(one.item for one in answered), reasons

    def _objection(self, one: AnsweredItem) -> str:
        """Return why an expectation's measures cannot be used; empty if they can."""
        view, condition, needs = self.view.name, one.condition, one.needs
        names = [values_view(view, condition, column) for column in needs.values]
        names += [repeated_view(view, condition, of) for of in needs.duplicates if not self._is_unique(of)]
        names += [unexpected_view(view, needs.query)] if needs.query else []
        flags = {rule.flag for rule in needs.rules}
        columns = {number.column for number in (ROWS, *needs.numbers)}
        whole = self._is_maintained(numbers_view(view, ""), {ROWS.column})
        if not (
            whole
            and self._is_maintained(numbers_view(view, condition), columns)
            and all(self._is_maintained(name) for name in names)
            and (not flags or self._is_maintained(failing_view(view, condition), flags))
        ):
            return NOT_MAINTAINED
        numbers = self._row(condition)
        if any(numbers[number.column] is None and _is_overflow(number, numbers) for number in needs.numbers):
            return "a sum or mean exceeds its type"
        if any(numbers[number.column] is _NOT_IN_PYTHON for number in needs.numbers):
            return "its date is outside of the years 1 to 9999"
        return ""

    def _is_unique(self, duplicates: Duplicates) -> bool:
        return is_unique_by_key(self.view, duplicates.columns)

    def _is_maintained(self, name: str, columns: Set[str] = frozenset()) -> bool:
        """Return whether a measure of this view exists with these columns, and is not paused."""
        relation = self.relations.get(name)
        return (
            relation is not None
            and relation.is_internal
            and self.view.id in relation.depends_on
            and not relation.paused_at(self.epoch)
            and columns <= {column.name for column in relation.columns}
        )

    def _row(self, condition: str) -> Mapping[str, Any]:
        if condition not in self._numbers:
            row = self._table(numbers_view(self.view.name, condition))
            self._numbers[condition] = {name: _number_in(row[name]) for name in row.column_names}
        return self._numbers[condition]

    def _part(self, condition: str, answered: Sequence[AnsweredItem]) -> MeasuredRows:
        """Read the measures that some expectations need."""
        part, view = Measures(condition), self.view.name
        for one in answered:
            if one.condition == condition:
                part.add(one.needs)
        row = self._row(condition)
        numbers = {number: row[number.column] for number in part.numbers}
        return MeasuredRows(
            numbers,
            {column: self._table(values_view(view, condition, column)) for column in part.values},
            {of: self._repeated(condition, of) for of in part.duplicates},
            self._failing(condition, tuple(part.rules.values()), numbers),
            {query: self._first_rows(unexpected_view(view, query)) for query in part.queries},
        )

    def _chunks(self, name: str) -> Iterator[pa.Table]:
        return scan_relation(self.objects, self.version, self.relations[name], self.epoch)

    def _empty(self, name: str) -> pa.Table:
        return pa.schema([(c.name, arrow_type(c.type)) for c in self.relations[name].columns]).empty_table()

    def _table(self, name: str) -> pa.Table:
        return pa.concat_tables([self._empty(name), *self._chunks(name)])

    def _first_rows(self, name: str) -> WrongRows:
        count, sample = 0, [self._empty(name)]
        for rows in self._chunks(name):
            sample.append(rows.slice(0, max(0, _MOST_UNEXPECTED - count)))
            count += rows.num_rows
        return WrongRows(count, pa.concat_tables(sample))

    def _repeated(self, condition: str, duplicates: Duplicates) -> WrongRows:
        name = repeated_view(self.view.name, condition, duplicates)
        if self._is_unique(duplicates):
            return WrongRows(0, pa.table({}))
        return duplicate_rows(self._empty(name), self._chunks(name), duplicates.columns)

    def _failing(
        self, condition: str, rules: Sequence[RowRule], numbers: Mapping[Number, Any]
    ) -> dict[Number, tuple[RowRule, WrongRows]]:
        """Return the failing rows of each rule. Reads rows until each rule has its sample."""
        name = failing_view(self.view.name, condition)
        missing = {rule.flag: min(int(numbers[rule.number]), SAMPLE_KEYS) for rule in rules}
        samples = {rule.flag: [self._empty(name)] for rule in rules} if rules else {}
        for rows in self._chunks(name) if any(missing.values()) else ():
            for flag in [flag for flag, count in missing.items() if count]:
                some = rows.filter(rows[flag]).slice(0, missing[flag])
                samples[flag].append(some)
                missing[flag] -= some.num_rows
            if not any(missing.values()):
                break
        return {
            rule.number: (rule, WrongRows(int(numbers[rule.number]), pa.concat_tables(samples[rule.flag])))
            for rule in rules
        }


def duplicate_rows(empty: pa.Table, chunks: Iterator[pa.Table], columns: Sequence[str]) -> WrongRows:
    """Return the number of duplicate rows, and the first of them. Each value stands for as many rows as have it.

    Args:
        empty: no rows, with the columns of the hidden view.
    """
    count, sample, left = 0, [empty], SAMPLE_KEYS
    for rows in chunks:
        count += pc.sum(rows["rows"]).as_py() or 0
        for place in range(min(rows.num_rows, left)):
            times = min(rows["rows"][place].as_py(), left)
            sample += [rows.slice(place, 1)] * times
            left -= times
    values = pa.concat_tables(sample)
    names = [repeated_column(place) for place in range(len(columns))]
    return WrongRows(count, values.select(names).rename_columns(list(columns)))


_NOT_IN_PYTHON = object()
"""Stands for a date that Python lacks."""


def _number_in(column: pa.ChunkedArray) -> Any:
    """Return the value of a column with one row."""
    try:
        return column[0].as_py()
    except (OverflowError, ValueError):
        return _NOT_IN_PYTHON


def _is_overflow(number: Number, numbers: Mapping[str, Any]) -> bool:
    """Return whether a NULL is an overflow of its type: a sum or mean that has at least one value."""
    if number.kind not in ("sum", "mean"):
        return False
    return bool(numbers[Number("nulls", number.columns).column] < numbers[ROWS.column])
