"""The order that a view's ORDER BY gives its rows, as columns to store them by.

Only the top of a plan orders a view: a Sort or TopN below projections and filters only, through which Spark keeps an
order.
"""

from collections.abc import Sequence

import msgspec

from tussock.jobs.executors.order import Order
from tussock.jobs.logical.nodes import Column, Expr, Field, Filter, Plan, Project, Sort, SortKey, TemporalFilter, TopN


def with_order(plan: Plan) -> tuple[Plan, tuple[Order, ...]]:
    """The plan without its Sort, and the order of its rows by columns of that plan.

    Order expressions that are not columns of the view become columns after the view's own.
    """
    match plan:
        case Sort(input, order):
            return _with_columns(input, order)
        case TopN(input, order, limit, offset):
            below, places = _with_columns(input, order)
            keys = tuple(
                SortKey(Column(o.column, below.fields[o.column].type), o.descending, o.nulls_last) for o in places
            )
            return TopN(below, keys, limit, offset), places
        case Filter() | TemporalFilter():
            below, places = with_order(plan.input)
            return msgspec.structs.replace(plan, input=below), places
        case Project(input, exprs, fields):
            below, places = with_order(input)
            columns = [Column(o.column, below.fields[o.column].type) for o in places]
            wide, at = _merge_exprs(exprs, columns)
            return _project_onto(below, fields, wide), tuple(
                msgspec.structs.replace(o, column=at[i]) for i, o in enumerate(places)
            )
        case _:
            return plan, ()


def _with_columns(plan: Plan, order: Sequence[SortKey]) -> tuple[Plan, tuple[Order, ...]]:
    """The plan with a column for each expression of an order, and the order by columns, each column once."""
    own = tuple(Column(i, f.type) for i, f in enumerate(plan.fields))
    wide, at = _merge_exprs(own, [k.expr for k in order])
    below = plan if len(wide) == len(own) else _project_onto(plan, plan.fields, wide)
    by_column: dict[int, Order] = {}
    for key, column in zip(order, at, strict=True):
        by_column.setdefault(column, Order(column, key.descending, key.nulls_last))
    return below, tuple(by_column.values())


def _merge_exprs(exprs: Sequence[Expr], others: Sequence[Expr]) -> tuple[tuple[Expr, ...], list[int]]:
    """The expressions, then those others that are not among them, and the position of each other."""
    wide = list(exprs)
    for other in others:
        if other not in wide:
            wide.append(other)
    return tuple(wide), [wide.index(other) for other in others]


def _project_onto(plan: Plan, fields: Sequence[Field], exprs: tuple[Expr, ...]) -> Plan:
    """A projection whose first columns have these fields. The others have no name, since no reader sees them."""
    return Project(plan, exprs, (*fields, *(Field("", e.type) for e in exprs[len(fields) :])))
