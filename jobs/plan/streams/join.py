"""Joins: which columns identify what comes out, and where the rows of both sides meet."""

from dataclasses import replace
from typing import assert_never

import msgspec

from jobs.executors.agg_call import Agg
from jobs.executors.hash_agg import HashAgg
from jobs.executors.hash_join import HashJoin, joined_types
from jobs.executors.null_aware_anti import NullAwareAnti
from jobs.executors.partial_agg import PartialAgg, partial_types
from jobs.executors.registry import Node
from jobs.plan.fragments import Dispatch, Input, input_ref
from jobs.plan.streams.builder import ANYWHERE, Builder, Draft, Stream
from jobs.sql import logical
from jobs.sql.expression_tree import renumbered
from jobs.sql.logical import AggFunction, JoinKind


def plan_join(builder: Builder, plan: logical.Join) -> Stream:
    left, left_keys = builder.keyed(builder.stream(plan.left), plan.left_keys)
    right, right_keys = builder.keyed(builder.stream(plan.right), plan.right_keys)
    visible = left.visible + tuple(len(left.types) + c for c in right.visible)
    condition = None if plan.condition is None else renumbered(plan.condition, visible)
    inputs = [builder.input(left, left_keys), builder.input(right, right_keys)]
    if plan.kind is JoinKind.NULL_AWARE_ANTI:
        node: Node = NullAwareAnti(left.types, right.types, left_keys, right_keys, left.key, right.key, left.types)
        here = msgspec.structs.replace(inputs[1], dispatch=Dispatch.FORWARD, keys=())
        draft = Draft([here], singleton=right.draft.singleton)
        inputs.append(_null_count(builder, replace(right, draft=draft, ref=input_ref(0)), right_keys))
    else:
        types = joined_types(plan.kind, left.types, right.types, left_keys)
        node = HashJoin(left.types, right.types, left_keys, right_keys, plan.null_safe, left.key, right.key, condition, types, plan.kind)
    draft = Draft(inputs)
    ref = builder.operator(draft, node, tuple(map(input_ref, range(len(inputs)))))
    key, distribution = _joined_key(plan.kind, left, left_keys, right, right_keys)
    append_only = plan.kind in (JoinKind.INNER, JoinKind.SEMI) and left.append_only and right.append_only
    return Stream(draft, ref, node.types, visible if plan.kind.emits_pairs else left.visible, key, distribution, append_only)


def _null_count(builder: Builder, stream: Stream, keys: tuple[int, ...]) -> Input:
    """How many rows a stream has, and in how many of them the key is known: one row, for every actor."""
    (key,) = keys
    (kind,) = (stream.types[key],)
    calls = (Agg(AggFunction.COUNT, None, None, "bigint"), Agg(AggFunction.COUNT, 0, kind, "bigint"))
    raw = (logical.Column(key, kind),)
    ref = builder.projection(stream, raw, (kind,))
    sender = PartialAgg((kind,), (), calls, stream.append_only, ())
    sender = msgspec.structs.replace(sender, types=partial_types(sender))
    ref = builder.operator(stream.draft, sender, (ref,))
    counted = builder.exchange(Stream(stream.draft, ref, sender.types, (), (), ANYWHERE, False), ())
    types = ("bigint", "bigint")
    ref = builder.operator(counted.draft, HashAgg((kind,), (), calls, (), stream.append_only, True, types), (counted.ref,), ())
    number = builder.close(replace(counted, ref=ref, types=types))
    return Input(None, number, (0, 1), types, Dispatch.BROADCAST)


def _joined_key(
    kind: JoinKind, left: Stream, left_keys: tuple[int, ...], right: Stream, right_keys: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The stream key and the distribution of a join's output; the distribution is the join key, as it is part of the key.

    Why it is a key: a pair is identified by the keys of its two rows, a row without partner by its own. Of an inner or left join a right
    key column that is joined on equals its left partner, which stands for both; a left row comes out padded or in pairs, never both, so
    that the NULLs of the right key's columns can't be taken for another's. A right join is the mirror image: there the right columns stand
    for both, since the left ones may be NULL. In a full join either may be: the hidden columns of the join key stand for both, and which
    sides there are is part of the key, because rows that lack a side may agree in all the rest. Semi and anti joins put out left rows.
    """
    width = len(left.types)
    from_right = tuple(width + c for c in right.key)
    match kind:
        case JoinKind.INNER | JoinKind.LEFT:
            partner = {width + r: left_keys[i] for i, r in reversed(list(enumerate(right_keys)))}
            return _distinct(*left_keys, *left.key, *(partner.get(c, c) for c in from_right)), left_keys
        case JoinKind.RIGHT:
            distribution = tuple(width + c for c in right_keys)
            partner = {c: distribution[i] for i, c in reversed(list(enumerate(left_keys)))}
            return _distinct(*distribution, *from_right, *(partner.get(c, c) for c in left.key)), distribution
        case JoinKind.FULL:
            behind = width + len(right.types)
            distribution = tuple(range(behind, behind + len(left_keys)))
            partner = {width + r: distribution[i] for i, r in reversed(list(enumerate(right_keys)))}
            partner |= {c: distribution[i] for i, c in reversed(list(enumerate(left_keys)))}
            own = (partner.get(c, c) for c in (*left.key, *from_right))
            return _distinct(*distribution, *own, behind + len(left_keys)), distribution
        case JoinKind.SEMI | JoinKind.ANTI | JoinKind.NULL_AWARE_ANTI:
            return _distinct(*left_keys, *left.key), left_keys
        case _:
            assert_never(kind)


def _distinct(*columns: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(columns))
