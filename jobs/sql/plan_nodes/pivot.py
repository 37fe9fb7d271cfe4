"""PIVOT: the aggregate `pivotfirst(key, value, keys)`, whose array becomes columns.

Spark aggregates by the groups and the pivoted column first, so that a group has at most one row of each key. What that row's value is,
`max(value) FILTER (WHERE key <=> k)` says as well: one column a key. The SELECT takes the array's elements by number.
"""

from py4j.java_gateway import JavaObject

from jobs.sql.expressions import ExpressionWalk, Scope
from jobs.sql.logical import AggCall, AggFunction, Call
from jobs.sql.sandbox import items


def pivot_of(named: JavaObject) -> JavaObject | None:
    """The PivotFirst that an output column of an Aggregate is."""
    if named.productPrefix() != "Alias" or named.child().productPrefix() != "AggregateExpression":
        return None
    function = named.child().aggregateFunction()
    return function if function.productPrefix() == "PivotFirst" else None


def pivot_calls(walk: ExpressionWalk, pivot: JavaObject, scope: Scope) -> tuple[AggCall, ...]:
    """One call for each element of the array. Raises UnsupportedQueryError."""
    key, value = walk.expression(pivot.pivotColumn(), scope), walk.expression(pivot.valueColumn(), scope)
    keys = (walk.constant(pivot, k, pivot.pivotColumn().dataType()) for k in items(pivot.pivotColumnValues()))
    return tuple(
        AggCall(AggFunction.MAX, value.type, (value,), filter=Call("EqualNullSafe", "boolean", (key, k)), place=walk.place_of(pivot))
        for k in keys
    )
