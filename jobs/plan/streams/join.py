"""Joins: the columns that identify output rows, and the units on which both sides meet."""

from dataclasses import replace
from typing import assert_never

import msgspec

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.executors.hash_join import HashJoin, joined_types
from tussock.jobs.executors.null_aware_anti import NullAwareAnti
from tussock.jobs.executors.partial_agg import PartialAgg, partial_types
from tussock.jobs.executors.registry import Node
from tussock.jobs.executors.row_join import RowJoin
from tussock.jobs.executors.single_row import SingleRowNode
from tussock.jobs.executors.spread import spread_of
from tussock.jobs.logical import nodes as logical
from tussock.jobs.logical.expression_tree import (
    calls_of_spark,
    columns_of,
    join_by_and,
    needs_spark,
    renumber_columns,
    split_conjuncts,
    with_spark_calls,
    without_places,
)
from tussock.jobs.logical.nodes import AggFunction, JoinKind
from tussock.jobs.plan.fragments import Dispatch, Input, input_ref
from tussock.jobs.plan.streams.builder import ANYWHERE, Builder, FragmentDraft, Stream
from tussock.jobs.plan.streams.union import union_all


def plan_join(builder: Builder, plan: logical.Join) -> Stream:
    left, right = builder.plan_stream(plan.left), builder.plan_stream(plan.right)
    return (
        _judged_by_pairs(builder, plan, left, right)
        if _judges_by_spark(plan)
        else _plan_join(builder, plan, left, right)
    )


def _plan_join(builder: Builder, plan: logical.Join, left: Stream, right: Stream) -> Stream:
    if plan.left_keys:
        return _hash_join(
            builder,
            plan,
            *builder.add_key_columns(left, plan.left_keys),
            *builder.add_key_columns(right, plan.right_keys),
        )
    if (row_is_right := _row_is_right(plan)) is not None:
        return _row_join(builder, plan, left, right, row_is_right)
    return _hash_join(
        builder,
        plan,
        *_spread_side(builder, plan.kind, left, is_left=True),
        *_spread_side(builder, plan.kind, right, is_left=False),
    )


def _hash_join(
    builder: Builder,
    plan: logical.Join,
    left: Stream,
    left_keys: tuple[int, ...],
    right: Stream,
    right_keys: tuple[int, ...],
) -> Stream:
    left, right, asked, computed = _computed_below(builder, plan, left, right)
    visible = left.visible + tuple(len(left.types) + c for c in right.visible)
    condition = None if asked is None else renumber_columns(asked, (*visible, *computed))
    condition, behind = _split_condition(plan.kind, condition)
    inputs = [builder.close_as_input(left, left_keys), builder.close_as_input(right, right_keys)]
    if plan.kind is JoinKind.NULL_AWARE_ANTI:
        node: Node = NullAwareAnti(left.types, right.types, left_keys, right_keys, left.key, right.key, left.types)
        inputs.append(_null_count(builder, builder.continue_behind(inputs[1], right), right_keys))
    else:
        types, null_safe = joined_types(plan.kind, left.types, right.types, left_keys), plan.null_safe or (False,)
        node = HashJoin(
            left.types, right.types, left_keys, right_keys, null_safe, left.key, right.key, condition, types, plan.kind
        )
    draft = FragmentDraft(inputs)
    ref = builder.add_operator(draft, node, tuple(map(input_ref, range(len(inputs)))))
    key, distribution = _joined_key(plan.kind, left, left_keys, right, right_keys)
    append_only = plan.kind in (JoinKind.INNER, JoinKind.SEMI) and left.append_only and right.append_only
    if not plan.kind.emits_pairs:
        visible = (*left.visible, len(left.types)) if plan.kind is JoinKind.EXISTENCE else left.visible
    stream = Stream(draft, ref, node.types, visible, key, distribution, append_only)
    return stream if behind is None else builder.filter_rows(stream, behind)


