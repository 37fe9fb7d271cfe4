"""Parts of a plan that occur more than once, such as a WITH relation that a query reads twice.

Spark's optimizer copies such a relation to each place that reads it. Copies are equal if they differ only in the places
of their text and in the names of their columns. The planner computes a part with state once for all its copies.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec

from tussock.jobs.logical.nodes import (
    Expand,
    Filter,
    Generate,
    Plan,
    Project,
    Range,
    Scan,
    Sort,
    Union,
    Values,
)

_STATELESS = (Scan, Values, Range, Project, Filter, Expand, Generate, Sort, Union)
_UNREAD = ("place", "name")  # keys of the stored form without an effect on rows


def text_of_part(plan: Plan) -> bytes:
    """A text that equal parts have in common. Cost: as encoding the part."""
    return msgspec.json.encode(_bare(msgspec.to_builtins(plan)))


def equal_parts(plan: Plan) -> frozenset[bytes]:
    """The texts of the largest parts that occur more than once and have state.

    A part without state costs less than passing on its rows. Cost: nothing but a walk if the plan reads no relation
    twice.
    """
    if not _reads_twice(plan):
        return frozenset()
    found, with_state = Counter[bytes](), set[bytes]()
    _count(plan, found, with_state)
    return frozenset(text for text in with_state if found[text] > 1)


def _count(plan: Plan, found: Counter[bytes], with_state: set[bytes]) -> bool:
    """Count the parts, without the parts of a copy. Return whether the plan has state."""
    text = text_of_part(plan)
    found[text] += 1
    if found[text] > 1:
        return text in with_state
    below = [_count(part, found, with_state) for part in plan.inputs]
    if any(below) or not isinstance(plan, _STATELESS):
        with_state.add(text)
    return text in with_state


def _reads_twice(plan: Plan) -> bool:
    read = [part.relation for part in _parts(plan) if isinstance(part, Scan)]
    return len(read) > len(set(read))


def _parts(plan: Plan) -> Iterator[Plan]:
    """The plan and all plans below it."""
    yield plan
    for below in plan.inputs:
        yield from _parts(below)


def _bare(value: object) -> object:
    if isinstance(value, dict):
        return {k: _bare(v) for k, v in value.items() if k not in _UNREAD}
    return [_bare(v) for v in value] if isinstance(value, list | tuple) else value
