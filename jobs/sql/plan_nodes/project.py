"""Project and Filter."""

from collections.abc import Sequence

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.expression_tree import columns_of, join_by_and, split_conjuncts
from tussock.jobs.logical.nodes import Column, Expr, Filter, JoinKind, Literal, Project
from tussock.jobs.sql.plan_nodes.join import join_plans
from tussock.jobs.sql.plan_nodes.subquery import subquery_row, with_subqueries
from tussock.jobs.sql.plan_nodes.temporal_filter import split_by_moment, with_moment_compared
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk, binds_nodes
from tussock.jobs.sql.sandbox import items


@binds_nodes("Project")
def bind_project(walk: PlanWalk, node: JavaObject) -> BoundNode:
    return project_plan(walk, node, walk.bind(node.child()))


def project_plan(walk: PlanWalk, node: JavaObject, below: BoundNode, carried: Sequence[int] = ()) -> BoundNode:
    """The Project `node` over `below`. Columns with the ids `carried` are appended after the node's own."""
    below = with_subqueries(walk, below, items(node.projectList()))
    scope = below.scope()
    ids, exprs, fields = [], [], []
    for named in items(node.projectList()):
        expr = walk.expressions.expression(named, scope)
        ids.append(named.exprId().id())
        exprs.append(expr)
        fields.append(walk.output_field(named, named.name(), expr.type))
    for number in carried:
        place = below.ids.index(number)
        ids.append(number)
        exprs.append(Column(place, below.plan.fields[place].type))
        fields.append(below.plan.fields[place])
    if tuple(fields) == below.plan.fields and all(isinstance(e, Column) and e.index == i for i, e in enumerate(exprs)):
        return BoundNode(below.plan, tuple(ids))
    return BoundNode(Project(below.plan, tuple(exprs), tuple(fields)), tuple(ids))


@binds_nodes("Filter")
def bind_filter(walk: PlanWalk, node: JavaObject) -> BoundNode:
    below = walk.bind(node.child())
    plain, temporal = split_by_moment(walk, node.condition())
    if (row := subquery_row(walk, plain)) is not None:
        below = _filtered_by_row(walk, node, plain, below, row)
    elif plain:
        below = _filter_plan(below, [join_by_and([walk.expressions.bind_condition(c, below.scope()) for c in plain])])
    return with_moment_compared(walk, below, temporal)


def _filtered_by_row(
    walk: PlanWalk, node: JavaObject, conditions: Sequence[JavaObject], below: BoundNode, row: BoundNode
) -> BoundNode:
    """A filter with scalar subqueries: keeps the rows that have a match in the subqueries' single row."""
    width = len(below.plan.fields)
    scope = {**row.scope(width), **below.scope()}
    condition = join_by_and([walk.expressions.bind_condition(c, scope) for c in conditions])
    own = [c for c in split_conjuncts(condition) if all(i < width for i in columns_of(c))]
    others = [c for c in split_conjuncts(condition) if c not in own]
    return join_plans(_filter_plan(below, own), row, JoinKind.SEMI, others, walk.expressions.place_of(node))


def _filter_plan(below: BoundNode, conditions: list[Expr]) -> BoundNode:
    if not conditions or conditions == [Literal(True, "boolean")]:
        return below
    return BoundNode(Filter(below.plan, join_by_and(conditions)), below.ids, below.made)
