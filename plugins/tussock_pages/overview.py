"""The overview of all pipelines: freshness, waiting input, and problems."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from tussock.jobs.facts.overview import PipelineState, oldest_unseen_s, pipeline_state
from tussock.jobs.facts.sources import SourceFacts
from tussock.jobs.facts.status import Status, now_of, status
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.process import clock_ms
from tussock.statestore.errors import TussockError
from tussock.statestore.meta.store import MetaStore
from tussock_pages.dag_runs import Run, last_runs, paused_dags
from tussock_pages.guard import User, readable_dags
from tussock_pages.page import page
from tussock_pages.stores import Looked, Store, open_store, pipelines

PIPELINES_A_PAGE = 25
EPOCHS_LOOKED_AT = 5
router = APIRouter()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Files that wait at a pipeline's sources, as far as the sources could be listed."""

    files: int
    bytes: int
    unknown: tuple[str, ...]  # errors of sources that could not be listed

    @classmethod
    def of(cls, found: tuple[SourceFacts, ...]) -> "Waiting":
        trouble = tuple(dict.fromkeys(s.trouble for s in found if s.trouble))
        return cls(sum(s.waiting_files for s in found), sum(s.waiting_bytes for s in found), trouble)


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """One pipeline. If its store cannot be read, `state` is None and `error` contains the reason."""

    pipeline: Pipeline
    dag_id: str
    state: PipelineState | None
    error: TussockError | None
    waiting: Waiting | None  # None if unknown
    unseen_s: float | None  # largest freshness of its views, in seconds
    wrong: int  # number of problems that need a person
    run: Run | None
    paused: bool | None  # whether the DAG is paused; None if Airflow does not have it
    looking: bool = False  # `waiting` is still being determined


def look_at_status(store: Store) -> Looked:
    """The facts of `tussock status`. Cost: one listing per source."""
    of = store.pipeline

    def look(meta: MetaStore) -> Status:
        return status(
            meta,
            now_of(clock_ms()),
            pipeline=of.name,
            environment=of.environment,
            last=EPOCHS_LOOKED_AT,
            freshness=of.freshness,
            publish=of.publish,
        )

    return store.look("status", look)


@router.get("/pipelines")
def overview(
    request: Request, user: User, session: SessionDep, page_number: Annotated[int, Query(alias="page", ge=1)] = 1
) -> HTMLResponse:
    """List the pipelines whose epoch DAG the user may read, PIPELINES_A_PAGE per page."""
    readable = readable_dags(user)
    mine = [p for p in pipelines() if f"epoch_{p.name}" in readable]
    first = (page_number - 1) * PIPELINES_A_PAGE
    shown = mine[first : first + PIPELINES_A_PAGE]
    dag_ids = [f"epoch_{p.name}" for p in shown]
    runs, paused = last_runs(session, dag_ids), paused_dags(session, dag_ids)
    rows = [_row(p, runs, paused) for p in shown]
    pages = max(1, -(-len(mine) // PIPELINES_A_PAGE))
    looking = any(row.looking for row in rows)
    return page(
        request, "overview.html", looking=looking, rows=rows, total=len(mine), page_number=page_number, pages=pages
    )


def _row(pipeline: Pipeline, runs: Mapping[str, Run], paused: Mapping[str, bool]) -> PipelineRow:
    dag_id = f"epoch_{pipeline.name}"
    run, is_paused = runs.get(dag_id), paused.get(dag_id)
    try:
        store = open_store(pipeline)
        state = store.at_version("state", lambda _, version: pipeline_state(version))
        looked = look_at_status(store)
        found: Status | None = looked.value
    except TussockError as err:
        return PipelineRow(pipeline, dag_id, None, err, None, None, 0, run, is_paused)
    if found is None:
        return PipelineRow(pipeline, dag_id, state, None, None, None, 0, run, is_paused, looked.looking)
    wrong = sum(trouble.wrong for trouble in found.troubles)
    return PipelineRow(
        pipeline, dag_id, state, None, Waiting.of(found.sources), oldest_unseen_s(found.views), wrong, run, is_paused
    )
