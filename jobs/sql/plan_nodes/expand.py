"""Expand: several projections of each row, for GROUPING SETS, ROLLUP, CUBE, UNPIVOT, DISTINCT and sliding windows."""

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.nodes import Expand
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk, binds_nodes
from tussock.jobs.sql.sandbox import items


@binds_nodes("Expand")
def bind_expand(walk: PlanWalk, node: JavaObject) -> BoundNode:
    below = walk.bind(node.child())
    scope = below.scope()
    output = list(items(node.output()))
    fields = tuple(walk.output_field(node, a.name(), name_of_type(a.dataType())) for a in output)
    projections = tuple(
        tuple(walk.expressions.expression(e, scope) for e in items(projection))
        for projection in items(node.projections())
    )
    return BoundNode(Expand(below.plan, projections, fields), tuple(a.exprId().id() for a in output))
