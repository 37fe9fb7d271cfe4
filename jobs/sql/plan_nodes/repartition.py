"""How Spark is to spread rows over its tasks: by hints, DISTRIBUTE BY, CLUSTER BY. A view's rows are where their keys put them."""

from py4j.java_gateway import JavaObject

from tussock.jobs.sql.plan_nodes.walk import Bound, PlanWalk, binds


@binds("Repartition", "RepartitionByExpression", "RebalancePartitions")
def bind_repartition(walk: PlanWalk, node: JavaObject) -> Bound:
    """What is below it."""
    return walk.bind(node.child())
