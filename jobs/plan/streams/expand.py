"""Expand: each row under several projections, distinguished by the projection's number."""

from dataclasses import replace

from tussock.jobs.executors import expand
from tussock.jobs.logical import nodes as logical
from tussock.jobs.plan.streams.builder import Builder, Stream


def plan_expand(builder: Builder, plan: logical.Expand) -> Stream:
    """The key is the input's key and the projection's number, because each row is returned once per projection."""
    below, computed = builder.add_computed_columns(builder.plan_stream(plan.input), plan.expressions)
    width = len(plan.fields)
    projections = tuple(tuple(computed[at : at + width]) for at in range(0, len(computed), width))
    types = (*(f.type for f in plan.fields), "int", *(below.types[c] for c in below.key))
    at = {c: width + 1 + i for i, c in enumerate(below.key)}
    ref = builder.add_operator(below.draft, expand.ExpandNode(projections, below.key, types), (below.ref,))
    distribution = None if below.distribution is None else tuple(at[c] for c in below.distribution)
    key = (*(at[c] for c in below.key), width)
    return replace(below, ref=ref, types=types, visible=tuple(range(width)), key=key, distribution=distribution)
