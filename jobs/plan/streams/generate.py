"""Generate: several rows per input row, distinguished by their position."""

from dataclasses import replace

from tussock.jobs.executors import generate
from tussock.jobs.logical import nodes as logical
from tussock.jobs.plan.streams.builder import Builder, Stream


def plan_generate(builder: Builder, plan: logical.Generate) -> Stream:
    """The key is the input's key and the position among the rows of one input row."""
    below, (argument,) = builder.add_computed_columns(builder.plan_stream(plan.input), [plan.argument])
    kept_columns = tuple(
        dict.fromkeys((*(below.visible[i] for i in plan.passed_columns), *below.key, *(below.distribution or ())))
    )
    at, width = {c: i for i, c in enumerate(kept_columns)}, len(kept_columns)
    new_types = tuple(f.type for f in plan.made)
    types = (*(below.types[c] for c in kept_columns), *new_types, "int")
    node = generate.GenerateNode(plan.generator, argument, plan.outer, width, types, kept_columns)
    ref = builder.add_operator(below.draft, node, (below.ref,))
    visible = (*(at[below.visible[i]] for i in plan.passed_columns), *range(width, width + len(new_types)))
    distribution = None if below.distribution is None else tuple(at[c] for c in below.distribution)
    key = (*(at[c] for c in below.key), width + len(new_types))
    return replace(below, ref=ref, types=types, visible=visible, key=key, distribution=distribution)
