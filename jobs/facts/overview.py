"""A pipeline at a glance: its progress, and the state of each relation.

Reads only the version.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from tussock.jobs.facts.graph import NodeState, build_graph
from tussock.jobs.facts.moment import epoch_moment, moment_if_any
from tussock.jobs.facts.tables import stored_bytes, tables_by_relation
from tussock.jobs.facts.views import ViewFacts
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.version import HummockVersion


class RelationState(msgspec.Struct, frozen=True):
    """The state of one relation."""

    name: str
    kind: str
    state: NodeState
    seen: int | None  # the epoch as of which readers see it; None: not visible, or a source
    seen_at: datetime | None
    state_bytes: int  # of all its state tables, encoded; includes old versions until compaction drops them


class PipelineState(msgspec.Struct, frozen=True):
    """A pipeline at one version of its store."""

    version: int
    epoch: int  # committed; 0: no epoch yet
    at: datetime | None
    published: int
    published_at: datetime | None
    kinds: Mapping[str, int]  # number of sources, tables, views, …
    bytes: int  # of all SSTs
    ssts: int
    units: int

    @property
    def unpublished(self) -> bool:
        """Whether readers see an older epoch than the committed one."""
        return self.published < self.epoch


def pipeline_state(version: HummockVersion) -> PipelineState:
    """Return the pipeline's state at a version. Cost: O(relations + SSTs)."""
    live = [r for r in version.catalog.live_relations() if not r.is_internal]
    ssts = [s for level in version.levels for s in level]
    return PipelineState(
        version.id,
        version.epoch,
        moment_if_any(version.epoch),
        version.published,
        moment_if_any(version.published),
        {kind: sum(r.kind is kind for r in live) for kind in RelationKind},
        sum(s.size for s in ssts),
        len(ssts),
        version.mapping.unit_count,
    )


def oldest_unseen_s(views: Sequence[ViewFacts]) -> float | None:
    """Return the largest `freshness_s` of the views; None if no view has one."""
    return max((view.freshness_s for view in views if view.freshness_s is not None), default=None)


def relation_states(version: HummockVersion) -> tuple[RelationState, ...]:
    """Return the states of all live relations, in order of creation. Cost: O(relations + sections of SSTs)."""
    tables = tables_by_relation(version)
    sight, states = published_sight(version), []
    visible = {r.name for r in version.catalog.relations_at(version.published)}
    for node in build_graph(version):
        seen = (
            sight.epoch_of(node.name) or None
            if node.name in visible and node.kind in (RelationKind.VIEW, RelationKind.TABLE)
            else None
        )
        at = None if seen is None else epoch_moment(seen)
        size = stored_bytes(tables.get(node.name, ()))
        states.append(RelationState(node.name, node.kind, node.state, seen, at, size))
    return tuple(states)
