"""session_window: an Aggregate with a key that Spark marks as a session.

Spark merges overlapping sessions before it groups.

Each row starts as a separate session, from its moment to the end of the gap. In the order of starts, a row belongs to
the previous session if it starts no later than that session ends. So within the groups of the other keys, the start
of a row's session is a window function. Rows are grouped by it, and the session's end is the maximum of the rows' ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.expression_tree import without_places
from tussock.jobs.logical.nodes import (
    AggCall,
    AggFunction,
    Call,
    Column,
    Expand,
    Expr,
    Field,
    Frame,
    FrameBound,
    FrameEdge,
    Literal,
    Project,
    SortKey,
    Window,
    WindowCall,
    WindowFunction,
)
from tussock.jobs.sql.expressions import Scope
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk
from tussock.jobs.sql.sandbox import items

_MARK = "spark.sessionWindow"
_NO_SESSION = (
    "Spark cannot build sessions of the rows that ROLLUP or CUBE adds for all sessions; omit session_window from it"
)
_SO_FAR = Frame(True, FrameBound(FrameEdge.UNBOUNDED), FrameBound(FrameEdge.CURRENT))


@dataclass(frozen=True, slots=True)
class Sessions:
    """The Aggregate's input (`below`) with the start of each row's session as a column, which replaces key `id`."""

    below: BoundNode
    id: int
    start: Column
    end: AggCall

    def session_struct(self, start: Column, end: Column) -> Expr:
        """The struct that the SELECT reads, over the columns of the key and the call."""
        fields = (Literal("start", "string"), start, Literal("end", "string"), end)
        return Call("CreateNamedStruct", f"struct<start:{start.type},end:{end.type}>", fields)


def sessions_of(walk: PlanWalk, node: JavaObject, below: BoundNode) -> Sessions | None:
    """The sessions by which an Aggregate groups.

    None if it does not. Raises UnsupportedQueryError if Spark itself would fail.
    """
    keys = list(items(node.groupingExpressions()))
    marked = [key for key in keys if key.productPrefix() == "AttributeReference" and is_session(key)]
    if not marked:
        return None
    session, scope = marked[0], below.scope()
    if session.nullable() and not _is_there(below, session):
        raise walk.refusal_of(node, "session_window within ROLLUP, CUBE or GROUPING SETS", _NO_SESSION)
    others = _distinct_keys(
        [walk.expressions.expression(k, scope) for k in keys if k.exprId().id() != session.exprId().id()]
    )
    width, place = len(below.ids), walk.expressions.place_of(node)
    bounds = [_session_bound(scope, session, i) for i in (0, 1)]
    columns = [Column(i, f.type) for i, f in enumerate(below.plan.fields)]
    apart = Project(
        below.plan,
        (*columns, *bounds),
        (*below.plan.fields, *(Field(f"_bound{i}", b.type) for i, b in enumerate(bounds))),
    )
    start, end, own = (Column(width + i, bounds[i % 2].type) for i in range(3))  # so that the struct is not stored
    call = WindowCall(WindowFunction.SESSION, start.type, (start, end), _SO_FAR, place=place)
    plan = Window(
        apart, others, (SortKey(start, False, False),), (call,), (*apart.fields, Field("_session", start.type))
    )
    ended = AggCall(AggFunction.MAX, end.type, (end,), place=place)
    return Sessions(BoundNode(plan, (*below.ids, -1, -2, -3), below.made), session.exprId().id(), own, ended)


def is_session(column: JavaObject) -> bool:
    """Whether Spark marks a named column as a session."""
    return column.productPrefix() in ("AttributeReference", "Alias") and bool(column.metadata().contains(_MARK))


def _is_there(below: BoundNode, session: JavaObject) -> bool:
    """Whether all rows that ROLLUP makes of a row have its session."""
    place = below.ids.index(session.exprId().id())
    return isinstance(below.plan, Expand) and not any(isinstance(row[place], Literal) for row in below.plan.projections)


def _distinct_keys(keys: Sequence[Expr]) -> tuple[Expr, ...]:
    """Each key once. Constants are omitted, since they do not divide rows."""
    return tuple({without_places(k): k for k in keys if not isinstance(k, Literal)}.values())


def _session_bound(scope: Scope, session: JavaObject, field: int) -> Expr:
    """The start or the end of a row's own session."""
    struct = session.dataType().fields()[field]
    value = scope[session.exprId().id()]
    return Call("GetStructField", struct.dataType().catalogString(), (value,), params=(("ordinal", str(field)),))
