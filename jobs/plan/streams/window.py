"""Window functions: the columns that they read, and partitions on one unit.

A limit on the row number turns them into a top-n per group.

The key is the input's, since every row is returned once, plus its distribution columns. The distribution is the
input's if it is part of the partition columns, otherwise it is the partition columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tussock.jobs.executors.filter import FilterNode
from tussock.jobs.executors.group_top_n import GroupTopN
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.over_window import OverWindow
from tussock.jobs.executors.window_call import FrameEnd, Over
from tussock.jobs.kernels.zones import zone_of
from tussock.jobs.logical import nodes as logical
from tussock.jobs.logical.expression_tree import join_by_and, renumber_columns, split_conjuncts
from tussock.jobs.logical.nodes import AggFunction, FrameEdge, WindowFunction
from tussock.jobs.plan.streams.builder import Builder, Stream
from tussock.statestore.zones import is_utc

_DAY_MICROS = 86_400_000_000
_SETBACK_BY_DAYS = 2 * _DAY_MICROS
_SETBACK_BY_MONTHS = 7 * _DAY_MICROS


@dataclass(frozen=True, slots=True)
class _Ordered:
    """The input with all columns that the window reads, each partition on one unit."""

    below: Stream
    places: Mapping[logical.Expr, int]
    partition: tuple[int, ...]
    order: tuple[Order, ...]

    def add_results(self, builder: Builder, node: OverWindow | GroupTopN, width: int) -> Stream:
        """The node's output: the first `width` columns of the input, then its results."""
        below = self.below
        assert below.distribution is not None
        ref = builder.add_operator(below.draft, node, (below.ref,))
        visible = (*below.visible[:width], *range(len(below.types), len(node.types)))
        key = tuple(dict.fromkeys((*below.key, *below.distribution)))
        return replace(below, ref=ref, types=node.types, visible=visible, key=key, append_only=False)


def plan_window(builder: Builder, plan: logical.Window) -> Stream:
    ordered, width = _order_stream(builder, plan), len(plan.input.fields)
    apart = any(
        o.column not in ordered.partition for o in ordered.order
    )  # otherwise all rows of a partition are peers at any distance
    calls = [_plan_call(call, ordered.places, apart) for call in plan.calls]
    steps = _split_tiles(calls)
    for step in steps:
        below, asked = ordered.below, tuple(calls[i] for i in step)
        types = (*below.types, *(call.type for call in asked))
        node = OverWindow(
            ordered.partition, ordered.order, below.key, below.distribution or (), asked, below.types, types
        )
        ordered, width = replace(ordered, below=ordered.add_results(builder, node, width)), width + len(step)
    fields, results = ordered.below.visible[: width - len(calls)], ordered.below.visible[width - len(calls) :]
    place_of_call = dict(zip((i for step in steps for i in step), results, strict=True))
    return replace(ordered.below, visible=(*fields, *(place_of_call[i] for i in range(len(calls)))))


def _split_tiles(calls: Sequence[Over]) -> list[list[int]]:
    """The calls of each window operator. ntile follows the others, since alone it does not read whole partitions.

    The second operator stores the rows again. So calls stay together if another one reads whole partitions anyway.
    """
    tiles = [i for i, call in enumerate(calls) if call.function is WindowFunction.NTILE]
    others = [i for i in range(len(calls)) if i not in tiles]
    if not tiles or not others or any(calls[i].needs_partition for i in others):
        return [list(range(len(calls)))]
    return [others, tiles]


def plan_group_top_n(builder: Builder, plan: logical.Window, limit: int, rest: logical.Expr | None) -> Stream:
    """A window whose only call is a row number that a filter limits. `rest` is the remaining condition."""
    ordered = _order_stream(builder, plan)
    below = ordered.below
    (call,) = plan.calls
    types = (*below.types, call.type)
    node = GroupTopN(
        ordered.partition,
        ordered.order,
        below.key,
        below.distribution or (),
        call.function,
        limit,
        below.types,
        types,
        below.append_only,
    )
    stream = ordered.add_results(builder, node, len(plan.input.fields))
    return (
        stream
        if rest is None
        else builder.append_node(stream, FilterNode(renumber_columns(rest, stream.visible), stream.types))
    )


