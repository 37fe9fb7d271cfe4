"""LocalRelation, OneRowRelation and Range: constant rows of the query."""

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.nodes import Range, Values
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk, binds_nodes
from tussock.jobs.sql.sandbox import items


@binds_nodes("LocalRelation")
def bind_values(walk: PlanWalk, node: JavaObject) -> BoundNode:
    """A list of VALUES, or a relation that the optimizer found empty (LIMIT 0).

    Cost: a round trip to the JVM per value.
    """
    output = list(items(node.output()))
    fields = tuple(walk.output_field(node, a.name(), name_of_type(a.dataType())) for a in output)
    rows = list(items(node.data()))
    columns = tuple(
        tuple(walk.expressions.bind_constant(node, row.get(i, a.dataType()), a.dataType()).value for row in rows)
        for i, a in enumerate(output)
    )
    return BoundNode(Values(len(rows), columns, fields), tuple(a.exprId().id() for a in output))


@binds_nodes("OneRowRelation")
def bind_one_row(walk: PlanWalk, node: JavaObject) -> BoundNode:
    return BoundNode(Values(1, (), ()), ())


@binds_nodes("Range")
def bind_range(walk: PlanWalk, node: JavaObject) -> BoundNode:
    (output,) = items(node.output())
    field = walk.output_field(node, output.name(), name_of_type(output.dataType()))
    return BoundNode(Range(node.start(), node.end(), node.step(), (field,)), (output.exprId().id(),))
