"""Column pruning: scans read only the columns that are used.

Catalyst leaves scans whole, because narrower ones would save it nothing, and inserts Projects where rows become
narrower. This pass pushes the needed columns down to the scans, and removes Projects that only select columns of a
scan.
"""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from tussock.jobs.logical.expression_tree import columns_of, renumber_columns
from tussock.jobs.logical.nodes import (
    Aggregate,
    Column,
    Expand,
    Expr,
    Field,
    Filter,
    Frame,
    FrameBound,
    Generate,
    Join,
    JoinKind,
    Plan,
    Project,
    Range,
    Scan,
    SingleRow,
    Sort,
    SortKey,
    TemporalFilter,
    TopN,
    Union,
    Values,
    Window,
    WindowCall,
)


def prune_scans(plan: Plan) -> Plan:
    """The same plan over narrower scans. Its fields do not change."""
    pruned, _ = _narrow_plan(plan, tuple(range(len(plan.fields))))
    return pruned


def _narrow_plan(plan: Plan, wanted: tuple[int, ...]) -> tuple[Plan, dict[int, int]]:
    """The plan with at least the columns `wanted` (ascending), and the new position of each old output column.

    Projects keep their width, which the optimizer chose. Other nodes pass on the needs of the nodes above them.
    """
    match plan:
        case Scan():
            fields = tuple(plan.fields[i] for i in wanted)
            return Scan(plan.relation, tuple(plan.columns[i] for i in wanted), fields), {
                old: new for new, old in enumerate(wanted)
            }
        case Values():
            columns, fields = tuple(plan.columns[i] for i in wanted), tuple(plan.fields[i] for i in wanted)
            return Values(plan.rows, columns, fields), {old: new for new, old in enumerate(wanted)}
        case Range():
            return plan, _same_positions(1)
        case Project():
            below, to = _narrow_plan(plan.input, _used_columns(plan.exprs))
            exprs = tuple(renumber_columns(e, to) for e in plan.exprs)
            return _pick_columns(below, exprs, plan.fields), _same_positions(len(exprs))
        case Expand():
            below, to = _narrow_plan(plan.input, _used_columns([p[i] for p in plan.projections for i in wanted]))
            projections = tuple(tuple(renumber_columns(p[i], to) for i in wanted) for p in plan.projections)
            return Expand(below, projections, tuple(plan.fields[i] for i in wanted)), {
                old: new for new, old in enumerate(wanted)
            }
        case Generate():
            return _narrow_generate(plan, wanted)
        case Filter():
            below, to = _narrow_plan(plan.input, _union_of(wanted, _used_columns([plan.condition])))
            return Filter(below, renumber_columns(plan.condition, to)), to
        case TemporalFilter():
            below, to = _narrow_plan(plan.input, _union_of(wanted, _used_columns([plan.value])))
            return msgspec.structs.replace(plan, input=below, value=renumber_columns(plan.value, to)), to
        case TopN():
            below, to = _narrow_plan(plan.input, _union_of(wanted, _used_columns([k.expr for k in plan.order])))
            return TopN(below, _moved_order(plan.order, to), plan.limit, plan.offset), to
        case Sort():
            below, to = _narrow_plan(plan.input, _union_of(wanted, _used_columns([k.expr for k in plan.order])))
            return Sort(below, _moved_order(plan.order, to)), to
        case Aggregate():
            return _narrow_aggregate(plan, wanted)
        case Window():
            return _narrow_window(plan, wanted)
        case Join():
            return _narrow_join(plan, wanted)
        case SingleRow():
            below, to = _narrow_plan(
                plan.input, wanted or (0,)
            )  # keep a column, because a chunk needs one to have rows
            return SingleRow(below), to
        case Union():
            return _narrow_union(plan, wanted)
        case _:
            assert_never(plan)


def _narrow_generate(plan: Generate, wanted: tuple[int, ...]) -> tuple[Plan, dict[int, int]]:
    width = len(plan.passed_columns)
    above = [i for i in wanted if i < width]
    passed = tuple(plan.passed_columns[i] for i in above)
    below, to = _narrow_plan(plan.input, _union_of(passed, _used_columns([plan.argument])))
    columns = tuple(to[c] for c in passed)
    # Without this, a list would be copied for each of its elements.
    narrower = None if columns == tuple(range(len(below.fields))) else columns
    at = {old: new for new, old in enumerate((*above, *range(width, width + len(plan.made))))}
    argument = renumber_columns(plan.argument, to)
    return Generate(below, plan.generator, argument, plan.outer, plan.made, narrower), at


def _narrow_join(plan: Join, wanted: tuple[int, ...]) -> tuple[Plan, dict[int, int]]:
    width = len(plan.left.fields)
    if plan.kind is JoinKind.EXISTENCE:  # its last column belongs to neither side
        wanted = tuple(i for i in wanted if i < width)
    both = _union_of(wanted, _used_columns([] if plan.condition is None else [plan.condition]))
    left, to_left = _narrow_plan(
        plan.left, _union_of(tuple(i for i in both if i < width), _used_columns(plan.left_keys))
    )
    right, to_right = _narrow_plan(
        plan.right, _union_of(tuple(i - width for i in both if i >= width), _used_columns(plan.right_keys))
    )
    shift = len(left.fields)
    both_to = to_left | {width + old: shift + new for old, new in to_right.items()}
    joined = Join(
        left,
        right,
        plan.kind,
        tuple(renumber_columns(k, to_left) for k in plan.left_keys),
        tuple(renumber_columns(k, to_right) for k in plan.right_keys),
        plan.null_safe,
        None if plan.condition is None else renumber_columns(plan.condition, both_to),
        plan.place,
    )
    if plan.kind is JoinKind.EXISTENCE:
        return joined, to_left | {width: len(left.fields)}
    return joined, both_to if plan.kind.emits_pairs else to_left


