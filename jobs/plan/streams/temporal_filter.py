"""Temporal filters: the compared value becomes a column, and rows are moved to the unit of their key.

Key and distribution are the input's, since a row is returned at most once. The output is append-only if the
source is and the moment only adds rows.
"""

from dataclasses import replace

from tussock.jobs.executors.temporal_filter import TemporalFilterNode
from tussock.jobs.executors.unexpired import Unexpired
from tussock.jobs.logical import nodes as logical
from tussock.jobs.plan.streams.builder import ANYWHERE, Builder, Stream


def plan_temporal_filter(builder: Builder, plan: logical.TemporalFilter) -> Stream:
    below, (value,) = builder.add_key_columns(builder.plan_stream(plan.input), (plan.value,))
    distribution = below.key if below.distribution is ANYWHERE else below.distribution
    node = TemporalFilterNode(value, plan.comparison, plan.bound, plan.forgets, below.key, distribution, below.types)
    if below.distribution is ANYWHERE:
        if node.forgets and not node.comparison.lets_in:  # expired rows need not move
            below = builder.append_node(below, Unexpired(node))
        below = builder.add_exchange(below, distribution)
    only_grows = below.append_only and plan.forgets and plan.comparison.lets_in
    return replace(builder.append_node(below, node), append_only=only_grows)
