"""Nodes whose refusal says more than their class: where they stand, or what they came from."""

from typing import NoReturn

from py4j.java_gateway import JavaObject

from jobs.sql.plan_nodes.refused import REASONS
from jobs.sql.plan_nodes.walk import PlanWalk, binds
from jobs.sql.sandbox import items


@binds("Window")
def _window(walk: PlanWalk, node: JavaObject) -> NoReturn:
    raise walk.refuse(next(items(node.windowExpressions())), *REASONS["Window"])
