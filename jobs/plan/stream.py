"""Logical plan -> stream plan: choose keys, distributions and state tables, and cut the plan into fragments.

Every stream has a *stream key* (columns that identify a row) and a *distribution* (columns whose vnode decides the
unit; a subset of the key). An operator that needs all rows of a key on one unit needs no exchange if the distribution
is a subset of that key. Otherwise an exchange starts a new fragment. Key columns that the query does not select are
carried as hidden columns after the visible ones.

The planner of each operator is a file in `streams/`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from tussock.jobs.executors.filter import FilterNode
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.executors.materialize import Materialize
from tussock.jobs.executors.project import ProjectNode
from tussock.jobs.logical import nodes as logical
from tussock.jobs.logical.equal_parts import equal_parts
from tussock.jobs.logical.errors import UnsupportedQueryError
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.expression_tree import calls_of_spark, renumber_columns
from tussock.jobs.plan.fragments import Fragment, Output
from tussock.jobs.plan.streams.aggregate import plan_aggregate
from tussock.jobs.plan.streams.builder import ANYWHERE, Builder, Stream, Upstream
from tussock.jobs.plan.streams.constant import plan_range, plan_values
from tussock.jobs.plan.streams.expand import plan_expand
from tussock.jobs.plan.streams.generate import plan_generate
from tussock.jobs.plan.streams.join import plan_join, plan_single_row
from tussock.jobs.plan.streams.scan import plan_scan
from tussock.jobs.plan.streams.temporal_filter import plan_temporal_filter
from tussock.jobs.plan.streams.top_n import plan_top_n
from tussock.jobs.plan.streams.union import plan_union
from tussock.jobs.plan.streams.window import group_limit, plan_group_top_n, plan_window
from tussock.jobs.plan.view_order import with_order
from tussock.statestore.meta.catalog import TableSchema


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """A planned view: its fragments in dependency order (the last one materializes), state tables and output."""

    fragments: tuple[Fragment, ...]
    tables: tuple[TableSchema, ...]
    output: Output


def plan_view(
    plan: logical.Plan,
    relation_id: int,
    upstream: Callable[[str], Upstream],
    first_table_id: int,
) -> ViewPlan:
    """Plan a view.

    Args:
        plan: the bound query.
        relation_id: the view's id.
        upstream: a relation's name -> the planner's information about it.
        first_table_id: the first id of its state tables, which are numbered without gaps.

    Returns: the fragments to store with the view. Equal arguments give equal plans, including table ids.
    """
    plan, order = with_order(plan)
    builder = Builder(upstream, first_table_id, plan_stream, equal_parts(plan))
    stream = builder.visible_first(builder.plan_stream(plan), len(plan.fields))
    if stream.distribution is ANYWHERE:
        stream = builder.add_exchange(stream, stream.key)
    checked = not _are_rows_of_groups(stream)
    stream = builder.append_node(
        stream, Materialize(relation_id, stream.key, stream.distribution or (), stream.types, order, checked)
    )
    builder.close_fragment(stream)
    (table_id,) = stream.draft.operators[-1].tables
    _require_computable(builder.closed)
    output = Output(stream.types, stream.key, stream.distribution or (), stream.append_only, table_id, bool(order))
    return ViewPlan(tuple(builder.closed), tuple(builder.tables), output)


def _are_rows_of_groups(stream: Stream) -> bool:
    """Whether the rows are those of an aggregation, at most projected and filtered one by one."""
    nodes = [operator.node for operator in stream.draft.operators]
    while nodes and isinstance(nodes[-1], ProjectNode | FilterNode):
        nodes.pop()
    return bool(nodes) and isinstance(nodes[-1], HashAgg)


def _require_computable(fragments: Sequence[Fragment]) -> None:
    """Raises UnsupportedQueryError if Spark would have to compute inside an operator, which it cannot access."""
    for operator in (o for f in fragments for o in f.operators):
        for call in (c for e in operator.node.expressions() for c in calls_of_spark(e)):
            raise UnsupportedQueryError(
                expression_text(call),
                "no kernel implements it, and Spark computes such expressions only between operators, not inside "
                f"{operator.node.operator_name}; compute it as a column of a subquery",
                call.place,
            )


def plan_stream(builder: Builder, plan: logical.Plan) -> Stream:
    """The stream of a plan. Its earlier fragments are closed, the last one is its draft."""
    match plan:
        case logical.Scan():
            return plan_scan(builder, plan)
        case logical.Values():
            return plan_values(builder, plan)
        case logical.Range():
            return plan_range(builder, plan)
        case logical.Filter(logical.Window()) if (limited := group_limit(plan)) is not None:
            return plan_group_top_n(builder, *limited)
        case logical.Filter(input, condition):
            below = builder.plan_stream(input)
            return builder.filter_rows(below, renumber_columns(condition, below.visible))
        case logical.Project(input, exprs):
            return builder.project_columns(builder.plan_stream(input), exprs)
        case logical.Expand():
            return plan_expand(builder, plan)
        case logical.Generate():
            return plan_generate(builder, plan)
        case logical.TemporalFilter():
            return plan_temporal_filter(builder, plan)
        case logical.Join():
            return plan_join(builder, plan)
        case logical.SingleRow():
            return plan_single_row(builder, plan)
        case logical.Union():
            return plan_union(builder, plan)
        case logical.Aggregate():
            return plan_aggregate(builder, plan)
        case logical.TopN():
            return plan_top_n(builder, plan)
        case logical.Sort(input):  # below a join, which keeps no order
            return builder.plan_stream(input)
        case logical.Window():
            return plan_window(builder, plan)
        case _:
            assert_never(plan)
