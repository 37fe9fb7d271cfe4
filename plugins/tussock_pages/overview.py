"""The overview of all pipelines: freshness, waiting input, and problems."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from tussock.jobs.facts.overview import PipelineState, oldest_unseen_s, pipeline_state
from tussock.jobs.facts.sources import SourceFacts
from tussock.jobs.facts.trouble import Trouble
from tussock.jobs.facts.unopened import trouble_of_unopened
from tussock.jobs.operations.folder import FolderEntry
from tussock.jobs.settings.row_values import without_values
from tussock.statestore.errors import TussockError
from tussock_pages.dag_runs import LAST_TASK, Run, failed_tasks, last_runs, paused_dags
from tussock_pages.guard import User, may_read, readable_dags, rights_of
from tussock_pages.health import look_at_status, shown_troubles, troubles_of, troubles_unopened
from tussock_pages.page import page
from tussock_pages.stores import LookResult, SeenStore, begin_opening, pipelines

PIPELINES_A_PAGE = 25
router = APIRouter()


@dataclass(frozen=True, slots=True)
class WaitingFiles:
    """Files that wait at a pipeline's sources, as far as the sources could be listed."""

    files: int
    bytes: int
    unknown: tuple[str, ...]  # errors of sources that could not be listed

    @classmethod
    def of(cls, sources: tuple[SourceFacts, ...]) -> "WaitingFiles":
        trouble = tuple(dict.fromkeys(s.trouble for s in sources if s.trouble))
        return cls(sum(s.waiting_files for s in sources), sum(s.waiting_bytes for s in sources), trouble)


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """One pipeline. If its definition or its store cannot be read, `state` is None."""

    name: str
    environment: str
    description: str
    dag_id: str
    state: PipelineState | None
    troubles: tuple[Trouble, ...] | None  # None: being determined
    waiting: WaitingFiles | None  # None if unknown
    unseen_s: float | None  # largest freshness of its views, in seconds
    run: Run | None
    paused: bool | None  # whether the DAG is paused; None if Airflow does not have it
    looked: LookResult | None = None
    seen: LookResult | None = None  # the version
    failed: tuple[str, ...] = ()  # tasks of its newest run

    @property
    def incomplete(self) -> bool:
        """Whether its newest run is red only because it left something undone."""
        return self.failed == (LAST_TASK,)

    @property
    def looks(self) -> tuple[LookResult, ...]:
        """Its answers with an age."""
        return tuple(look for look in (self.looked, self.seen) if look is not None)

    @property
    def looking(self) -> bool:
        """Whether its health is still being determined."""
        return self.looked is not None and self.looked.looking


@dataclass(frozen=True, slots=True)
class PipelineRows:
    """The rows of one page."""

    rows: tuple[PipelineRow, ...]

    @property
    def looks(self) -> tuple[LookResult, ...]:
        """Their ages count for the page."""
        return tuple(look for row in self.rows for look in row.looks)


@router.get("/pipelines")
def overview(
    request: Request, user: User, session: SessionDep, page_number: Annotated[int, Query(alias="page", ge=1)] = 1
) -> Response:
    """List the pipelines whose epoch DAG the user may read, PIPELINES_A_PAGE per page."""
    readable = readable_dags(user)
    mine = [
        one
        for one in pipelines()
        if (dag_id := f"epoch_{one.name}") in readable or (one.error is not None and may_read(user, dag_id))
    ]
    first = (page_number - 1) * PIPELINES_A_PAGE
    shown = mine[first : first + PIPELINES_A_PAGE]
    dag_ids = [f"epoch_{one.name}" for one in shown]
    runs, paused = last_runs(session, dag_ids), paused_dags(session, dag_ids)
    stores = [None if one.pipeline is None else begin_opening(one.pipeline) for one in shown]
    failed = {dag_id: tasks for (dag_id, _), tasks in failed_tasks(session, [*runs.values()]).items()}
    pipeline_rows = PipelineRows(
        tuple(
            _as_seen(
                replace(_pipeline_row(*each, runs, paused), failed=failed.get(f"epoch_{each[0].name}", ())),
                user,
                each[0],
            )
            for each in zip(shown, stores, strict=True)
        )
    )
    return page(
        request,
        "overview.html",
        looking=any(row.looking for row in pipeline_rows.rows),
        pipeline_rows=pipeline_rows,
        total=len(mine),
        page_number=page_number,
        pages=max(1, -(-len(mine) // PIPELINES_A_PAGE)),
    )


def _as_seen(row: PipelineRow, user: User, one: FolderEntry) -> PipelineRow:
    """The row as the user may see it. Cost: one query of Airflow's database."""
    if one.pipeline is None or rights_of(user, row.dag_id, one.pipeline.pages.rows).may_see_rows:
        return row
    waiting = row.waiting and replace(row.waiting, unknown=tuple(map(without_values, row.waiting.unknown)))
    return replace(row, troubles=shown_troubles(row.troubles, may_see_rows=False), waiting=waiting)


def _pipeline_row(
    one: FolderEntry, opened: Callable[[], SeenStore] | None, runs: Mapping[str, Run], paused: Mapping[str, bool]
) -> PipelineRow:
    dag_id = f"epoch_{one.name}"
    run, is_paused = runs.get(dag_id), paused.get(dag_id)
    if one.pipeline is None or opened is None:
        broken = () if one.error is None else (trouble_of_unopened(one.error, None),)
        return PipelineRow(one.name, "", "", dag_id, None, broken, None, None, run, is_paused)
    about = (one.name, one.pipeline.environment, one.pipeline.description, dag_id)
    try:
        store = opened()
        state = store.at_version("state", lambda _, version: pipeline_state(version))
    except TussockError as err:
        return PipelineRow(*about, None, troubles_unopened(err, one.pipeline, run), None, None, run, is_paused)
    looked = look_at_status(store)
    troubles, status = troubles_of(looked, store, run), looked.value
    waiting, unseen_s = (
        (None, None) if status is None else (WaitingFiles.of(status.sources), oldest_unseen_s(status.views))
    )
    return PipelineRow(*about, state, troubles, waiting, unseen_s, run, is_paused, looked, store.looked)