def _computed_below(
    builder: Builder, plan: logical.Join, left: Stream, right: Stream
) -> tuple[Stream, Stream, logical.Expr | None, tuple[int, ...]]:
    """Compute calls of Spark in a join condition as columns of a side, if they read only that side.

    Applies to joins whose output depends on whether a row has a match.

    Returns: both sides, the condition over the plan's columns and the new ones, and the positions of the new ones in
        a pair.
    """
    if plan.condition is None or plan.kind is JoinKind.INNER or not needs_spark(plan.condition):
        return left, right, plan.condition, ()
    width = len(plan.left.fields)
    calls: dict[logical.Expr, None] = dict.fromkeys(map(without_places, calls_of_spark(plan.condition)))
    of_left = [c for c in calls if all(i < width for i in columns_of(c))]
    of_right = [c for c in calls if c not in of_left and all(i >= width for i in columns_of(c))]
    left, in_left = builder.add_key_columns(left, of_left)
    right, in_right = builder.add_key_columns(
        right, [renumber_columns(c, [i - width for i in range(width + len(plan.right.fields))]) for c in of_right]
    )
    places = {c: len(plan.left.fields) + len(plan.right.fields) + i for i, c in enumerate([*of_left, *of_right])}

    def column_of_call(call: logical.Call) -> logical.Expr:
        place = places.get(without_places(call))
        return call if place is None else logical.Column(place, call.type)

    return (
        left,
        right,
        with_spark_calls(plan.condition, column_of_call),
        (*in_left, *(len(left.types) + c for c in in_right)),
    )


def _split_condition(kind: JoinKind, condition: logical.Expr | None) -> tuple[logical.Expr | None, logical.Expr | None]:
    """The condition inside a join, and the condition on its output.

    For an inner join, the latter are the conjuncts that Spark computes.
    """
    if condition is None or kind is not JoinKind.INNER or not needs_spark(condition):
        return condition, None
    own = [c for c in split_conjuncts(condition) if not needs_spark(c)]
    return join_by_and(own) if own else None, join_by_and([c for c in split_conjuncts(condition) if needs_spark(c)])


def _judges_by_spark(plan: logical.Join) -> bool:
    """Whether output rows depend on matches, and Spark must see both rows of a pair to decide whether they match."""
    if plan.kind is JoinKind.INNER or plan.condition is None:
        return False
    width = len(plan.left.fields)
    reads = [columns_of(call) for call in calls_of_spark(plan.condition)]
    return any(any(i < width for i in columns) and any(i >= width for i in columns) for columns in reads)


def _judged_by_pairs(builder: Builder, plan: logical.Join, left: Stream, right: Stream) -> Stream:
    """Plan such a join in two steps.

    An inner join with the same condition finds the pairs, and Spark checks them in its output. Then a join of each
    side with the pairs, by its key, finds the rows with a match, which kernels can do.

    State: the inner join's, the rows of the second join, and the pairs.
    """
    assert plan.condition is not None
    of_left, of_right, left_key = len(left.visible), len(right.visible), len(left.key)
    (left, left_again), (right, right_again) = builder.share_stream(left), builder.share_stream(right)
    with_keys = [replace(side, visible=(*side.visible, *side.key)) for side in (left, right)]
    moved = [*range(of_left), *(of_left + left_key + i for i in range(of_right))]
    inner = msgspec.structs.replace(plan, kind=JoinKind.INNER, condition=renumber_columns(plan.condition, moved))
    pairs = _plan_join(builder, inner, *with_keys)
    row_of_left, rest = pairs.visible[:of_left], pairs.visible[of_left:]
    key_of_left = rest[:left_key]
    row_of_right = rest[left_key : left_key + of_right]
    key_of_right = rest[left_key + of_right :]
    if plan.kind is JoinKind.RIGHT:
        stream = _by_partners(
            builder, plan, JoinKind.LEFT, right_again, replace(pairs, visible=(*key_of_right, *row_of_left))
        )
        return replace(stream, visible=(*stream.visible[of_right:], *stream.visible[:of_right]))
    if plan.kind is not JoinKind.FULL:
        others = row_of_right if plan.kind.emits_pairs else ()
        return _by_partners(builder, plan, plan.kind, left_again, replace(pairs, visible=(*key_of_left, *others)))
    pairs, pairs_again = builder.share_stream(pairs)
    all_left = _by_partners(
        builder, plan, JoinKind.LEFT, left_again, replace(pairs, visible=(*key_of_left, *row_of_right))
    )
    alone = _by_partners(builder, plan, JoinKind.ANTI, right_again, replace(pairs_again, visible=key_of_right))
    nothing = [logical.Literal(None, field.type) for field in plan.left.fields]
    padded = builder.project_columns(
        alone, [*nothing, *(logical.Column(i, field.type) for i, field in enumerate(plan.right.fields))]
    )
    return union_all(builder, [all_left, padded], [field.type for field in plan.fields])


