"""UNION ALL: the rows of all branches under one key."""

from collections.abc import Sequence
from dataclasses import replace

from tussock.jobs.executors.union_all import UnionAll
from tussock.jobs.logical import nodes as logical
from tussock.jobs.plan.fragments import input_ref
from tussock.jobs.plan.streams.builder import Builder, FragmentDraft, Stream


def plan_union(builder: Builder, plan: logical.Union) -> Stream:
    return union_all(builder, [builder.plan_stream(below) for below in plan.inputs], [f.type for f in plan.fields])


def union_all(builder: Builder, branches: Sequence[Stream], visible_types: Sequence[str]) -> Stream:
    """The rows of all branches, keyed by the branch's number and its key.

    `visible_types`: the types of the visible columns.

    Why it is a key: the branch's key identifies a row within the branch, and the number distinguishes branches.
    Branches share hidden key columns of equal types; a branch with fewer has NULL in the others.
    """
    slots: list[str] = []
    taken = [_assign_slots(tuple(b.types[c] for c in b.key), slots) for b in branches]
    width = len(visible_types)
    key = (width, *(width + 1 + i for i in range(len(slots))))
    types = (*visible_types, "int", *slots)
    inputs = []
    for number, (branch, places) in enumerate(zip(branches, taken, strict=True)):
        own = {slot: logical.Column(c, branch.types[c]) for slot, c in zip(places, branch.key, strict=True)}
        visible = (logical.Column(c, branch.types[c]) for c in branch.visible)
        padded = (own.get(i, logical.Literal(None, t)) for i, t in enumerate(slots))
        ref = builder.add_projection(branch, (*visible, logical.Literal(number, "int"), *padded), types)
        inputs.append(builder.close_as_input(replace(branch, ref=ref, types=types), key))
    draft = FragmentDraft(inputs)
    ref = builder.add_operator(draft, UnionAll(types), tuple(input_ref(i) for i in range(len(inputs))))
    return Stream(draft, ref, types, tuple(range(width)), key, key, all(b.append_only for b in branches))


def _assign_slots(types: Sequence[str], slots: list[str]) -> tuple[int, ...]:
    """A slot of the same type for each column. Existing slots are used first, new ones are appended."""
    chosen_slots: list[int] = []
    for kind in types:
        free = next((i for i, slot in enumerate(slots) if slot == kind and i not in chosen_slots), len(slots))
        if free == len(slots):
            slots.append(kind)
        chosen_slots.append(free)
    return tuple(chosen_slots)
