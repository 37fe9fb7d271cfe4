"""Measures of a view as metrics of Great Expectations, so that its decisions equal those over all rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.quality.errors import UnknownMetricError
from tussock.jobs.quality.measures import (
    ROWS,
    Measures,
    Number,
    is_kept,
    numbers_view,
    repeated_column,
    repeated_view,
    values_view,
)
from tussock.jobs.quality.record import SAMPLE_KEYS
from tussock.jobs.quality.row_metrics import distinct_in_set, is_inner
from tussock.jobs.reading.reader import scan_relation
from tussock.jobs.statements.transaction import query_of
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.types import arrow_type


@dataclass(frozen=True, slots=True)
class Repeated:
    """The duplicates in some columns: the number of duplicate rows, and the first of them."""

    rows: int
    sample: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ViewMeasures:
    """The contents of a view's measures at an epoch."""

    measures: Measures
    columns: tuple[tuple[str, str], ...]  # the view's: (name, type)
    numbers: Mapping[Number, Any]
    values: Mapping[str, pa.Table]  # by column: (value, rows)
    repeated: Mapping[tuple[str, ...], Repeated]

    @property
    def rows(self) -> int:
        """The number of rows of the view."""
        return int(self.numbers[ROWS])

    def metric(self, name: str, domain: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        """Return a metric by its name in Great Expectations. Raises UnknownMetricError."""
        if is_inner(name):
            return None
        match name:
            case "table.row_count":
                return self.rows
            case "table.columns":
                return [column for column, _ in self.columns]
            case "table.column_types":
                return [{"name": column, "type": kind} for column, kind in self.columns]
        if name.startswith("compound_columns.unique."):
            return self._compound(name, tuple(domain["column_list"]))
        if isinstance(column := domain.get("column"), str):
            return self._of_column(name, column, arguments)
        raise UnknownMetricError(name, dict(domain))

    def _of_column(self, name: str, column: str, arguments: Mapping[str, Any]) -> Any:
        match name:
            case "column.max" | "column.min" | "column.mean" | "column.sum":
                found = self.numbers[Number(name.removeprefix("column."), (column,))]
                # GX's Spark engine sums integers as doubles, and GX shows decimals as doubles: 4507.6, not 4507.60.
                is_double = isinstance(found, Decimal) or (name == "column.sum" and isinstance(found, int))
                return float(found) if is_double else found
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
                counts = self.values[column]
                most = pc.max(counts["rows"]).as_py()
                return (
                    sorted(counts.filter(pc.equal(counts["rows"], most))["value"].to_pylist())
                    if most is not None
                    else []
                )
        family, _, detail = name.rpartition(".")
        if name.startswith("column.distinct_values."):
            return distinct_in_set(
                name.removeprefix("column.distinct_values."), self.values[column]["value"], arguments
            )
        if family == "column_values.nonnull":
            return self._detail(detail, self._nulls(column), [None])
        if family == "column_values.null":
            return self._detail(detail, self.rows - self._nulls(column), [])
        if family == "column_values.unique":
            return self._of_repeated(detail, (column,))
        for one in self.measures.missed:
            if (one.metric, one.column) == (family, column) and _same(one.arguments, arguments):
                return self._detail(detail, self.numbers[one.number], [])
        raise UnknownMetricError(name, column)

    def _nulls(self, column: str) -> int:
        return int(self.numbers[Number("nulls", (column,))])

    def _compound(self, name: str, columns: tuple[str, ...]) -> Any:
        detail = name.removeprefix("compound_columns.unique.")
        if detail == "filtered_row_count":
            return self.rows - int(self.numbers[Number("nulls", columns)])
        return self._of_repeated(detail, columns)

    def _of_repeated(self, detail: str, columns: tuple[str, ...]) -> Any:
        found = self.repeated[columns]
        sample = [row[columns[0]] for row in found.sample] if len(columns) == 1 else list(found.sample)
        return self._detail(detail, found.rows, sample, found.sample)

    @staticmethod
    def _detail(detail: str, count: int, sample: list[Any], rows: Sequence[dict[str, Any]] = ()) -> Any:
        """Return one of a rule's metrics: the count of failing rows, their values, or the rows."""
        match detail:
            case "unexpected_count":
                return count
            case "unexpected_values":
                return (sample * SAMPLE_KEYS)[: min(count, SAMPLE_KEYS)] if len(sample) == 1 else sample[:SAMPLE_KEYS]
            case "unexpected_index_list":
                return [dict(row) for row in rows] or None
            case "unexpected_index_query":
                return None
        raise UnknownMetricError(detail, None)


def measured(
    objects: ObjectStore,
    version: HummockVersion,
    relations: Mapping[str, Relation],
    view: Relation,
    measures: Measures,
    epoch: int,
) -> ViewMeasures | None:
    """Return the contents of the measures at `epoch`; None if they do not exist, differ, or are paused.

    Args:
        relations: the relations that a reader sees at `epoch`, by name.

    Cost: reads one row, the distinct values of columns that a rule needs, and the duplicates.
    """
    for name, select in measures.views.items():
        there = relations.get(name)
        if (
            there is None
            or not there.internal
            or there.paused_at(epoch)
            or not is_kept(there, select, view, query_of(there)[0])
        ):
            return None

    def parts(name: str) -> Iterator[pa.Table]:
        return scan_relation(objects, version, relations[name], epoch)

    def whole(name: str) -> pa.Table:
        schema = pa.schema([(c.name, arrow_type(c.type)) for c in relations[name].columns])
        return pa.concat_tables([schema.empty_table(), *parts(name)])

    if not measures.views:
        return None
    (row,) = whole(numbers_view(view.name)).to_pylist()
    numbers = {number: row[number.column] for number in measures.numbers}
    if any(value is None and _cannot_be_null(number, numbers) for number, value in numbers.items()):
        return None  # a sum overflowed its type; GX's Spark engine reports that better
    return ViewMeasures(
        measures,
        tuple((c.name, c.type) for c in view.columns),
        numbers,
        {c: whole(values_view(view.name, c)) for c in measures.values},
        {
            c: _repeated(parts(name) if (name := repeated_view(view.name, c)) in measures.views else iter(()), c)
            for c in measures.repeated
        },
    )


def _cannot_be_null(number: Number, numbers: Mapping[Number, Any]) -> bool:
    """Return whether a sum or mean has at least one value: NULL then means an overflow of its type."""
    return number.kind in ("sum", "mean") and bool(numbers[Number("nulls", number.columns)] < numbers[ROWS])


def _repeated(parts: Iterator[pa.Table], columns: Sequence[str]) -> Repeated:
    rows, sample = 0, list[dict[str, Any]]()
    for part in parts:
        rows += pc.sum(part["rows"]).as_py() or 0
        if len(sample) < SAMPLE_KEYS:
            for row in part.slice(0, SAMPLE_KEYS).to_pylist():
                values = {column: row[repeated_column(place)] for place, column in enumerate(columns)}
                sample += [values] * min(row["rows"], SAMPLE_KEYS)
    return Repeated(rows, tuple(sample[:SAMPLE_KEYS]))


def _same(kept: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Compare the arguments of two rules. GX adds arguments with defaults, and converts integers to floats."""
    told = {
        name: value for name, value in asked.items() if name in _TELLING and value is not None and value is not False
    }
    return told.keys() == kept.keys() and all(_plain(told[name]) == _plain(kept[name]) for name in kept)


_TELLING = frozenset({"min_value", "max_value", "strict_min", "strict_max", "value_set", "value", "regex"})


def _plain(value: Any) -> Any:
    return sorted(value, key=repr) if isinstance(value, list | tuple | set | frozenset) else value
