"""VALUES, SELECT without FROM and range(): leaves without input, which emit their rows in the view's first epoch."""

from tussock.jobs.executors import constant
from tussock.jobs.logical import nodes as logical
from tussock.jobs.plan.streams.builder import ANYWHERE, Builder, FragmentDraft, Stream


def plan_values(builder: Builder, plan: logical.Values) -> Stream:
    """One actor emits the rows. A hidden number is their key, since rows may be equal."""
    node = constant.ValuesNode(
        plan.rows, plan.columns, tuple(f.name for f in plan.fields), (*(f.type for f in plan.fields), "bigint")
    )
    draft = FragmentDraft([], singleton=True)
    width = len(plan.fields)
    return Stream(draft, builder.add_operator(draft, node, ()), node.types, tuple(range(width)), (width,), (), True)


def plan_range(builder: Builder, plan: logical.Range) -> Stream:
    """Every actor emits its share. Numbers do not repeat, so each is its own key."""
    node = constant.RangeNode(plan.start, plan.end, plan.step, plan.fields[0].name)
    draft = FragmentDraft([])
    return Stream(draft, builder.add_operator(draft, node, ()), node.types, (0,), (0,), ANYWHERE, True)
