"""Project and Filter."""

from py4j.java_gateway import JavaObject

from jobs.sql.logical import Column, Filter, Literal, Project
from jobs.sql.plan_nodes.walk import Bound, PlanWalk, binds
from jobs.sql.sandbox import items


@binds("Project")
def bind_project(walk: PlanWalk, node: JavaObject) -> Bound:
    return projected(walk, node, walk.bind(node.child()))


def projected(walk: PlanWalk, node: JavaObject, below: Bound) -> Bound:
    """The Project `node` over `below`."""
    scope = below.scope()
    ids, exprs, fields = [], [], []
    for named in items(node.projectList()):
        expr = walk.expressions.expression(named, scope)
        ids.append(named.exprId().id())
        exprs.append(expr)
        fields.append(walk.field(named, named.name(), expr.type))
    if tuple(fields) == below.plan.fields and all(isinstance(e, Column) and e.index == i for i, e in enumerate(exprs)):
        return Bound(below.plan, tuple(ids))
    return Bound(Project(below.plan, tuple(exprs), tuple(fields)), tuple(ids))


@binds("Filter")
def bind_filter(walk: PlanWalk, node: JavaObject) -> Bound:
    below = walk.bind(node.child())
    condition = walk.expressions.expression(node.condition(), below.scope())
    if condition == Literal(True, "boolean"):
        return below
    return Bound(Filter(below.plan, condition), below.ids)
