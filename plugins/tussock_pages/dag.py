"""The tab of a DAG: views with their recent epochs, the graph, and the page of one relation with its fragments."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session
from tussock_steps import KINDS

from tussock.jobs.facts.epochs import EpochFacts
from tussock.jobs.facts.graph import (
    FragmentFacts,
    GraphNode,
    build_graph,
    list_fragments,
    nearest_nodes,
    nodes_around,
    relation_text,
)
from tussock.jobs.facts.history import ViewPoint, epoch_page, points_by_relation
from tussock.jobs.facts.overview import PipelineState, RelationState, oldest_unseen_s, pipeline_state, relation_states
from tussock.jobs.facts.published import CopyOfView, copies_of_view
from tussock.jobs.facts.status import Status
from tussock.jobs.facts.tables import list_tables
from tussock.jobs.facts.trouble import Trouble
from tussock.jobs.facts.views import ViewFacts, ViewState
from tussock.jobs.logical.statements import Show, Shown
from tussock.jobs.schedule.schedule import make_schedule
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.publishing import PublishSettings
from tussock.jobs.statements.show import answer_show
from tussock.jobs.texts.drawing import Drawing, draw_graph
from tussock.statestore.meta.catalog import Catalog, RelationKind
from tussock_pages.dag_runs import last_runs
from tussock_pages.guard import READS_RUNS, Rights, User, may_read, rights_of
from tussock_pages.health import look_at_status, shown_troubles, troubles_of
from tussock_pages.overview import WaitingFiles
from tussock_pages.page import page
from tussock_pages.remembered import Same, key_of
from tussock_pages.sparkline import Sparkline, sparkline
from tussock_pages.stores import LookResult, SeenStore, name_in, open_store, pipeline_of

RELATIONS_A_PAGE = 50
EPOCHS_IN_SPARKLINES = 30
MOST_BOXES = 120  # of one drawing; a larger graph is a list, whose nodes lead to drawings around them
NODES_A_PAGE = 50
WITH_ROWS = (RelationKind.VIEW, RelationKind.TABLE)
router = APIRouter(dependencies=[READS_RUNS])


@dataclass(frozen=True, slots=True)
class ViewRow:
    """One relation of the table."""

    view: ViewFacts
    changed: Sparkline | None


class ViewOrder(StrEnum):
    """The order of the table of views. The values are parts of addresses."""

    URGENCY = ""  # first the ones that are not ready or are stale
    NAME = "name"
    FRESHNESS = "freshness"  # this and the others: the largest first, unknown ones last
    ROWS = "rows"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class GraphRow:
    """One node in the list of a graph that is too large to draw."""

    node: GraphNode
    readers: int  # that read it directly
    bytes: int | None  # of its state; None for sinks and views that are being built


@dataclass(frozen=True, slots=True)
class PageHead:
    """The data of the head that all pages of a DAG share."""

    dag_id: str
    pipeline: Pipeline
    state: PipelineState
    rights: Rights
    looked: LookResult  # the status
    troubles: tuple[Trouble, ...] | None  # as on the overview; None while they are being determined
    seen: LookResult  # the version

    @property
    def looks(self) -> tuple[LookResult, ...]:
        """Their ages count for the page."""
        return (self.looked, self.seen)

    @property
    def status(self) -> Status | None:
        """None if it is still being determined."""
        value: Status | None = self.looked.value
        return value


def store_of(dag_id: str) -> SeenStore:
    """Return the store of the pipeline that a DAG belongs to, at its newest version.

    Raises: HTTPException 404 if the DAG does not belong to a pipeline; otherwise as `open_store`.
    """
    if (kind_and_name := name_in(dag_id)) is None:
        raise HTTPException(
            404,
            f"{dag_id} is not a Tussock DAG. Their names start with {', '.join(f'{kind}_' for kind in KINDS)}.",
        )
    return open_store(pipeline_of(kind_and_name[1]))


def head_of(store: SeenStore, dag_id: str, user: User, session: Session) -> PageHead:
    """The head of a DAG's page. Cost: three queries of Airflow's database, and the look at the status.

    A user who may read this DAG, but not the pipeline's epoch DAG, sees nothing of the runs of that DAG.
    """
    state = store.at_version("state", lambda _, version: pipeline_state(version))
    of, looked, epoch_dag = store.pipeline, look_at_status(store), f"epoch_{store.pipeline.name}"
    may_see_run = dag_id == epoch_dag or may_read(user, epoch_dag)
    run = last_runs(session, [epoch_dag]).get(epoch_dag) if may_see_run else None
    rights = rights_of(user, dag_id, of.pages.rows)
    troubles = shown_troubles(troubles_of(looked, store, run), may_see_rows=rights.may_see_rows)
    return PageHead(dag_id, of, state, rights, looked, troubles, store.looked)


@router.get("/dags/{dag_id}")
def views(
    request: Request,
    user: User,
    session: SessionDep,
    dag_id: str,
    page_number: Annotated[int, Query(alias="page", ge=1)] = 1,
    named: Annotated[str, Query(max_length=200)] = "",
    order: ViewOrder = ViewOrder.URGENCY,
) -> Response:
    """Show views and tables, RELATIONS_A_PAGE per page."""
    store = store_of(dag_id)
    head = head_of(store, dag_id, user, session)
    status, recent, past = head.status, _recent(store), _points(store)
    kept: tuple[ViewFacts, ...] = ()
    rows: tuple[ViewRow, ...] = ()
    if status is not None:
        kept = store.of_look(
            ("named", Same(status), named, order), lambda: _views_with_text(status.views, named, order)
        )
        first = (page_number - 1) * RELATIONS_A_PAGE
        shown = kept[first : first + RELATIONS_A_PAGE]
        rows = store.of_look(("rows", Same(kept), Same(past), first), lambda: _rows(shown, past))
    return page(
        request,
        "views.html",
        head=head,
        tab="views",
        rows=rows,
        total=len(kept),
        named=named,
        order=order,
        page_number=page_number,
        pages=max(1, -(-len(kept) // RELATIONS_A_PAGE)),
        pipeline_status=status,
        waiting=None if status is None else WaitingFiles.of(status.sources),
        unseen_s=None if status is None else oldest_unseen_s(status.views),
        epochs=len(recent),
        seconds=sparkline([None if e.seconds is None else e.seconds.run for e in reversed(recent)]),
    )


@router.get("/dags/{dag_id}/graph")
def graph_page(
    request: Request,
    user: User,
    session: SessionDep,
    dag_id: str,
    page_number: Annotated[int, Query(alias="page", ge=1)] = 1,
    focus: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Show the graph of sources, tables, views and sinks.

    Args:
        focus: the name of a node: show the part around it. Otherwise, a part of names: list these nodes, as all nodes
            of a graph with more than MOST_BOXES.
    """
    store = store_of(dag_id)
    publish = store.pipeline.publish
    nodes: Sequence[GraphNode] = _graph(store, publish)
    total = len(nodes)
    known = {node.name for node in nodes}
    head, sizes = head_of(store, dag_id, user, session), _states(store)
    if focus not in known and (focus or total > MOST_BOXES):
        listed = _list_nodes(nodes, sizes, focus)
        first = (page_number - 1) * NODES_A_PAGE
        return page(
            request,
            "graph_list.html",
            head=head,
            tab="graph",
            rows=listed[first : first + NODES_A_PAGE],
            node_count=len(listed),
            focus=focus,
            total=total,
            most=MOST_BOXES,
            page_number=page_number,
            pages=max(1, -(-len(listed) // NODES_A_PAGE)),
        )
    left_out = 0
    if focus:
        nodes = nodes_around(nodes, focus)
        left_out = max(0, len(nodes) - MOST_BOXES)
        nodes = nearest_nodes(nodes, focus, MOST_BOXES)
    reads = {node.name: node.reads for node in nodes}
    drawing: Drawing = store.remembered(("drawn", key_of(reads)), lambda: draw_graph(reads))
    return page(
        request,
        "graph.html",
        head=head,
        tab="graph",
        drawing=drawing,
        nodes={node.name: node for node in nodes},
        sizes=sizes,
        focus=focus,
        total=total,
        left_out=left_out,
        names=sorted(known),
    )


@router.get("/dags/{dag_id}/relations/{name}")
def relation_page(request: Request, user: User, session: SessionDep, dag_id: str, name: str) -> Response:
    """Show one relation: definition, recent epochs, state tables, fragments by level, EXPLAIN."""
    store = store_of(dag_id)
    shown = store.at_catalog(("relation", name), lambda catalog: _relation(catalog, name))
    if shown is None or (state := _states(store).get(name)) is None:
        raise HTTPException(404, f"The pipeline has no relation {name!r}.")
    past = _points(store)
    head = head_of(store, dag_id, user, session)
    nodes = {node.name: node for node in _graph(store, ())}
    mine = [t for t in head.troubles or () if name in t.views or t.about.partition(" ")[2] == name]
    return page(
        request,
        "relation.html",
        head=head,
        tab="",
        name=name,
        past=tuple(reversed(past.get(name, ()))),
        troubles=mine,
        may_see_rows=state.kind in WITH_ROWS and head.rights.may_see_rows,
        state=state,
        reads=nodes[name].reads,
        read_by=[node.name for node in nodes.values() if name in node.reads],
        copies=_copies(store, name),
        tables=[t for t in store.at_version("tables", lambda _, version: list_tables(version)) if t.relation == name],
        **shown,
    )


def _recent(store: SeenStore) -> tuple[EpochFacts, ...]:
    """The newest epochs, newest first."""
    epochs: tuple[EpochFacts, ...] = store.at_version(
        "recent", lambda meta, version: epoch_page(meta, None, EPOCHS_IN_SPARKLINES, version).epochs
    )
    return epochs


def _points(store: SeenStore) -> Mapping[str, tuple[ViewPoint, ...]]:
    """The effect of the newest epochs on each relation, oldest first."""
    return store.at_version("points", lambda *_: points_by_relation(_recent(store)))


def _copies(store: SeenStore, name: str) -> tuple[CopyOfView, ...]:
    """The copies of a relation in sinks; none while they are being determined."""
    sinks = store.pipeline.publish
    return store.look(f"copies of {name}", lambda meta: copies_of_view(meta, sinks, name)).value or () if sinks else ()


def _graph(store: SeenStore, publish: Sequence[PublishSettings]) -> tuple[GraphNode, ...]:
    key = tuple((sink.title, sink.relations) for sink in publish)
    return store.at_version(("graph", key), lambda _, version: build_graph(version, publish))


def _states(store: SeenStore) -> Mapping[str, RelationState]:
    return store.at_version("relations", lambda _, version: {s.name: s for s in relation_states(version)})


def _views_with_text(all_views: Sequence[ViewFacts], named: str, order: ViewOrder) -> tuple[ViewFacts, ...]:
    """The views and tables with a text in their names, in an order."""
    matching = [view for view in all_views if named.lower() in view.view]

    def largest(number: float | None) -> tuple[bool, float]:
        return number is None, -(number or 0)

    def key(view: ViewFacts) -> tuple[Any, ...]:
        match order:
            case ViewOrder.NAME:
                return (view.view,)
            case ViewOrder.FRESHNESS:
                return largest(view.freshness_s)
            case ViewOrder.ROWS:
                return largest(view.rows if view.published_epoch is None else view.published_rows)
            case ViewOrder.BYTES:
                return largest(view.state_bytes)
            case ViewOrder.URGENCY:
                return (view.state is ViewState.READY and not view.stale, view.kind != RelationKind.VIEW)

    return tuple(sorted(matching, key=key))


def _list_nodes(nodes: Sequence[GraphNode], sizes: Mapping[str, RelationState], named: str) -> tuple[GraphRow, ...]:
    """The nodes with a text in their names; nodes that do not follow their inputs come first."""
    readers = Counter(read for node in nodes for read in node.reads)
    matching = [node for node in nodes if named.lower() in node.name]
    return tuple(
        GraphRow(node, readers[node.name], sizes[node.name].state_bytes if node.name in sizes else None)
        for node in sorted(matching, key=lambda node: node.state == "runs")
    )


def _relation(catalog: Catalog, name: str) -> dict[str, Any] | None:
    relation = next(
        (r for r in catalog.live_relations() if r.name == name and r.kind is not RelationKind.FUNCTION), None
    )
    if relation is None:
        return None
    whole = make_schedule(catalog, relation.created)
    fragments: tuple[FragmentFacts, ...] = (
        () if relation.kind is RelationKind.PLAIN_VIEW else list_fragments(catalog, [relation], whole)
    )
    return {
        "columns": [f"{column.name} {column.type}" for column in relation.columns],
        "statement": answer_show(catalog, Show(Shown.CREATE, name))["statement"][0],
        "fragments": {str(f.id): f for f in fragments},
        "drawing": draw_graph({str(f.id): tuple(map(str, f.reads)) for f in fragments}),
        "explained": relation_text(catalog, relation, whole),
    }


def _rows(shown: Sequence[ViewFacts], past: Mapping[str, Sequence[ViewPoint]]) -> tuple[ViewRow, ...]:
    return tuple(ViewRow(v, sparkline([point.rows_out for point in past.get(v.view, ())])) for v in shown)
