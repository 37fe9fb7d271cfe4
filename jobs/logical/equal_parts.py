"""Aggregations that occur more than once in a plan, such as aggregations of a WITH relation that a query reads twice.

Spark's optimizer copies such a relation to each place that reads it. Copies are equal if they differ only in the places
of their text and in the names of their columns. The planner computes an aggregation once for all its copies.

Other parts are computed for each copy. Filters and projections cost less than passing on their rows. Joins and windows
pass pieces of their output to a single reader, and two readers would need all of it in memory.
"""

from collections import Counter

import msgspec

from tussock.jobs.logical.nodes import Aggregate, Plan, TopN, scans_of

_SHARED = (Aggregate, TopN)  # their output is at most the changed groups or rows
_UNREAD = ("place", "name")  # keys of the stored form without an effect on rows


def text_of_part(plan: Plan) -> bytes:
    """A text that equal parts have in common. Cost: as encoding the part."""
    return msgspec.json.encode(_drop_unread(msgspec.to_builtins(plan)))


def equal_parts(plan: Plan) -> frozenset[bytes]:
    """The texts of the aggregations that occur more than once, without the ones that occur only within copies.

    Cost: a walk, if the plan reads no relation twice.
    """
    read = [scan.relation for scan in scans_of(plan)]
    if len(read) == len(set(read)):
        return frozenset()
    count_by_text = Counter[bytes]()
    _count_aggregations(plan, count_by_text)
    return frozenset(text for text, times in count_by_text.items() if times > 1)


def may_be_equal(plan: Plan) -> bool:
    """Whether a part is of a kind that is shared."""
    return isinstance(plan, _SHARED)


def _count_aggregations(plan: Plan, count_by_text: Counter[bytes]) -> None:
    """Count the aggregations. The parts of a copy are not counted again."""
    if may_be_equal(plan):
        text = text_of_part(plan)
        count_by_text[text] += 1
        if count_by_text[text] > 1:
            return
    for below in plan.inputs:
        _count_aggregations(below, count_by_text)


def _drop_unread(value: object) -> object:
    if isinstance(value, dict):
        return {k: _drop_unread(v) for k, v in value.items() if k not in _UNREAD}
    return [_drop_unread(v) for v in value] if isinstance(value, list | tuple) else value