def _by_partners(builder: Builder, plan: logical.Join, kind: JoinKind, rows: Stream, pairs: Stream) -> Stream:
    """The rows of a side by whether their key is among the pairs.

    Visible in the pairs: that key, then their output columns.
    """
    partners = builder.project_columns(pairs, [logical.Column(i, pairs.types[c]) for i, c in enumerate(pairs.visible)])
    width = len(rows.key)
    keys, of_partners = rows.key, partners.visible[:width]
    if not keys:  # the only row
        rows, keys = builder.add_key_columns(rows, [logical.Literal(0, "int")])
        partners, of_partners = builder.add_key_columns(partners, [logical.Literal(0, "int")])
    join = msgspec.structs.replace(plan, kind=kind, null_safe=(True,) * len(keys), condition=None)
    return _hash_join(builder, join, rows, keys, replace(partners, visible=partners.visible[width:]), of_partners)


def _spread_side(builder: Builder, kind: JoinKind, stream: Stream, *, is_left: bool) -> tuple[Stream, tuple[int, ...]]:
    """A side of a join without an equality. Its join key is the places in which its rows meet the other side's.

    The stream keys stay valid: a pair meets in one place, which the keys of its two rows determine. A row whose output
    depends on a match has exactly one place.
    """
    node = spread_of(kind, stream.key, stream.types, is_left)
    ref = builder.add_operator(stream.draft, node, (stream.ref,))
    return replace(stream, ref=ref, types=node.types, distribution=ANYWHERE), (len(stream.types),)


def _row_is_right(plan: logical.Join) -> bool | None:
    """For a join with a side that always has one row, whether it is the right side. None for other joins."""
    if plan.left_keys:
        return None
    if logical.is_one_row(plan.right):
        return (
            True
            if plan.kind in (JoinKind.INNER, JoinKind.SEMI) or (plan.kind, plan.condition) == (JoinKind.LEFT, None)
            else None
        )
    return False if plan.kind is JoinKind.INNER and logical.is_one_row(plan.left) else None


def _row_join(builder: Builder, plan: logical.Join, left: Stream, right: Stream, row_is_right: bool) -> Stream:
    """A join with a side that has one row. The row is sent to the rows of the other side."""
    emits_row = plan.kind is not JoinKind.SEMI
    one, many = (right, left) if row_is_right else (left, right)
    if many.distribution is ANYWHERE or any(i.dispatch is Dispatch.FORWARD for i in many.draft.inputs):
        # A forward input is read on its producer's level, which may come before the row's level.
        many = builder.add_exchange(many, many.key if many.distribution is ANYWHERE else many.distribution)
    assert many.distribution is not None
    row = msgspec.structs.replace(
        builder.close_as_input(one, ()), dispatch=Dispatch.BROADCAST if many.distribution else Dispatch.SINGLETON
    )
    of_row, of_many = tuple(len(many.types) + c for c in one.visible), many.visible
    visible = (*of_many, *of_row) if row_is_right else (*of_row, *of_many)
    condition = None if plan.condition is None else renumber_columns(plan.condition, visible)
    condition, behind = _split_condition(plan.kind, condition)
    types = (*many.types, *one.types) if emits_row else many.types
    node = RowJoin(many.types, one.types, many.key, many.distribution, condition, emits_row, types)
    many.draft.inputs.append(row)
    ref = builder.add_operator(many.draft, node, (many.ref, input_ref(len(many.draft.inputs) - 1)))
    stream = replace(many, ref=ref, types=types, visible=visible if emits_row else of_many, append_only=False)
    return stream if behind is None else builder.filter_rows(stream, behind)


