"""Uncorrelated scalar subqueries: each becomes a column of the input of the node whose expressions contain it.

The optimizer leaves them in expressions. Here, the node's input is joined with their single row: NULLs if a subquery
finds no row, an error if it finds two (jobs/logical/nodes.py:SingleRow). Correlated ones are already joins in the
optimized plan.
"""

from collections.abc import Iterable, Iterator

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.nodes import (
    AggCall,
    AggFunction,
    Aggregate,
    Call,
    Column,
    Field,
    Join,
    JoinKind,
    Literal,
    Plan,
    Project,
    SingleRow,
    is_one_row,
)
from tussock.jobs.sql.now import ELSEWHERE
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk
from tussock.jobs.sql.sandbox import items


def with_subqueries(walk: PlanWalk, below: BoundNode, expressions: Iterable[JavaObject]) -> BoundNode:
    """`below` with a column for each scalar subquery in the expressions (Catalyst's) after its own.

    Unchanged if there are none.
    """
    if (row := subquery_row(walk, expressions)) is None:
        return below
    return BoundNode(Join(below.plan, row.plan, JoinKind.INNER, (), (), ()), below.ids + row.ids)


def without_subqueries(bound: BoundNode, own: BoundNode, below: BoundNode) -> BoundNode:
    """A plan over `below` without the columns that `with_subqueries` added to `own`."""
    if own is below:
        return bound
    return bound.with_columns([i for i in range(len(bound.ids)) if not len(own.ids) <= i < len(below.ids)])


def subquery_row(walk: PlanWalk, expressions: Iterable[JavaObject], outside: str = "") -> BoundNode | None:
    """One row with the value of each scalar subquery in the expressions, under their ids. None without subqueries.

    Nodes of class `outside` are skipped with everything inside them.
    """
    node_by_id: dict[int, JavaObject] = {}
    for expression in with_scalars(walk, expressions):
        node_by_id |= {node.exprId().id(): node for node in _scalar_subqueries(walk, expression, outside)}
    row: BoundNode | None = None
    for number, node in node_by_id.items():
        one = BoundNode(_one_row(walk, node.plan()), (number,))
        row = one if row is None else BoundNode(Join(row.plan, one.plan, JoinKind.INNER, (), (), ()), row.ids + one.ids)
    return row


def with_scalars(walk: PlanWalk, expressions: Iterable[JavaObject]) -> list[JavaObject]:
    """The expressions that contain a scalar subquery. Cost: a round trip each."""
    pattern = walk.expressions.sandbox.tree_pattern("SCALAR_SUBQUERY")
    return [expression for expression in expressions if expression.containsPattern(pattern)]


def _scalar_subqueries(walk: PlanWalk, node: JavaObject, outside: str) -> Iterator[JavaObject]:
    """The scalar subqueries of an expression, without nested ones."""
    name = node.productPrefix()
    if walk.expressions.sandbox.is_moment(node):
        raise walk.refusal_of(node, None, ELSEWHERE)
    if name == "ScalarSubquery":
        yield node
    elif name != outside:
        for child in items(node.children()):
            yield from _scalar_subqueries(walk, child, outside)


def _one_row(walk: PlanWalk, node: JavaObject) -> Plan:
    if (any_row := _constant_of_any_row(walk, node)) is not None:
        return any_row
    plan = walk.bind(node).plan
    return plan if is_one_row(plan) else SingleRow(plan)


def _constant_of_any_row(walk: PlanWalk, node: JavaObject) -> Plan | None:
    """`SELECT 1 … LIMIT 1`, by which the optimizer tests whether a subquery finds a row, as a count of rows.

    None for others.
    """
    if node.productPrefix() != "GlobalLimit":
        return None
    project = node.child()
    while project.productPrefix() == "LocalLimit":
        project = project.child()
    if project.productPrefix() != "Project" or project.projectList().size() != 1:
        return None
    value = project.projectList().apply(0)
    if value.productPrefix() != "Alias" or value.child().productPrefix() != "Literal":
        return None
    limits = [walk.expressions.expression(limit, {}) for limit in (node.limitExpr(), node.child().limitExpr())]
    constant = walk.expressions.expression(value, {})
    if any(limit != Literal(1, "int") for limit in limits) or not isinstance(constant, Literal):
        return None
    counted = Aggregate(
        walk.bind(project.child()).plan, (), (AggCall(AggFunction.COUNT, "bigint", ()),), (Field("n", "bigint"),)
    )
    some = Call("GreaterThan", "boolean", (Column(0, "bigint"), Literal(0, "bigint")))
    only = Call("If", constant.type, (some, constant, Literal(None, constant.type)))
    return Project(counted, (only,), (Field(value.name(), constant.type),))
