"""Pause views that an earlier release computed in two time zones, in stores with another zone than UTC.

Earlier releases let Spark compute functions in the store's zone or in UTC, depending on the other input of the epoch.
No record shows which rows of a view are in which zone. A change to such a row would contradict the stored one, or
leave a wrong row unnoticed. So the first barrier of a later release pauses each view that Spark may compute by a time
zone, until the view is rebuilt.
"""

import re

import msgspec

from tussock.jobs.logical.expression_tree import calls_of_spark
from tussock.jobs.logical.nodes import Call
from tussock.jobs.plan.apply import CannotPauseError, paused
from tussock.jobs.plan.definition import fragments_of
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind

_IN_A_ZONE = re.compile(
    "time|date|zone|unix|hour|minute|second|day|week|month|quarter|year|trunc|json|csv|xml|variant", re.IGNORECASE
)


def in_one_zone(before: Catalog, after: Catalog, time_zone: str, epoch: int) -> Catalog:
    """The catalog `after` without running views that may contain rows of two time zones.

    Args:
        before: the catalog of the version that the barrier follows.
        time_zone: the store's.
        epoch: the barrier's.
    """
    if time_zone == "UTC" or after.one_zone is True:
        return after
    mixed = [
        r
        for r in after.live()
        if r.kind is RelationKind.VIEW and r.paused is None and r.created < epoch and _is_of_a_zone(r)
    ]
    if not mixed and after == before:
        return after  # an idle store needs no epoch for this
    reason = f"an earlier release computed some of its expressions in UTC and not in {time_zone}"
    try:
        after = paused(after, {r.name: reason for r in mixed if not r.internal}, epoch)
    except CannotPauseError:  # a view over it is new in this epoch; the next one pauses both
        return after
    return msgspec.structs.replace(after, one_zone=True)


def _is_of_a_zone(view: Relation) -> bool:
    """Whether Spark computes something of the view that may depend on a time zone.

    The test uses types and function names, so it may include views unnecessarily.
    """
    inputs = (i for fragment in fragments_of(view) for i in fragment.inputs)
    exprs = (e for i in inputs if not isinstance(i.project, msgspec.UnsetType) for e in i.project)
    return any(_of_a_zone(call) for expr in exprs for call in calls_of_spark(expr))


def _of_a_zone(call: Call) -> bool:
    types = (call.type, *(arg.type for arg in call.args))
    return any(_IN_A_ZONE.search(text) for text in (*types, *(value for _, value in call.params)))
