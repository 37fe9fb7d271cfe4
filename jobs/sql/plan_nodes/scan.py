"""LogicalRDD: a relation of the catalog."""

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk, binds_nodes
from tussock.jobs.sql.sandbox import items


@binds_nodes("LogicalRDD")
def bind_scan(walk: PlanWalk, node: JavaObject) -> BoundNode:
    relation = walk.expressions.sandbox.relation_of(node)
    if relation is None:
        raise walk.refusal_of(
            node, "a relation that is not in the catalog", "declare it with CREATE SOURCE or CREATE TABLE"
        )
    hidden = walk.expressions.sandbox.hidden_of(node)
    fields = (*(Field(c.name, c.type) for c in relation.columns), *(Field(h.column, h.type) for h in hidden))
    columns = (*range(len(relation.columns)), *map(int, hidden))
    return BoundNode(Scan(relation.name, columns, fields), tuple(a.exprId().id() for a in items(node.output())))