def group_limit(plan: logical.Filter) -> tuple[logical.Window, int, logical.Expr | None] | None:
    """The window under the filter, the greatest row number that passes, and the rest of the condition.

    None if the filter does not limit each group.
    """
    window = plan.input
    assert isinstance(window, logical.Window)
    if len(window.calls) != 1 or not window.calls[0].function.numbers_rows:
        return None
    number, rest, limits = logical.Column(len(window.input.fields), window.calls[0].type), [], []
    for condition in split_conjuncts(plan.condition):
        limit, exact = _row_limit(condition, number)
        limits += [] if limit is None else [limit]
        rest += [] if limit is not None and not exact else [condition]
    if not limits or min(limits) < 1:
        return None
    return window, min(limits), join_by_and(rest) if rest else None


def _row_limit(condition: logical.Expr, number: logical.Column) -> tuple[int | None, bool]:
    """The greatest row number that passes the condition, and whether the condition excludes other rows as well.

    None if the condition is not such a limit.
    """
    if not isinstance(condition, logical.Call) or len(condition.args) != 2:
        return None, False
    left, right, name = *condition.args, condition.node
    if isinstance(left, logical.Literal):
        left, right, name = right, left, _TURNED.get(name, "")
    if left != number or not isinstance(right, logical.Literal) or not isinstance(right.value, int):
        return None, False
    match name:
        case "LessThanOrEqual":
            return right.value, False
        case "LessThan":
            return right.value - 1, False
        case "EqualTo":
            return right.value, right.value > 1
        case _:
            return None, False


_TURNED = {"GreaterThanOrEqual": "LessThanOrEqual", "GreaterThan": "LessThan", "EqualTo": "EqualTo"}


def _order_stream(builder: Builder, plan: logical.Window) -> _Ordered:
    below = builder.plan_stream(plan.input)
    fields: list[logical.Expr] = [logical.Column(i, f.type) for i, f in enumerate(plan.input.fields)]
    computed = [e for e in dict.fromkeys(plan.expressions) if e not in fields]
    below = builder.project_columns(below, (*fields, *computed))
    places = {e: below.visible[i] for i, e in reversed(list(enumerate((*fields, *computed))))}
    partition = tuple(places[e] for e in plan.partition)
    if below.distribution is None or not set(below.distribution) <= set(partition):
        below = builder.add_exchange(below, partition)
    return _Ordered(
        below, places, partition, tuple(Order(places[k.expr], k.descending, k.nulls_last) for k in plan.order)
    )


def setback_of(end: logical.Expr) -> int:
    """How far the ends of frames may go back from a row to a later one, in microseconds (`FrameEnd.setback`).

    Moved by months, the last days of a month meet: January 28 23:00 and January 31 01:00 become February 28 23:00 and
    01:00. From the end of February, a step of an hour may become four days. Moved by days, local times meet where the
    zone's clock goes forward or back, by at most a day at the row and a day at the frame's end.
    """
    if not isinstance(end, logical.Call) or end.type not in ("timestamp", "timestamp_ntz"):
        return 0
    if end.node == "TimestampAddYMInterval":
        return _SETBACK_BY_MONTHS
    has_days = any(isinstance(a, logical.Literal) and abs(int(a.value or 0)) >= _DAY_MICROS for a in end.args)
    moves_clock = end.node == "TimestampAddInterval" and end.type == "timestamp" and has_days
    return _SETBACK_BY_DAYS if moves_clock and not is_utc(zone_of(end)) else 0


def _plan_call(call: logical.WindowCall, places: Mapping[logical.Expr, int], apart: bool) -> Over:
    def frame_end(bound: logical.FrameBound) -> FrameEnd:
        if bound.value is None:
            return FrameEnd(bound.edge, bound.rows)
        if not apart:
            return FrameEnd(FrameEdge.CURRENT)
        return FrameEnd(FrameEdge.OFFSET, 0, places[bound.value], setback_of(bound.value))

    frame, kind = call.frame, call.args[0].type if call.args else None
    args = tuple(places[a] for a in call.args)
    lower, upper = frame_end(frame.lower), frame_end(frame.upper)
    more = tuple(a.type for a in call.args[1:]) if call.function.value in list(AggFunction) else ()
    order = tuple(Order(places[k.expr], k.descending, k.nulls_last) for k in call.order)
    condition = None if call.filter is None else places[call.filter]
    number, nulls, mode = call.number, call.ignore_nulls, call.mode
    return Over(
        call.function,
        args,
        kind,
        call.type,
        frame.by_rows,
        lower,
        upper,
        number,
        nulls,
        mode,
        more,
        call.params,
        order,
        condition,
    )
