"""Window: functions OVER partitions in an order, with their frames."""

from decimal import Decimal

import msgspec
import pyarrow as pa
from py4j.java_gateway import JavaObject

from tussock.jobs.logical.expression_tree import without_places
from tussock.jobs.logical.nodes import (
    Call,
    Column,
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
from tussock.jobs.sql.plan_nodes.project import project_plan
from tussock.jobs.sql.plan_nodes.walk import BoundNode, PlanWalk, binds_nodes
from tussock.jobs.sql.sandbox import items
from tussock.statestore.decimals import MAX_DIGITS
from tussock.statestore.types import MONTH_INTERVALS, arrow_type

_KEPT = ", ".join(f.sql for f in WindowFunction if f is not WindowFunction.SESSION)
_EDGES = {
    "UnboundedPreceding": FrameBound(FrameEdge.UNBOUNDED),
    "UnboundedFollowing": FrameBound(FrameEdge.UNBOUNDED),
    "CurrentRow": FrameBound(FrameEdge.CURRENT),
}
_DAY_MICROS = 86_400_000_000
_FAR_YEARS = 250_000  # kernels compute times up to 290,000 years from 1970; a store's dates are within 10,000


@binds_nodes("Window")
def bind_window(walk: PlanWalk, node: JavaObject) -> BoundNode:
    """Constants are omitted from partition and order, since they neither divide nor order rows."""
    functions, constants = list[JavaObject](), list[JavaObject]()
    for named in items(node.windowExpressions()):
        if (
            named.productPrefix() == "AttributeReference"
        ):  # the key of a lateral subquery, which its window passes through: an input column
            continue
        of_rows = named.child().productPrefix() == "WindowExpression"
        (functions if of_rows else constants).append(named)  # the optimizer turns count(NULL) OVER (…) into 0
    sorted_by = [] if list(items(node.orderSpec())) else _sort_below(node.child())
    child, order = _sort_input(walk, sorted_by) if sorted_by else (walk.bind(node.child()), [])
    below = _with_columns(walk, child, constants)
    if not functions:
        return below
    scope = below.scope()
    partition: dict[Expr, Expr] = {}
    for spec in items(node.partitionSpec()):
        expr = walk.expressions.expression(spec, scope)
        if not isinstance(expr, Literal):
            partition.setdefault(without_places(expr), expr)
    order += _sort_keys(walk, node.orderSpec(), scope)
    calls, ids, fields = [], [], []
    for named in functions:
        are_peers = all(without_places(key.expr) in partition for key in order)
        calls.append(_Call(walk, named.child(), scope, tuple(order), are_peers).bind_call())
        ids.append(named.exprId().id())
        fields.append(walk.output_field(named, named.name(), calls[-1].type))
    plan = Window(below.plan, tuple(partition.values()), tuple(order), tuple(calls), (*below.plan.fields, *fields))
    bound = BoundNode(plan, (*below.ids, *ids))
    return bound.with_columns([i for i, number in enumerate(bound.ids) if number >= 0]) if sorted_by else bound


def _sort_keys(walk: PlanWalk, keys: JavaObject, scope: dict[int, Expr]) -> list[SortKey]:
    sort_keys = (walk.expressions.sort_key(key, scope) for key in items(keys))
    return [key for key in sort_keys if not isinstance(key.expr, Literal)]


def _sort_below(node: JavaObject) -> list[JavaObject]:
    """The Projects from a node down to a Sort, and the Sort. Empty if there is none.

    Spark turns `ORDER BY … LIMIT k` in a correlated subquery into a row_number without an order, over sorted rows.
    """
    chain = [node]
    while chain[-1].productPrefix() == "Project":
        chain.append(chain[-1].child())
    return chain if chain[-1].productPrefix() == "Sort" else []


def _sort_input(walk: PlanWalk, chain: list[JavaObject]) -> tuple[BoundNode, list[SortKey]]:
    """The input of a window without its own order, and the order of its rows.

    The sort keys are carried to the window in columns with negative ids.
    """
    *projects, sort = chain
    below = walk.bind(sort.child())
    keys = _sort_keys(walk, sort.order(), below.scope())
    own: list[Expr] = [Column(i, f.type) for i, f in enumerate(below.plan.fields)]
    fields = (*below.plan.fields, *(Field(f"sorted by {i}", key.expr.type) for i, key in enumerate(keys)))
    carried = [-1 - i for i in range(len(keys))]
    below = BoundNode(Project(below.plan, (*own, *(key.expr for key in keys)), fields), (*below.ids, *carried))
    for project in reversed(projects):
        below = project_plan(walk, project, below, carried)
    places = [below.ids.index(number) for number in carried]
    return below, [
        msgspec.structs.replace(key, expr=Column(place, key.expr.type)) for key, place in zip(keys, places, strict=True)
    ]


def _with_columns(walk: PlanWalk, below: BoundNode, named: list[JavaObject]) -> BoundNode:
    """`below` with further columns after its own."""
    if not named:
        return below
    exprs: list[Expr] = [Column(i, f.type) for i, f in enumerate(below.plan.fields)]
    exprs += [walk.expressions.expression(one, below.scope()) for one in named]
    fields = [
        walk.output_field(one, one.name(), expr.type)
        for one, expr in zip(named, exprs[len(below.plan.fields) :], strict=True)
    ]
    ids = (*below.ids, *(one.exprId().id() for one in named))
    return BoundNode(Project(below.plan, tuple(exprs), (*below.plan.fields, *fields)), ids, below.made)


class _Call:
    """Turns a WindowExpression into a WindowCall."""

    def __init__(
        self, walk: PlanWalk, node: JavaObject, scope: dict[int, Expr], order: tuple[SortKey, ...], are_peers: bool
    ) -> None:
        """`are_peers`: all rows of a partition are peers, because the order is by partition columns or empty."""
        self._walk, self._node, self._scope, self._order, self._are_peers = walk, node, scope, order, are_peers

    def bind_call(self) -> WindowCall:
        function = self._node.windowFunction()
        if function.productPrefix() == "AggregateExpression":
            return self._bind_aggregate(function)
        name = function.productPrefix()
        if name not in list(WindowFunction):
            raise self._walk.expressions.refusal_of(
                self._node, None, f"the functions supported OVER a window are {_KEPT}"
            )
        kind = WindowFunction(name)
        args = tuple(self._bind_argument(child) for child in items(function.children()))
        ignore_nulls, number = False, 0
        if kind.shifts_rows:
            value, offset, default = args
            ignore_nulls, number = function.ignoreNulls(), self._constant_of(offset)
            args = (value,) if isinstance(default, Literal) and default.value is None else (value, default)
        elif kind is WindowFunction.NTH:
            ignore_nulls, number, args = function.ignoreNulls(), self._constant_of(args[1]), args[:1]
        elif kind is WindowFunction.NTILE:
            number, args = self._constant_of(args[0]), ()
        elif kind in (WindowFunction.RANK, WindowFunction.DENSE_RANK, WindowFunction.PERCENT_RANK):
            args = ()  # Spark's arguments are the order's columns
        place = self._walk.expressions.place_of(self._node)
        mode = self._walk.expressions.mode_of(function)
        return WindowCall(
            kind, function.dataType().catalogString(), args, self._bind_frame(), number, ignore_nulls, mode, place
        )

    def _bind_aggregate(self, node: JavaObject) -> WindowCall:
        """An AggregateExpression, bound like one over groups."""
        expressions = self._walk.expressions
        if node.isDistinct():
            raise expressions.refusal_of(self._node, None, "a DISTINCT aggregate OVER a window is not supported")
        call = expressions.bind_aggregate_call(node, self._scope)
        kind, args, params, where = WindowFunction(call.function.value), call.args, call.params, call.filter
        if where is not None and (carrier := call.null_excluding_arg) is not None:
            arg = args[carrier] if args else Literal(1, "int")
            chosen_value = Call("If", arg.type, (where, arg, Literal(None, arg.type)))
            args, where = (*args[:carrier], chosen_value, *args[carrier + 1 :]), None
        ignore_nulls = False
        if kind in (WindowFunction.FIRST, WindowFunction.LAST):
            ignore_nulls, params = dict(params)["ignoreNulls"] == "true", ()
        place = expressions.place_of(self._node)
        return WindowCall(
            kind, call.type, args, self._bind_frame(), 0, ignore_nulls, call.mode, place, params, call.order, where
        )

    def _bind_argument(self, node: JavaObject) -> Expr:
        """An argument or a frame bound. Constants of any type are allowed, including intervals and untyped NULLs."""
        expressions = self._walk.expressions
        if node.productPrefix() == "Literal":
            return expressions.bind_constant(node, node.value(), node.dataType())
        return expressions.expression(node, self._scope)

    def _bind_frame(self) -> Frame:
        frame = self._node.windowSpec().frameSpecification()
        by_rows = frame.frameType().productPrefix() == "RowFrame"
        if (
            self._are_peers
            and not by_rows
            and (self._offset_sign(frame.lower()) > 0 or self._offset_sign(frame.upper()) < 0)
        ):
            raise self._walk.refusal_of(
                self._node,
                "a RANGE frame without its own row, in an order by partition columns",
                "order by another column",
            )
        return Frame(
            by_rows, self._frame_bound(frame.lower(), by_rows, -1), self._frame_bound(frame.upper(), by_rows, 1)
        )

    def _offset_sign(self, edge: JavaObject) -> float:
        """The sign of a bound's offset; 0 if it has none."""
        offset = None if edge.productPrefix() in _EDGES else self._bind_argument(edge)
        return (
            float(offset.value) if isinstance(offset, Literal) and isinstance(offset.value, int | float | str) else 0.0
        )

    def _frame_bound(self, edge: JavaObject, by_rows: bool, outward: int) -> FrameBound:
        """The bound at an end of the frame. `outward`: the sign of offsets that move it away from the row."""
        if (known := _EDGES.get(edge.productPrefix())) is not None:
            return known
        offset = self._bind_argument(edge)
        if not isinstance(offset, Literal) or offset.value is None:
            raise self._walk.refusal_of(
                self._node, "a frame whose bounds are not constant", "write a number or an interval"
            )
        if by_rows:
            rows = int(offset.value)
            return FrameBound(FrameEdge.CURRENT) if rows == 0 else FrameBound(FrameEdge.OFFSET, rows)
        if not self._order:  # ordered by a constant: all rows are peers
            return FrameBound(FrameEdge.CURRENT)
        (key,) = self._order
        end = self._move_value(key.expr, _negate_offset(offset) if key.descending else offset)
        if isinstance(end, Call) and end.node == "Add" and _may_overflow(end.type):
            end = _within_the_type(end, Decimal(str(offset.value)) * outward > 0)
        return FrameBound(FrameEdge.OFFSET, value=end)

    def _move_value(self, value: Expr, offset: Literal) -> Expr:
        """The order's value at the end of the frame. Dates move by days or months, instants by the zone's calendar."""
        zone = (("timeZoneId", self._walk.expressions.sandbox.time_zone),)
        assert isinstance(offset.value, int | str)
        if value.type in ("date", "timestamp", "timestamp_ntz") and abs(float(offset.value)) > _farthest_distance(
            offset.type
        ):
            raise self._walk.refusal_of(
                self._node, "a RANGE frame over more than 250,000 years", "write UNBOUNDED PRECEDING or FOLLOWING"
            )
        if value.type.startswith("interval"):
            start = "DATE" if value.type in MONTH_INTERVALS else "TIMESTAMP_NTZ"
            raise self._walk.refusal_of(
                self._node,
                f"RANGE with an offset over {value.type}",
                f"no kernel adds intervals; order by {start} '1970-01-01' + the interval, which has the same order",
            )
        match value.type, offset.type:
            case "date", "int":
                return Call("DateAdd", "date", (value, offset))
            case "date", kind if kind in MONTH_INTERVALS:
                return Call("DateAddYMInterval", "date", (value, offset))
            case "date", "interval day":
                return Call("DateAdd", "date", (value, Literal(int(offset.value) // _DAY_MICROS, "int")))
            case "timestamp" | "timestamp_ntz", kind if kind in MONTH_INTERVALS:
                return Call("TimestampAddYMInterval", value.type, (value, offset), params=zone)
            case "timestamp" | "timestamp_ntz", kind if kind.startswith("interval ") and kind != "interval":
                return Call("TimestampAddInterval", value.type, (value, offset), params=zone)
            case kind, other if kind == other:
                return Call("Add", kind, (value, offset), "ANSI")
        reason = "RANGE with an offset is supported over numbers, dates and timestamps"
        raise self._walk.refusal_of(self._node, f"RANGE over {value.type} by {offset.type}", reason)

    def _constant_of(self, expr: Expr) -> int:
        if isinstance(expr, Literal) and isinstance(expr.value, int):
            return expr.value
        raise self._walk.refusal_of(self._node, "an offset that is not constant", "write a number")


def _farthest_distance(offset: str) -> int:
    """The longest distance in time that kernels compute, in the unit of an offset's type."""
    days = _FAR_YEARS * 365
    return _FAR_YEARS * 12 if offset in MONTH_INTERVALS else days if offset == "int" else days * _DAY_MICROS


def _may_overflow(type_name: str) -> bool:
    kind = arrow_type(type_name)
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _within_the_type(end: Call, outward: bool) -> Expr:
    """A sum of integers or decimals that may leave the type.

    Beyond the type, all rows on that side of the row are in the frame (`outward`), so the sum is the type's extreme
    value; or no row is, so it is NULL. Spark adds decimals without a check of overflow there. Its sum of integers
    raises, but only if a row is compared with it, which depends on the rows before.
    """
    value, offset = end.args
    assert isinstance(offset, Literal)
    moved: Expr = Call("Add", end.type, end.args, "TRY")
    if end.type.startswith("decimal("):
        kind = arrow_type(end.type)
        wide = f"decimal({min(kind.precision + 1, MAX_DIGITS)},{kind.scale})"
        moved = Call("Cast", end.type, (Call("Add", wide, end.args, "TRY"),), "TRY")
    if not outward:
        return moved
    known = Call("IsNotNull", "boolean", (value,))
    extreme = _extreme_literal(end.type, Decimal(str(offset.value)) < 0)
    return Call("Coalesce", end.type, (moved, Call("If", end.type, (known, extreme, Literal(None, end.type)))))


def _extreme_literal(type_name: str, least: bool) -> Literal:
    """The least or the greatest value of an integer or decimal type."""
    kind = arrow_type(type_name)
    if pa.types.is_integer(kind):
        top = 1 << (kind.bit_width - 1)
        return Literal(-top if least else top - 1, type_name)
    whole, scale = kind.precision - kind.scale, kind.scale
    return Literal(f"{'-' if least else ''}{'9' * whole or '0'}.{'9' * scale}".rstrip("."), type_name)


def _negate_offset(offset: Literal) -> Literal:
    if isinstance(offset.value, str):  # a double's or a decimal's text
        text = repr(-float(offset.value)) if offset.type in ("float", "double") else format(-Decimal(offset.value), "f")
        return Literal(text, offset.type)
    assert isinstance(offset.value, int)
    return Literal(-offset.value, offset.type)
