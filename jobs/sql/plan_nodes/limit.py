"""Sort, GlobalLimit, LocalLimit and Offset.

An order matters only if it is the view's own, or if rows are counted in it.
"""

from collections.abc import Sequence

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.nodes import Literal, Sort, SortKey, TopN
from tussock.jobs.sql.plan_nodes.project import project_plan
from tussock.jobs.sql.plan_nodes.subquery import with_subqueries, without_subqueries
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk, binds_nodes
from tussock.jobs.sql.sandbox import items

_NO_ORDER = (
    "SORT BY, and an ORDER BY without LIMIT or OFFSET inside a query, have no effect: a view stores its rows in the "
    "order of the ORDER BY at the end of its SELECT"
)
_BY_KEY = (
    "LIMIT or OFFSET without ORDER BY counts rows in the order of the stream key, so every run selects the same "
    "rows; Spark leaves the choice open"
)


@binds_nodes("Sort")
def bind_sort(walk: PlanWalk, node: JavaObject) -> BoundNode:
    """A Sort without a limit: the view's order, or no effect."""
    if walk.order is None or not node.equals(walk.order):
        walk.add_note(_NO_ORDER)
        return walk.bind(node.child())
    own = walk.bind(node.child())
    below, order = _sort_input(walk, own, node)
    return without_subqueries(BoundNode(Sort(below.plan, order), below.ids), own, below)


def order_of(root: JavaObject) -> JavaObject | None:
    """The Sort that orders a plan's rows: below projections and filters only. None if there is none."""
    node = root
    while node.productPrefix() in ("Project", "Filter"):
        node = node.child()
    return node if node.productPrefix() == "Sort" and getattr(node, "global")() else None


@binds_nodes("GlobalLimit", "LocalLimit", "Offset")
def bind_limit(walk: PlanWalk, node: JavaObject) -> BoundNode:
    """Limits and offsets over Project* [Sort]: a top-n below the projections.

    Without a Sort, rows are in the order of the stream key.

    A LocalLimit alone comes from Spark, which pushes it below a union or a join. It is ignored, because the limit
    above it decides.
    """
    above: list[JavaObject] = []
    child = node
    while child.productPrefix() in ("GlobalLimit", "LocalLimit", "Offset"):
        above.append(child)
        child = child.child()
    offset, limit = _offset_and_limit(walk, [n for n in reversed(above) if n.productPrefix() != "LocalLimit"])
    if limit is None and offset == 0:
        return walk.bind(child)
    projects: list[JavaObject] = []
    while child.productPrefix() == "Project":
        projects.append(child)
        child = child.child()
    order: tuple[SortKey, ...] = ()
    if child.productPrefix() == "Sort":
        own = walk.bind(child.child())
        below, order = _sort_input(walk, own, child)
    else:
        walk.add_note(_BY_KEY)
        own = below = walk.bind(child)
    bound = without_subqueries(BoundNode(TopN(below.plan, order, limit, offset), below.ids), own, below)
    for project in reversed(projects):
        bound = project_plan(walk, project, bound)
    return bound


def _sort_input(walk: PlanWalk, own: BoundNode, node: JavaObject) -> tuple[BoundNode, tuple[SortKey, ...]]:
    """The input of a Sort, with a column for each scalar subquery in its order, and that order."""
    below = with_subqueries(walk, own, items(node.order()))
    return below, tuple(walk.expressions.sort_key(key, below.scope()) for key in items(node.order()))


def _offset_and_limit(walk: PlanWalk, nodes: Sequence[JavaObject]) -> tuple[int, int | None]:
    """The (offset, limit) of nested limits and offsets, innermost first. A limit of None means all rows."""
    offset = 0
    limit: int | None = None
    for node in nodes:
        if node.productPrefix() == "Offset":
            skipped = _constant_of(walk, node, node.offsetExpr())
            offset, limit = offset + skipped, None if limit is None else max(0, limit - skipped)
        else:
            rows = _constant_of(walk, node, node.limitExpr())
            limit = rows if limit is None else min(limit, rows)
    return offset, limit


def _constant_of(walk: PlanWalk, node: JavaObject, expr: JavaObject) -> int:
    constant = walk.expressions.expression(expr, {})
    if isinstance(constant, Literal) and isinstance(constant.value, int):
        return constant.value
    raise walk.refusal_of(node, "a LIMIT or OFFSET that is not constant", "write a number")
