"""Aggregates: the columns they read, summed up by the sender where that is possible."""

from dataclasses import replace

import msgspec

from jobs.executors.agg_call import Agg
from jobs.executors.hash_agg import HashAgg
from jobs.executors.partial_agg import PartialAgg, partial_types
from jobs.plan.streams.builder import Builder, Stream
from jobs.sql import logical
from jobs.sql.expression_tree import renumbered
from jobs.sql.logical import AggFunction


def plan_aggregate(builder: Builder, plan: logical.Aggregate) -> Stream:
    below = builder.stream(plan.input)
    columns: list[logical.Expr] = [renumbered(k, below.visible) for k in plan.keys]
    calls: list[Agg] = []
    for call in plan.calls:
        argument = _argument(call, below.visible)
        if argument is not None and argument not in columns[len(plan.keys) :]:
            columns.append(argument)
        place = None if argument is None else len(plan.keys) + columns[len(plan.keys) :].index(argument)
        calls.append(Agg(call.function, place, None if argument is None else argument.type, call.type, call.mode))
    extremes = not below.append_only and any(c.function in (AggFunction.MIN, AggFunction.MAX) for c in calls)
    wide = len(columns)
    distribution: tuple[int, ...] | None = None
    columns += [logical.Column(c, below.types[c]) for c in below.key] if extremes else []
    if below.distribution is not None:  # keep it only where the groups have it
        at = {e.index: i for i, e in reversed(list(enumerate(columns[: len(plan.keys)]))) if isinstance(e, logical.Column)}
        distribution = tuple(at[c] for c in below.distribution) if all(c in at for c in below.distribution) else None
    types = tuple(e.type for e in columns)
    stream_key = tuple(range(wide, len(columns)))
    keys = tuple(range(len(plan.keys)))
    ref = builder.projection(below, columns, types)
    raw = replace(below, ref=ref, types=types, visible=keys, key=stream_key, distribution=distribution)
    out_types = tuple(types[k] for k in keys) + tuple(c.type for c in calls)
    partial = distribution is None and not extremes
    node = HashAgg(types, keys, tuple(calls), stream_key, below.append_only, partial, out_types)
    if partial:
        sender = PartialAgg(types, keys, tuple(calls), below.append_only, ())
        sender = msgspec.structs.replace(sender, types=partial_types(sender))
        ref = builder.operator(raw.draft, sender, (raw.ref,))
        raw = replace(raw, ref=ref, types=sender.types, key=keys, append_only=False)
    if distribution is None:
        raw = builder.exchange(raw, keys)
        distribution = keys
    ref = builder.operator(raw.draft, node, (raw.ref,), distribution)
    visible = tuple(range(len(out_types)))
    return replace(raw, ref=ref, types=out_types, visible=visible, key=keys, distribution=distribution, append_only=False)


def _argument(call: logical.AggCall, visible: tuple[int, ...]) -> logical.Expr | None:
    """The one column an aggregate reads; a FILTER becomes NULL where it does not hold, which every aggregate ignores."""
    argument = renumbered(call.args[0], visible) if call.args else None
    if len(call.args) > 1:  # count(a, b): rows where all are there
        missing: logical.Expr = logical.Call("IsNotNull", "boolean", (argument,))  # type: ignore[arg-type]
        for other in call.args[1:]:
            there = logical.Call("IsNotNull", "boolean", (renumbered(other, visible),))
            missing = logical.Call("And", "boolean", (missing, there))
        argument = logical.Call("If", "int", (missing, logical.Literal(1, "int"), logical.Literal(None, "int")))
    if call.function is AggFunction.COUNT and isinstance(argument, logical.Literal) and argument.value is not None:
        argument = None
    if call.filter is None:
        return argument
    argument = logical.Literal(1, "int") if argument is None else argument
    condition = renumbered(call.filter, visible)
    return logical.Call("If", argument.type, (condition, argument, logical.Literal(None, argument.type)))
