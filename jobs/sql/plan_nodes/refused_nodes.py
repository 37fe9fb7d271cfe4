"""Nodes whose refusal says more than their class: where they stand, or what they came from."""

from typing import NoReturn

from py4j.java_gateway import JavaObject

from jobs.sql.plan_nodes.refused import REASONS
from jobs.sql.plan_nodes.walk import PlanWalk, binds
from jobs.sql.sandbox import items

_SORT = (
    "ORDER BY without LIMIT",
    "a view is a set of rows without order; leave it out, and order the query that reads the view, or add a LIMIT",
)


@binds("Sort")
def _sort(walk: PlanWalk, node: JavaObject) -> NoReturn:
    raise walk.refuse(node, *_SORT)


@binds("Window")
def _window(walk: PlanWalk, node: JavaObject) -> NoReturn:
    raise walk.refuse(next(items(node.windowExpressions())), *REASONS["Window"])