def _narrow_aggregate(plan: Aggregate, wanted: tuple[int, ...]) -> tuple[Plan, dict[int, int]]:
    """Omit unread calls, such as the end of a session if only its start is read.

    Keys stay, because they define the groups.
    """
    width = len(plan.keys)
    wanted_calls = [i for i in range(len(plan.calls)) if width + i in wanted]
    if not wanted_calls and not width:  # the output still has a row
        wanted_calls = list(range(len(plan.calls)))[:1]
    calls = [plan.calls[i] for i in wanted_calls]
    below, to = _narrow_plan(plan.input, _used_columns([*plan.keys, *(e for call in calls for e in call.expressions)]))
    moved = tuple(call.map_expressions(lambda e: renumber_columns(e, to), call.place) for call in calls)
    fields = (*plan.fields[:width], *(plan.fields[width + i] for i in wanted_calls))
    places = _same_positions(width) | {width + old: width + new for new, old in enumerate(wanted_calls)}
    return Aggregate(below, tuple(renumber_columns(k, to) for k in plan.keys), moved, fields), places


def _narrow_window(plan: Window, wanted: tuple[int, ...]) -> tuple[Plan, dict[int, int]]:
    """Omit unread calls."""
    width = len(plan.input.fields)
    wanted_calls = [i for i in range(len(plan.calls)) if width + i in wanted]
    calls = [plan.calls[i] for i in wanted_calls]
    read = _used_columns(
        [*plan.partition, *(k.expr for k in plan.order), *(e for call in calls for e in call.expressions)]
    )
    below, to = _narrow_plan(plan.input, _union_of(tuple(i for i in wanted if i < width), read))
    if not calls:
        return below, to
    partition = tuple(renumber_columns(e, to) for e in plan.partition)
    fields = (*below.fields, *(plan.fields[width + i] for i in wanted_calls))
    moved = to | {width + old: len(below.fields) + new for new, old in enumerate(wanted_calls)}
    return Window(
        below, partition, _moved_order(plan.order, to), tuple(_moved_call(c, to) for c in calls), fields
    ), moved


def _moved_call(call: WindowCall, to: dict[int, int]) -> WindowCall:
    def move_bound(bound: FrameBound) -> FrameBound:
        return bound if bound.value is None else FrameBound(bound.edge, bound.rows, renumber_columns(bound.value, to))

    frame = Frame(call.frame.by_rows, move_bound(call.frame.lower), move_bound(call.frame.upper))
    where = None if call.filter is None else renumber_columns(call.filter, to)
    args = tuple(renumber_columns(a, to) for a in call.args)
    return msgspec.structs.replace(call, args=args, frame=frame, order=_moved_order(call.order, to), filter=where)


def _moved_order(order: tuple[SortKey, ...], to: dict[int, int]) -> tuple[SortKey, ...]:
    return tuple(SortKey(renumber_columns(k.expr, to), k.descending, k.nulls_last) for k in order)


def _narrow_union(plan: Union, wanted: tuple[int, ...]) -> tuple[Plan, dict[int, int]]:
    """Narrow all inputs to the wanted columns in one order."""
    fields = tuple(plan.fields[i] for i in wanted)
    inputs: list[Plan] = []
    for below in plan.inputs:
        narrow, to = _narrow_plan(below, wanted)
        columns = tuple(Column(to[i], plan.fields[i].type) for i in wanted)
        inputs.append(_pick_columns(narrow, columns, tuple(narrow.fields[c.index] for c in columns)))
    return Union(tuple(inputs), fields), {old: new for new, old in enumerate(wanted)}


def _pick_columns(below: Plan, exprs: tuple[Expr, ...], fields: tuple[Field, ...]) -> Plan:
    """`below` projected.

    Omits a projection that changes nothing, or that only selects a scan's columns under their own names.
    """
    if not all(isinstance(e, Column) for e in exprs):
        return Project(below, exprs, fields)
    columns = [e.index for e in exprs if isinstance(e, Column)]
    if tuple(below.fields[i] for i in columns) != fields:
        return Project(below, exprs, fields)
    if columns == list(range(len(below.fields))):
        return below
    if isinstance(below, Scan):
        return Scan(below.relation, tuple(below.columns[i] for i in columns), fields)
    return Project(below, exprs, fields)


def _used_columns(exprs: Sequence[Expr]) -> tuple[int, ...]:
    return tuple(sorted(frozenset().union(*(columns_of(e) for e in exprs))))


def _union_of(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*one, *other}))


def _same_positions(width: int) -> dict[int, int]:
    return {i: i for i in range(width)}
