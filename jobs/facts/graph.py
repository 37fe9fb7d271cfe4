"""The graph of a pipeline, with sources, tables, views and sinks, and the fragments of each relation."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from tussock.jobs.schedule.explain import explain_relation, planned_fragments
from tussock.jobs.schedule.schedule import Schedule, ScheduledFragment
from tussock.jobs.settings.publishing import PublishSettings
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.version import HummockVersion


class NodeState(StrEnum):
    """Whether a node follows its inputs, and if not, why."""

    RUNS = "runs"
    HELD = "held"  # a source with an error: its new files wait
    PAUSED = "paused"  # a view that keeps its current rows
    HELD_BACK = "held back"  # a view whose suite failed: readers see earlier rows
    BUILDING = "being built"  # a new view that several epochs build; not visible yet


class GraphNode(msgspec.Struct, frozen=True):
    """One relation, or the tables outside the store that the pipeline publishes to."""

    name: str
    kind: str  # the relation's kind, or `sink`
    state: NodeState
    reads: tuple[str, ...]  # names of the nodes that it reads


class FragmentFacts(msgspec.Struct, frozen=True):
    """One fragment: its level, actors and operators."""

    id: int
    level: int  # of the epoch; it reads the output of lower levels
    relation: str
    actors: str
    operators: tuple[str, ...]  # one line each; `c{i}` is column i of the operator's input
    reads: tuple[int, ...]  # ids of the fragments that it reads
    tables: tuple[str, ...]  # its state tables, `name#number`


def build_graph(version: HummockVersion, publish: Sequence[PublishSettings] = ()) -> tuple[GraphNode, ...]:
    """Return the pipeline's nodes, each after its inputs. Does not read the store.

    Nodes are live relations, new views that several epochs build, and the sinks that the pipeline publishes to.
    Functions are omitted, because no rows flow through them, as are internal relations.
    """
    live = [r for r in version.catalog.live_relations() if r.kind is not RelationKind.FUNCTION and not r.is_internal]
    names = {r.id: r.name for r in live}
    new = [
        r
        for build in version.catalog.builds
        for r in build.relations
        if r.name not in names.values() and not r.is_internal
    ]
    names |= {r.id: r.name for r in new}
    held_back = published_sight(version).held
    nodes = [
        GraphNode(
            r.name,
            r.kind,
            _node_state(r, held_back),
            tuple(names[i] for i in dict.fromkeys(r.depends_on) if i in names),
        )
        for r in live
    ]
    nodes += [
        GraphNode(
            r.name, r.kind, NodeState.BUILDING, tuple(names[i] for i in dict.fromkeys(r.depends_on) if i in names)
        )
        for r in new
    ]
    views = tuple(r.name for r in live if r.kind is RelationKind.VIEW)
    for sink in publish:
        read = views if sink.relations is None else tuple(name for name in sink.relations if name in names.values())
        nodes.append(GraphNode(f"{sink.title} tables", "sink", NodeState.RUNS, read))
    return tuple(nodes)


def nodes_around(nodes: Sequence[GraphNode], name: str) -> tuple[GraphNode, ...]:
    """Return the part of a graph that contains one node's direct and indirect inputs and readers, in the same order."""
    wanted = {name}
    for node in reversed(nodes):  # readers come after their inputs
        if node.name in wanted:
            wanted |= set(node.reads)
    reached = {name}
    for node in nodes:
        if reached & set(node.reads):
            reached.add(node.name)
    return tuple(
        msgspec.structs.replace(node, reads=tuple(r for r in node.reads if r in wanted | reached))
        for node in nodes
        if node.name in wanted | reached
    )


def nearest_nodes(nodes: Sequence[GraphNode], name: str, most: int) -> tuple[GraphNode, ...]:
    """Return a node and its nearest neighbours, at most `most`, in the same order."""
    beside: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        for read in node.reads:
            beside[node.name].append(read)
            beside[read].append(node.name)
    nearest = dict.fromkeys([name])
    edge = [name]
    while edge and len(nearest) < most:
        edge = list(dict.fromkeys(other for one in edge for other in beside[one] if other not in nearest))
        nearest |= dict.fromkeys(edge)
    there = set(list(nearest)[:most])
    return tuple(
        msgspec.structs.replace(node, reads=tuple(r for r in node.reads if r in there))
        for node in nodes
        if node.name in there
    )


def readers_by_relation(catalog: Catalog) -> Mapping[str, tuple[str, ...]]:
    """Return, by relation, the materialized views that read it directly or indirectly, in order of creation.

    Does not read the store.
    """
    live = catalog.live_relations()
    direct: dict[int, list[Relation]] = {r.id: [] for r in live}
    for relation in live:
        for read in relation.depends_on:
            direct.setdefault(read, []).append(relation)
    below: dict[int, set[int]] = {}
    for relation in reversed(live):  # readers come after their inputs
        below[relation.id] = {i for r in direct[relation.id] for i in (r.id, *below[r.id])}
    return {
        relation.name: tuple(
            r.name for r in live if r.kind is RelationKind.VIEW and r.id in below[relation.id] and not r.is_internal
        )
        if below[relation.id]
        else ()
        for relation in live
    }


def list_fragments(
    catalog: Catalog, relations: Sequence[Relation], whole: Schedule | None = None
) -> tuple[FragmentFacts, ...]:
    """Return the fragments of relations and of everything that they read, as `planned_fragments`. Reads no store.

    Args:
        whole: the catalog's schedule at the relations' first epoch, if already computed.
    """
    return tuple(_fragment_facts(s) for s in planned_fragments(catalog, relations, whole))


def relation_text(catalog: Catalog, relation: Relation, whole: Schedule | None = None) -> str:
    """Return EXPLAIN of a relation, as text; empty for plain views and functions. `whole`: see `list_fragments`."""
    return (
        ""
        if relation.kind in (RelationKind.PLAIN_VIEW, RelationKind.FUNCTION)
        else explain_relation(catalog, relation, whole)
    )


def _node_state(relation: Relation, held_back: Mapping[str, int]) -> NodeState:
    if relation.holds:
        return NodeState.HELD
    if relation.paused is not None:
        return NodeState.PAUSED
    return NodeState.HELD_BACK if relation.name in held_back else NodeState.RUNS


def _fragment_facts(scheduled: ScheduledFragment) -> FragmentFacts:
    fragment = scheduled.fragment
    tables = {t.table_id: t.name for t in scheduled.tables}
    if fragment is None:
        format_ = "" if scheduled.source is None else scheduled.source.statement.format
        return FragmentFacts(
            scheduled.id,
            scheduled.level,
            scheduled.shown_name,
            "an actor per unit",
            (f"SourceScan {format_}",),
            (),
            tuple(tables.values()),
        )
    return FragmentFacts(
        scheduled.id,
        scheduled.level,
        scheduled.shown_name,
        "one actor" if fragment.singleton else "an actor per unit",
        tuple(operator.node.explain_text() for operator in fragment.operators),
        tuple(dict.fromkeys(origin.producer for origin in scheduled.origins)),
        tuple(f"{tables[t]}#{t}" for operator in fragment.operators for t in operator.tables),
    )
