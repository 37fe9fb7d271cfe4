"""Actions: what a person may have done with a pipeline. Each is a run of one of its DAGs, with params; what that will do is shown first.

Nothing is done by the API server itself, so every action has its run, its log and its retries, and Airflow's audit log names who asked.
The page of an action is that of the DAG it triggers, whose rights so decide about it: to edit the DAG, and to start runs of it. `guard.py`
says how a POST is known to come from here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.dagbag import create_dag_bag
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.datamodels.dag_run import TriggerDAGRunPostBody
from airflow.api_fastapi.core_api.routes.public.dag_run import trigger_dag_run
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.api_fastapi.logging.decorators import action_logging
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse
from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from tussock.jobs.facts.barrier import barrier
from tussock.jobs.facts.graph import readers
from tussock.jobs.facts.upkeep import UpkeepFacts, upkeep
from tussock.jobs.texts.rebalance import rebalance_text
from tussock.jobs.upkeep.rebalance import measure, plan
from tussock.statestore.meta.catalog import RelationKind
from tussock_pages.dag import head_of, store_of
from tussock_pages.dag_runs import paused_dags
from tussock_pages.guard import EDITS_DAG, READS_RUNS, User, from_here, may_edit
from tussock_pages.overview import look_at_status
from tussock_pages.page import page
from tussock_pages.stores import Store, name_in


async def _sent(request: Request) -> FormData:
    return await request.form()


Form = Annotated[FormData, Depends(_sent)]
STARTS_RUNS = Depends(requires_access_dag("POST", DagAccessEntity.RUN))
router = APIRouter(dependencies=[READS_RUNS])
_dag_bag = create_dag_bag()


@dataclass(frozen=True, slots=True)
class PageAction:
    """One thing to have done.

    Args:
        kind: of the DAG that does it (`epoch`, …).
        conf: the run's params, from the form that was sent. Raises HTTPException 422 for a form that says nothing sensible.
    """

    name: str
    kind: str
    title: str
    text: str
    conf: Callable[[FormData], dict[str, Any]]


def _epoch(form: FormData) -> dict[str, Any]:
    return _interval(form)


def _interval(form: FormData) -> dict[str, Any]:
    start, end = (_text(form, name) for name in ("start", "end"))
    if bool(start) != bool(end):
        raise HTTPException(422, "give both ends of the interval, or neither")
    return {"start": _moment(start), "end": _moment(end)} if start else {}


def _moment(text: str) -> str:
    """What a field of the type datetime-local sends has no zone; the page says that it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise HTTPException(422, f"{text!r} is no moment; write e.g. 2026-01-31T12:00") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def _text(form: Mapping[str, Any], name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


def _required(form: FormData, name: str) -> str:
    if not (value := _text(form, name)):
        raise HTTPException(422, f"choose a {name}")
    return value


ACTIONS = (
    PageAction("epoch", "epoch", "Run an epoch", "Takes in what waits, audits it, and lets readers see it.", _epoch),
    PageAction(
        "pause",
        "epoch",
        "Pause a view",
        "It keeps the rows it has, with the views over it, from the next epoch on.",
        lambda form: {"pause": [_required(form, "view")]} | _interval(form),
    ),
    PageAction(
        "restate",
        "epoch",
        "Restate a source",
        "Rows that were taken go, and those that its files have now come.",
        lambda form: {"restate": _required(form, "source")} | _restated(form),
    ),
    PageAction(
        "deploy",
        "deploy",
        "Apply the SQL files",
        "Compares the files with the store, and makes them hold.",
        lambda form: {"prune": _text(form, "prune") == "on"},
    ),
    PageAction(
        "resume",
        "deploy",
        "Resume a view",
        "A paused view is built anew, beside the one that readers see.",
        lambda form: {"resume": [_required(form, "view")]},
    ),
    PageAction(
        "upkeep",
        "upkeep",
        "Compact and vacuum",
        "Lets go of old epochs, merges what epochs wrote, removes what is of no use.",
        lambda form: {"full": _text(form, "full") == "on"},
    ),
    PageAction(
        "rebalance",
        "rebalance",
        "Rebalance the units",
        "Moves vnodes between the parallel units, as few as can be. State stays where it is; the next epoch runs on it.",
        lambda form: _units(form) | _shown_moves(form),
    ),
)


def _shown_moves(form: FormData) -> dict[str, Any]:
    """The moves that the page has shown, by their digest: the run makes these or none."""
    digest = _text(form, "approved")
    return {"approved": digest} if digest else {}


def _units(form: Mapping[str, Any]) -> dict[str, Any]:
    if not (text := _text(form, "units")):
        return {}
    if not text.isdecimal() or int(text) < 1:
        raise HTTPException(422, f"{text!r} is no number of units; write a whole number from 1 on, or nothing")
    return {"units": int(text)}


def _restated(form: FormData) -> dict[str, Any]:
    file, interval = _text(form, "file"), _interval(form)
    if bool(file) == bool(interval):
        raise HTTPException(422, "name either a file that was taken, or an interval")
    return {"file": file} if file else interval


BY_NAME = {action.name: action for action in ACTIONS}


@dataclass(frozen=True, slots=True)
class Offer:
    """An action on the page of all of them. `there`: whether Airflow has its DAG; `paused`: whether that is paused."""

    action: PageAction
    dag_id: str
    there: bool
    paused: bool
    may: bool


@router.get("/dags/{dag_id}/actions")
def actions_page(request: Request, user: User, session: SessionDep, dag_id: str) -> HTMLResponse:
    """What there is to be done, and which of it the user may do."""
    store = store_of(dag_id)
    dag_ids = {action.kind: f"{action.kind}_{store.pipeline.name}" for action in ACTIONS}
    paused = paused_dags(session, set(dag_ids.values()))
    may = {kind: may_edit(user, target) for kind, target in dag_ids.items()}
    offers = [
        Offer(a, dag_ids[a.kind], dag_ids[a.kind] in paused, paused.get(dag_ids[a.kind], False), may[a.kind])
        for a in ACTIONS
    ]
    return page(request, "actions.html", head=head_of(store, dag_id, user), tab="actions", offers=offers)


@router.get("/dags/{dag_id}/actions/{name}", dependencies=[EDITS_DAG, STARTS_RUNS])
def action_page(request: Request, user: User, session: SessionDep, dag_id: str, name: str) -> HTMLResponse:
    """What an action will do, and the form that has it done."""
    store, action = store_of(dag_id), _action(dag_id, name)
    paused = paused_dags(session, [dag_id]).get(dag_id)
    head = head_of(store, dag_id, user)
    return page(
        request,
        "action.html",
        head=head,
        tab="actions",
        action=action,
        paused=paused,
        **_will_do(store, action, request.query_params),
    )


@router.post(
    "/dags/{dag_id}/actions/{name}",
    dependencies=[Depends(from_here), EDITS_DAG, STARTS_RUNS, Depends(action_logging("trigger_dag_run"))],
)
def act(request: Request, user: User, session: SessionDep, dag_id: str, name: str, form: Form) -> Response:
    """Trigger the run."""
    action = _action(dag_id, name)
    conf = action.conf(form)
    run: Any = trigger_dag_run(
        dag_id, TriggerDAGRunPostBody(conf=conf, logical_date=None), _dag_bag, user, session, request
    )
    session.commit()
    here = f"{request.scope.get('root_path', '')}/dags/{quote(dag_id, safe='')}/actions/{action.name}"
    return RedirectResponse(f"{here}/begun?{urlencode({'run': run.run_id})}", 303)


@router.get("/dags/{dag_id}/actions/{name}/begun")
def begun(request: Request, user: User, dag_id: str, name: str, run: str) -> HTMLResponse:
    """That a run was started, and where to see it."""
    return page(
        request,
        "begun.html",
        head=head_of(store_of(dag_id), dag_id, user),
        tab="actions",
        action=_action(dag_id, name),
        run=run,
    )


def _action(dag_id: str, name: str) -> PageAction:
    kind = (name_in(dag_id) or ("", ""))[0]
    if (action := BY_NAME.get(name)) is None or action.kind != kind:
        raise HTTPException(404, f"{dag_id} has no action {name!r}")
    return action


def _will_do(store: Store, action: PageAction, chosen: Mapping[str, str]) -> Mapping[str, Any]:
    """What the page of an action shows before it is done. `chosen`: the query of its address."""
    units = _units(chosen).get("units") if action.kind == "rebalance" else None
    catalog = store.at_version("catalog", lambda _, version: version.catalog)
    live = catalog.live()
    with store.lock:
        open_barrier = barrier(store.meta) if action.kind == "epoch" else None
        waiting = store.meta.log_end() - store.meta.latest().log_end if action.kind in ("epoch", "deploy") else 0
    return {
        "sources": look_at_status(store) if action.kind == "epoch" else None,
        "barrier": open_barrier,
        "statements": waiting,
        "views": [
            r.name for r in live if r.kind is RelationKind.VIEW and (r.paused is not None) == (action.name == "resume")
        ],
        "source_names": [r.name for r in live if r.kind is RelationKind.SOURCE],
        "readers": store.at_version("readers", lambda _, version: readers(version.catalog)),
        "approve": store.pipeline.deploy.approve,
        "upkeep": store.look("upkeep", _upkeep(store)) if action.kind == "upkeep" else None,
        "moves": store.look(f"moves to {units} units", _moves(store, units)) if action.kind == "rebalance" else None,
        "units": units,
        "rebalance": store.pipeline.rebalance,
    }


@dataclass(frozen=True, slots=True)
class _Moves:
    """A rebalancing: for a person, and the digest by which its run knows it."""

    text: str
    digest: str


def _moves(store: Store, units: int | None) -> Callable[[Any], _Moves]:
    target = store.pipeline.rebalance.target

    def look(meta: Any) -> _Moves:
        found = plan(measure(meta), units, target)
        return _Moves(rebalance_text(found, full=True), found.digest)

    return look


def _upkeep(store: Store) -> Callable[[Any], UpkeepFacts]:
    retention = store.pipeline.upkeep.retention
    return lambda meta: upkeep(meta, retention)
