"""Aggregates: the columns that they read, pre-aggregated by the sender if possible."""

from dataclasses import replace

import msgspec

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.ordered_state import OrderedLayout
from tussock.jobs.executors.partial_agg import PartialAgg, partial_types
from tussock.jobs.executors.value_layout import value_layout
from tussock.jobs.logical import nodes as logical
from tussock.jobs.logical.expression_tree import renumber_columns
from tussock.jobs.logical.nodes import AggFunction
from tussock.jobs.plan.streams.builder import Builder, Stream


def plan_aggregate(builder: Builder, plan: logical.Aggregate, spread_by: tuple[int, ...] = ()) -> Stream:
    """Plan an aggregation.

    Args:
        spread_by: the keys whose hash decides a group's unit if rows must move. Empty: all keys.
    """
    below = _of_distincts(builder, plan) or builder.plan_stream(plan.input)
    columns: list[logical.Expr] = [renumber_columns(k, below.visible) for k in plan.keys]
    arguments = _Arguments(below.visible, len(plan.keys))
    calls = tuple(arguments.place_call(call) for call in plan.calls)
    columns += arguments.columns
    sides = value_layout(calls, below.append_only).sides
    wide = len(columns)
    distribution: tuple[int, ...] | None = None
    columns += (
        [logical.Column(c, below.types[c]) for c in below.key]
        if any(isinstance(s, OrderedLayout) for s in sides)
        else []
    )
    if below.distribution is not None:  # keep it only if it is part of the group key
        at = {
            e.index: i for i, e in reversed(list(enumerate(columns[: len(plan.keys)]))) if isinstance(e, logical.Column)
        }
        distribution = tuple(at[c] for c in below.distribution) if all(c in at for c in below.distribution) else None
    types = tuple(e.type for e in columns)
    stream_key = tuple(range(wide, len(columns)))
    keys = tuple(range(len(plan.keys)))
    ref = builder.add_projection(below, columns, types)
    raw = replace(below, ref=ref, types=types, visible=keys, key=stream_key, distribution=distribution)
    out_types = tuple(types[k] for k in keys) + tuple(c.type for c in calls)
    partial = distribution is None and not sides
    node = HashAgg(types, keys, calls, stream_key, below.append_only, partial, out_types)
    if partial:
        sender = PartialAgg(types, keys, calls, below.append_only, ())
        sender = msgspec.structs.replace(sender, types=partial_types(sender))
        ref = builder.add_operator(raw.draft, sender, (raw.ref,))
        raw = replace(raw, ref=ref, types=sender.types, key=keys, append_only=False)
    if distribution is None:
        distribution = spread_by or keys
        raw = builder.add_exchange(raw, distribution)
    ref = builder.add_operator(raw.draft, node, (raw.ref,), distribution)
    visible = tuple(range(len(out_types)))
    return replace(
        raw, ref=ref, types=out_types, visible=visible, key=keys, distribution=distribution, append_only=False
    )


def _of_distincts(builder: Builder, plan: logical.Aggregate) -> Stream | None:
    """The lower aggregation that makes values of several DISTINCT unique, distributed like the groups of the upper one.

    The values of a group are then adjacent in its state, so that an epoch reads them together, and rows move only once.
    None if the input is something else.
    """
    below = plan.input
    if (
        not plan.keys
        or not isinstance(below, logical.Aggregate)
        or not isinstance(_skip_projections(below.input), logical.Expand)
    ):
        return None
    groups = [k.index for k in plan.keys if isinstance(k, logical.Column) and k.index < len(below.keys)]
    return plan_aggregate(builder, below, tuple(groups)) if len(groups) == len(plan.keys) else None


def _skip_projections(plan: logical.Plan) -> logical.Plan:
    return _skip_projections(plan.input) if isinstance(plan, logical.Project) else plan


class _Arguments:
    """The columns that an aggregation reads after its keys, without repeats."""

    def __init__(self, visible: tuple[int, ...], first: int) -> None:
        self._visible, self._first = visible, first
        self.columns: list[logical.Expr] = []

    def place_call(self, call: logical.AggCall) -> Agg:
        """The call over columns."""
        args = [renumber_columns(a, self._visible) for a in call.args]
        if (
            call.function is AggFunction.COUNT
            and args
            and all(isinstance(a, logical.Literal) and a.value is not None for a in args)
        ):
            args = []
        filter_column = None
        if call.filter is not None:  # excluded values become NULL, which most aggregates ignore
            condition = renumber_columns(call.filter, self._visible)
            carrier = call.null_excluding_arg
            if carrier is None:
                filter_column = self._add_column(condition)
            else:
                args = args or [logical.Literal(1, "int")]
                nothing = logical.Literal(None, args[carrier].type)
                args[carrier] = logical.Call("If", nothing.type, (condition, args[carrier], nothing))
        places = tuple(self._add_column(a) for a in args)
        order = tuple(
            Order(self._add_column(renumber_columns(k.expr, self._visible)), k.descending, k.nulls_last)
            for k in call.order
        )
        return Agg(
            call.function,
            arg=places[0] if places else None,
            arg_type=args[0].type if args else None,
            type=call.type,
            mode=call.mode,
            more=places[1:],
            more_types=tuple(a.type for a in args[1:]),
            distinct=call.distinct,
            filter_column=filter_column,
            params=call.params,
            order=order,
        )

    def _add_column(self, expr: logical.Expr) -> int:
        if expr not in self.columns:
            self.columns.append(expr)
        return self._first + self.columns.index(expr)
