"""Top-n: an order (the stream key's if the query has none), a limit, and the sort keys as columns."""

from dataclasses import replace

from tussock.jobs.executors.first_rows import FirstRows
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.top_n import TopNNode
from tussock.jobs.logical import nodes as logical
from tussock.jobs.plan.streams.builder import Builder, Stream


def plan_top_n(builder: Builder, plan: logical.TopN) -> Stream:
    below = builder.plan_stream(plan.input)
    width = len(plan.fields)
    fields: list[logical.Expr] = [logical.Column(i, f.type) for i, f in enumerate(plan.fields)]
    computed = [e for e in dict.fromkeys(k.expr for k in plan.order) if e not in fields]
    below = builder.project_columns(below, (*fields, *computed))
    places = {e: below.visible[i] for i, e in enumerate((*fields, *computed))}
    order = tuple(Order(places[k.expr], k.descending, k.nulls_last) for k in plan.order)
    node = TopNNode(order, plan.limit, plan.offset, below.key, below.types, below.append_only)
    if below.distribution != ():
        if node.append_only and node.limit is not None:  # rows beyond the limit need not move
            below = builder.append_node(below, FirstRows(node.key, node.first_count, node.types))
        below = builder.add_exchange(below, ())
    ref = builder.add_operator(below.draft, node, (below.ref,))
    return replace(below, ref=ref, visible=below.visible[:width], append_only=False)
