"""The columns of relations that determine a view's columns and rows, traced through its bound plan.

lineage.py names the columns of fragments; this module describes a view as a whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from typing import assert_never

from tussock.jobs.logical.expression_tree import columns_of
from tussock.jobs.logical.nodes import (
    AggCall,
    Aggregate,
    Column,
    Expand,
    Expr,
    Filter,
    Generate,
    Join,
    JoinKind,
    Plan,
    Project,
    Range,
    Scan,
    SingleRow,
    Sort,
    TemporalFilter,
    TopN,
    Union,
    Values,
    Window,
)


class How(StrEnum):
    """How a column of a relation affects a view. The values are OpenLineage's subtypes."""

    IDENTITY = "IDENTITY"  # its unchanged value
    TRANSFORMATION = "TRANSFORMATION"  # an expression over its value
    AGGREGATION = "AGGREGATION"  # an aggregate of its values
    JOIN = "JOIN"  # JOIN and the following: its value selects or combines rows
    GROUP_BY = "GROUP_BY"
    FILTER = "FILTER"
    SORT = "SORT"
    WINDOW = "WINDOW"

    @property
    def is_direct(self) -> bool:
        """Whether the view's value is computed from the column's value."""
        return self in (How.IDENTITY, How.TRANSFORMATION, How.AGGREGATION)


@dataclass(frozen=True, slots=True, order=True)
class ColumnOrigin:
    """A column of a relation, by its index there, and how it affects the view."""

    relation: str
    column: int
    how: How


Origins = frozenset[ColumnOrigin]
_NONE: Origins = frozenset()


@dataclass(frozen=True, slots=True)
class TracedColumns:
    """The origins of each column of a plan, and the origins that select its rows."""

    columns: tuple[Origins, ...]
    rows: Origins = field(default=_NONE)


def trace_plan(plan: Plan) -> TracedColumns:
    """The origins of a bound plan's columns and rows. Cost: a walk over the plan."""
    inputs = [trace_plan(input) for input in plan.inputs]
    rows = reduce(frozenset.union, (one.rows for one in inputs), _NONE)
    match plan:
        case Scan(relation, columns):
            return TracedColumns(tuple(frozenset({ColumnOrigin(relation, column, How.IDENTITY)}) for column in columns))
        case Values() | Range():
            return TracedColumns((_NONE,) * len(plan.fields))
        case SingleRow() | Sort():  # an order does not select rows
            return inputs[0]
        case Project(_, exprs):
            return TracedColumns(_trace_exprs(exprs, inputs[0].columns), rows)
        case Expand(_, projections):
            traced = [_trace_exprs(projection, inputs[0].columns) for projection in projections]
            return TracedColumns(tuple(_unite_origins(of) for of in zip(*traced, strict=True)), rows)
        case Generate(_, _, argument):
            new = _trace_value(argument, inputs[0].columns)
            return TracedColumns(
                (
                    *(inputs[0].columns[i] for i in plan.passed_columns),
                    *(_with_step(new, How.TRANSFORMATION) for _ in plan.made),
                ),
                rows,
            )
        case Filter() | TemporalFilter():
            return TracedColumns(
                inputs[0].columns, rows | _deciding_origins(plan.expressions, inputs[0].columns, How.FILTER)
            )
        case TopN():
            return TracedColumns(
                inputs[0].columns, rows | _deciding_origins(plan.expressions, inputs[0].columns, How.SORT)
            )
        case Union():
            return TracedColumns(
                tuple(_unite_origins(of) for of in zip(*(one.columns for one in inputs), strict=True)), rows
            )
        case Join():
            return _trace_join(plan, *inputs)
        case Aggregate(_, keys, calls):
            below = inputs[0].columns
            return TracedColumns(
                (*_trace_exprs(keys, below), *(_trace_call(call, below) for call in calls)),
                rows | _deciding_origins(keys, below, How.GROUP_BY),
            )
        case Window(_, partition, order, calls):
            below = inputs[0].columns
            over = _deciding_origins((*partition, *(key.expr for key in order)), below, How.WINDOW)
            values = (
                _with_step(_unite_origins(_trace_value(e, below) for e in call.expressions), How.TRANSFORMATION)
                for call in calls
            )
            return TracedColumns((*below, *(value | over for value in values)), rows)
        case _:
            assert_never(plan)


def _trace_join(join: Join, left: TracedColumns, right: TracedColumns) -> TracedColumns:
    both = (*left.columns, *right.columns)
    sides = [
        (join.left_keys, left.columns),
        (join.right_keys, right.columns),
        ((join.condition,) if join.condition else (), both),
    ]
    by = _unite_origins(_deciding_origins(exprs, columns, How.JOIN) for exprs, columns in sides)
    rows = left.rows | right.rows
    if join.kind is JoinKind.EXISTENCE:  # every left row is returned; whether it has a match is a column
        return TracedColumns((*left.columns, by | right.rows), left.rows)
    return TracedColumns(both if join.kind.emits_pairs else left.columns, rows | by)


def _trace_call(call: AggCall, below: Sequence[Origins]) -> Origins:
    origins = _with_step(_unite_origins(_trace_value(arg, below) for arg in call.args), How.AGGREGATION)
    origins |= _deciding_origins([key.expr for key in call.order], below, How.SORT)
    return origins | _deciding_origins([] if call.filter is None else [call.filter], below, How.FILTER)


def _trace_exprs(exprs: Iterable[Expr], below: Sequence[Origins]) -> tuple[Origins, ...]:
    return tuple(_trace_value(expr, below) for expr in exprs)


def _trace_value(expr: Expr, below: Sequence[Origins]) -> Origins:
    """The origins of an expression's value."""
    if isinstance(expr, Column):
        return below[expr.index]
    return _with_step(_unite_origins(below[column] for column in columns_of(expr)), How.TRANSFORMATION)


def _with_step(origins: Origins, how: How) -> Origins:
    """These origins after a further step. An expression over an aggregate counts as an aggregate."""
    return frozenset(
        ColumnOrigin(o.relation, o.column, how)
        if o.how.is_direct and not (o.how is How.AGGREGATION and how is How.TRANSFORMATION)
        else o
        for o in origins
    )


def _deciding_origins(exprs: Iterable[Expr], below: Sequence[Origins], how: How) -> Origins:
    """The origins of columns whose values select or combine rows."""
    read = _unite_origins(below[column] for expr in exprs for column in columns_of(expr))
    return frozenset(ColumnOrigin(o.relation, o.column, how if o.how.is_direct else o.how) for o in read)


def _unite_origins(origins: Iterable[Origins]) -> Origins:
    return reduce(frozenset.union, origins, _NONE)