def plan_single_row(builder: Builder, plan: logical.SingleRow) -> Stream:
    """A scalar subquery's row at one actor. A single row needs no key."""
    below, types = builder.plan_stream(plan.input), tuple(f.type for f in plan.fields)
    ref = builder.add_projection(below, [logical.Column(c, below.types[c]) for c in below.visible], types)
    only = replace(below, ref=ref, types=types, visible=tuple(range(len(types))), key=(), distribution=ANYWHERE)
    there = builder.add_exchange(only, ())
    ref = builder.add_operator(there.draft, SingleRowNode(types), (there.ref,))
    return replace(there, ref=ref, append_only=False)


def _null_count(builder: Builder, stream: Stream, keys: tuple[int, ...]) -> Input:
    """The number of rows in a stream, and of rows with a known key: one row, for every actor."""
    (key,) = keys
    (kind,) = (stream.types[key],)
    calls = (Agg(AggFunction.COUNT, None, None, "bigint"), Agg(AggFunction.COUNT, 0, kind, "bigint"))
    raw = (logical.Column(key, kind),)
    ref = builder.add_projection(stream, raw, (kind,))
    sender = PartialAgg((kind,), (), calls, stream.append_only, ())
    sender = msgspec.structs.replace(sender, types=partial_types(sender))
    ref = builder.add_operator(stream.draft, sender, (ref,))
    counted = builder.add_exchange(Stream(stream.draft, ref, sender.types, (), (), ANYWHERE, False), ())
    types = ("bigint", "bigint")
    ref = builder.add_operator(
        counted.draft, HashAgg((kind,), (), calls, (), stream.append_only, True, types), (counted.ref,), ()
    )
    number = builder.close_fragment(replace(counted, ref=ref, types=types))
    return Input(None, number, (0, 1), types, Dispatch.BROADCAST)


def _joined_key(
    kind: JoinKind, left: Stream, left_keys: tuple[int, ...], right: Stream, right_keys: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The stream key and the distribution of a join's output. The distribution is the join key, a part of the key.

    Why it is a key: the keys of both rows identify a pair, and a row without a match is identified by its own key. In
    an inner or left join, a right key column in the join key equals its left counterpart, which replaces it. A left
    row is returned either padded or in pairs, never both, so the NULLs of the right key's columns are unambiguous. A
    right join is the mirror image: right columns replace the left ones, which may be NULL. In a full join either may
    be NULL, so hidden columns of the join key replace both; the key also contains which sides exist, because rows
    that lack different sides may otherwise be equal. Semi, anti and existence joins return left rows.
    """
    width = len(left.types)
    from_right = tuple(width + c for c in right.key)
    match kind:
        case JoinKind.INNER | JoinKind.LEFT | JoinKind.SINGLE:
            partner = {width + r: left_keys[i] for i, r in reversed(list(enumerate(right_keys)))}
            return _distinct_columns(*left_keys, *left.key, *(partner.get(c, c) for c in from_right)), left_keys
        case JoinKind.RIGHT:
            distribution = tuple(width + c for c in right_keys)
            partner = {c: distribution[i] for i, c in reversed(list(enumerate(left_keys)))}
            return _distinct_columns(*distribution, *from_right, *(partner.get(c, c) for c in left.key)), distribution
        case JoinKind.FULL:
            behind = width + len(right.types)
            distribution = tuple(range(behind, behind + len(left_keys)))
            partner = {width + r: distribution[i] for i, r in reversed(list(enumerate(right_keys)))}
            partner |= {c: distribution[i] for i, c in reversed(list(enumerate(left_keys)))}
            own = (partner.get(c, c) for c in (*left.key, *from_right))
            return _distinct_columns(*distribution, *own, behind + len(left_keys)), distribution
        case JoinKind.SEMI | JoinKind.ANTI | JoinKind.NULL_AWARE_ANTI | JoinKind.EXISTENCE:
            return _distinct_columns(*left_keys, *left.key), left_keys
        case _:
            assert_never(kind)


def _distinct_columns(*columns: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(columns))
