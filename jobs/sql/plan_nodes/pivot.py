"""PIVOT: the aggregate `pivotfirst(key, value, keys)`, whose array becomes columns.

Spark first aggregates by the groups and the pivoted column, so a group has at most one row per key. The value of that
row equals `max(value) FILTER (WHERE key <=> k)`, so each key becomes one call. The SELECT reads the array's elements
by index.
"""

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.nodes import AggCall, AggFunction, Call
from tussock.jobs.sql.expressions import ExpressionWalk, Scope
from tussock.jobs.sql.sandbox import items


def pivot_of(node: JavaObject) -> JavaObject | None:
    """The PivotFirst of an Aggregate's expression, or None."""
    if node.productPrefix() != "AggregateExpression":
        return None
    function = node.aggregateFunction()
    return function if function.productPrefix() == "PivotFirst" else None


def element_of_pivot(node: JavaObject) -> tuple[JavaObject, int] | None:
    """The PivotFirst and the index that an expression reads.

    A SELECT of some of its columns is merged into the Aggregate.
    """
    if node.productPrefix() != "GetArrayItem" or node.ordinal().productPrefix() != "Literal":
        return None
    pivot = pivot_of(node.child())
    return None if pivot is None else (pivot, node.ordinal().value())


def pivot_calls(walk: ExpressionWalk, pivot: JavaObject, scope: Scope) -> tuple[AggCall, ...]:
    """One call per element of the array. Raises UnsupportedQueryError."""
    key, value = walk.expression(pivot.pivotColumn(), scope), walk.expression(pivot.valueColumn(), scope)
    keys = (walk.bind_constant(pivot, k, pivot.pivotColumn().dataType()) for k in items(pivot.pivotColumnValues()))
    return tuple(
        AggCall(
            AggFunction.MAX,
            value.type,
            (value,),
            filter=Call("EqualNullSafe", "boolean", (key, k)),
            place=walk.place_of(pivot),
        )
        for k in keys
    )
