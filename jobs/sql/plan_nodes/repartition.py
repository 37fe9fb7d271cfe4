"""Hints, DISTRIBUTE BY and CLUSTER BY, which distribute rows over Spark's tasks.

A view's keys distribute its rows instead.
"""

from py4j.java_gateway import JavaObject

from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk, binds_nodes


@binds_nodes("Repartition", "RepartitionByExpression", "RebalancePartitions")
def bind_repartition(walk: PlanWalk, node: JavaObject) -> BoundNode:
    """The input, unchanged."""
    return walk.bind(node.child())
