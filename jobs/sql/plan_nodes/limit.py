"""GlobalLimit over Sort, and Offset: top-n."""

from py4j.java_gateway import JavaObject

from jobs.sql.logical import Literal, SortKey, TopN
from jobs.sql.plan_nodes.project import projected
from jobs.sql.plan_nodes.walk import Bound, PlanWalk, binds
from jobs.sql.sandbox import items

_LIMIT = ("LIMIT without ORDER BY", "which rows remain would be chance; add an ORDER BY")


@binds("GlobalLimit")
def bind_limit(walk: PlanWalk, node: JavaObject) -> Bound:
    """GlobalLimit [Offset] [LocalLimit] Project* Sort: top-n, the projections above it."""
    limit = _constant(walk, node, node.limitExpr())
    offset = 0
    child = node.child()
    while child.productPrefix() in ("LocalLimit", "Offset"):
        if child.productPrefix() == "Offset":
            offset = _constant(walk, child, child.offsetExpr())
        child = child.child()
    projects, child = _through_projects(child)
    if child.productPrefix() != "Sort":
        raise walk.refuse(node, *_LIMIT)
    return _top(walk, projects, child, limit, offset)


@binds("Offset")
def bind_offset(walk: PlanWalk, node: JavaObject) -> Bound:
    """Offset Project* [Sort]: all rows but the first; in the order of the stream key where the query names none."""
    return _top(walk, *_through_projects(node.child()), None, _constant(walk, node, node.offsetExpr()))


def _through_projects(node: JavaObject) -> tuple[list[JavaObject], JavaObject]:
    """The Projects from `node` on, and what is below them."""
    projects: list[JavaObject] = []
    while node.productPrefix() == "Project":
        projects.append(node)
        node = node.child()
    return projects, node


def _top(walk: PlanWalk, projects: list[JavaObject], node: JavaObject, limit: int | None, offset: int) -> Bound:
    ordered = node.productPrefix() == "Sort"
    below = walk.bind(node.child() if ordered else node)
    order = []
    for key in items(node.order()) if ordered else ():
        expr = walk.expressions.expression(key.child(), below.scope())
        order.append(SortKey(expr, key.direction().sql() == "DESC", key.nullOrdering().sql() == "NULLS LAST"))
    bound = Bound(TopN(below.plan, tuple(order), limit, offset), below.ids)
    for project in reversed(projects):
        bound = projected(walk, project, bound)
    return bound


def _constant(walk: PlanWalk, node: JavaObject, expr: JavaObject) -> int:
    found = walk.expressions.expression(expr, {})
    if isinstance(found, Literal) and isinstance(found.value, int):
        return found.value
    raise walk.refuse(node, "a LIMIT or OFFSET that is no constant", "write a number")
