"""Union: UNION ALL."""

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.nodes import Union
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk, binds_nodes
from tussock.jobs.sql.sandbox import items


@binds_nodes("Union")
def bind_union(walk: PlanWalk, node: JavaObject) -> BoundNode:
    inputs = tuple(walk.bind(child).plan for child in items(node.children()))
    output = list(items(node.output()))
    fields = tuple(walk.output_field(node, a.name(), name_of_type(a.dataType())) for a in output)
    return BoundNode(Union(inputs, fields), tuple(a.exprId().id() for a in output))
