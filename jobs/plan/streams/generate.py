"""Generate: several rows of one, distinguished by their place."""

from dataclasses import replace

from jobs.executors import generate
from jobs.plan.streams.builder import Builder, Stream
from jobs.sql import logical
from jobs.sql.expression_tree import renumbered


def plan_generate(builder: Builder, plan: logical.Generate) -> Stream:
    """Why the key is one: the rows made of one row differ in their place, those of two rows in the input's key."""
    below = builder.stream(plan.input)
    width = len(below.types)
    made = tuple(f.type for f in plan.made)
    types = (*below.types, *made, "int")
    node = generate.Generate(plan.generator, renumbered(plan.argument, below.visible), plan.outer, width, types)
    ref = builder.operator(below.draft, node, (below.ref,))
    visible = (*below.visible, *range(width, width + len(made)))
    return replace(below, ref=ref, types=types, visible=visible, key=(*below.key, width + len(made)))
