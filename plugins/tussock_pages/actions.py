"""Actions of the pages: each starts a run of one of the pipeline's DAGs, with params, after a preview.

The API server itself changes nothing. So every action has a run, a log and retries, and Airflow's audit log names the
user. The page of an action belongs to the DAG that it triggers. It requires the rights to edit that DAG and to start
runs of it. `guard.py` describes how a POST is recognized as sent by these pages.
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
from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response
from tussock_links import run_address

from tussock.jobs.facts.barrier import open_barrier_facts
from tussock.jobs.facts.graph import readers_by_relation
from tussock.jobs.facts.upkeep import UpkeepFacts, find_due_work
from tussock.jobs.texts.rebalance import rebalance_text
from tussock.jobs.upkeep.rebalance import measure_loads, plan_rebalance
from tussock.statestore.meta.catalog import RelationKind
from tussock_pages.dag import head_of, store_of
from tussock_pages.dag_runs import paused_dags
from tussock_pages.guard import EDITS_DAG, READS_RUNS, User, from_here, may_edit
from tussock_pages.health import look_at_status
from tussock_pages.page import page
from tussock_pages.stores import SeenStore, name_in


async def _read_form(request: Request) -> FormData:
    return await request.form()


Form = Annotated[FormData, Depends(_read_form)]
STARTS_RUNS = Depends(requires_access_dag("POST", DagAccessEntity.RUN))
router = APIRouter(dependencies=[READS_RUNS])
_dag_bag = create_dag_bag()


@dataclass(frozen=True, slots=True)
class PageAction:
    """An action that a user can start.

    Args:
        kind: kind of the DAG that performs it (`epoch`, …).
        conf: converts the submitted form to the run's params. Raises HTTPException 422 for an invalid form.
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
        raise HTTPException(422, "Enter both ends of the interval, or neither.")
    return {"start": _moment(start), "end": _moment(end)} if start else {}


def _moment(text: str) -> str:
    """Parse the value of a `datetime-local` field. It has no zone; the form labels it as UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise HTTPException(422, f"{text!r} is not a date and time. Use the format 2026-01-31T12:00.") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def _text(form: Mapping[str, Any], name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


def _require_field(form: FormData, name: str) -> str:
    if not (value := _text(form, name)):
        raise HTTPException(422, f"Choose a {name}.")
    return value


ACTIONS = (
    PageAction("epoch", "epoch", "Run an epoch", "Process waiting input, check it, and publish the result.", _epoch),
    PageAction(
        "pause",
        "epoch",
        "Pause a view",
        "From the next epoch on, the view and the views that read it keep their rows unchanged.",
        lambda form: {"pause": [_require_field(form, "view")]} | _interval(form),
    ),
    PageAction(
        "restate",
        "epoch",
        "Restate a source",
        "Remove the rows that a source took earlier, and insert the current rows of its files.",
        lambda form: {"restate": _require_field(form, "source")} | _restated_input(form),
    ),
    PageAction(
        "deploy",
        "deploy",
        "Apply the SQL files",
        "Apply the pipeline's SQL files to its store.",
        lambda form: {name: _text(form, name) == "on" for name in ("prune", "zone_rules")},
    ),
    PageAction(
        "resume",
        "deploy",
        "Resume a view",
        "Rebuild a paused view. Readers see its old rows until the rebuild is complete.",
        lambda form: {"resume": [_require_field(form, "view")]},
    ),
    PageAction(
        "upkeep",
        "upkeep",
        "Compact and vacuum",
        "Expire old epochs, merge SSTs, and remove unreferenced objects.",
        lambda form: {"full": _text(form, "full") == "on"},
    ),
    PageAction(
        "rebalance",
        "rebalance",
        "Rebalance the units",
        "Move as few vnodes as possible between parallel units. "
        "Stored state is not rewritten; the next epoch uses the new mapping.",
        lambda form: _units(form) | _shown_moves(form),
    ),
)


def _shown_moves(form: FormData) -> dict[str, Any]:
    """The digest of the moves that the page showed. The run makes exactly these moves or fails."""
    digest = _text(form, "approved")
    return {"approved": digest} if digest else {}


def _units(form: Mapping[str, Any]) -> dict[str, Any]:
    if not (text := _text(form, "units")):
        return {}
    if not text.isdecimal() or int(text) < 1:
        raise HTTPException(
            422, f"{text!r} is not a number of units. Enter a whole number of at least 1, or leave the field empty."
        )
    return {"units": int(text)}


def _restated_input(form: FormData) -> dict[str, Any]:
    file, interval = _text(form, "file"), _interval(form)
    if bool(file) == bool(interval):
        raise HTTPException(422, "Enter either the path of a taken file or an interval.")
    return {"file": file} if file else interval


BY_NAME = {action.name: action for action in ACTIONS}


@dataclass(frozen=True, slots=True)
class Offer:
    """One line of the list of actions. `there`: Airflow has the action's DAG; `paused`: that DAG is paused."""

    action: PageAction
    dag_id: str
    there: bool
    paused: bool
    may: bool


@router.get("/dags/{dag_id}/actions")
def actions_page(request: Request, user: User, session: SessionDep, dag_id: str) -> Response:
    """List the actions, and whether the user may start each."""
    store = store_of(dag_id)
    dag_ids = {action.kind: f"{action.kind}_{store.pipeline.name}" for action in ACTIONS}
    paused = paused_dags(session, set(dag_ids.values()))
    may = {kind: may_edit(user, target) for kind, target in dag_ids.items()}
    offers = [
        Offer(a, dag_ids[a.kind], dag_ids[a.kind] in paused, paused.get(dag_ids[a.kind], False), may[a.kind])
        for a in ACTIONS
    ]
    return page(request, "actions.html", head=head_of(store, dag_id, user, session), tab="actions", offers=offers)


@router.get("/dags/{dag_id}/actions/{name}", dependencies=[EDITS_DAG, STARTS_RUNS])
def action_page(request: Request, user: User, session: SessionDep, dag_id: str, name: str) -> Response:
    """Show the preview of an action and its form."""
    store, action = store_of(dag_id), _action(dag_id, name)
    paused = paused_dags(session, [dag_id]).get(dag_id)
    head = head_of(store, dag_id, user, session)
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
def begun(request: Request, user: User, session: SessionDep, dag_id: str, name: str, run: str) -> Response:
    """Confirm that a run was started, with links to it."""
    return page(
        request,
        "begun.html",
        head=head_of(store_of(dag_id), dag_id, user, session),
        tab="actions",
        action=_action(dag_id, name),
        run=run,
        airflow_run=run_address(dag_id, run),
    )


def _action(dag_id: str, name: str) -> PageAction:
    kind = (name_in(dag_id) or ("", ""))[0]
    if (action := BY_NAME.get(name)) is None or action.kind != kind:
        raise HTTPException(404, f"DAG {dag_id} has no action {name!r}.")
    return action


def _will_do(store: SeenStore, action: PageAction, chosen: Mapping[str, str]) -> Mapping[str, Any]:
    """Collect the facts of an action's preview. `chosen`: query parameters of the page."""
    units = _units(chosen).get("units") if action.kind == "rebalance" else None
    live = store.version.catalog.live_relations()
    open_barrier = open_barrier_facts(store.meta) if action.kind == "epoch" else None
    waiting = store.meta.log_end() - store.version.log_end if action.kind in ("epoch", "deploy") else 0
    return {
        "sources": look_at_status(store) if action.kind == "epoch" else None,
        "barrier": open_barrier,
        "statements": waiting,
        "views": [
            r.name for r in live if r.kind is RelationKind.VIEW and (r.paused is not None) == (action.name == "resume")
        ],
        "source_names": [r.name for r in live if r.kind is RelationKind.SOURCE],
        "readers": store.at_catalog("readers", readers_by_relation),
        "approve": store.pipeline.deploy.approve,
        "upkeep": store.look("upkeep", _upkeep(store)) if action.kind == "upkeep" else None,
        "moves": store.look(f"moves to {units} units", _moves(store, units)) if action.kind == "rebalance" else None,
        "units": units,
        "rebalance": store.pipeline.rebalance,
    }


@dataclass(frozen=True, slots=True)
class _Moves:
    """A rebalance plan: its text, and the digest that identifies it to the run."""

    text: str
    digest: str


def _moves(store: SeenStore, units: int | None) -> Callable[[Any], _Moves]:
    target = store.pipeline.rebalance.target

    def look(meta: Any) -> _Moves:
        plan = plan_rebalance(measure_loads(meta), units, target)
        return _Moves(rebalance_text(plan, full=True), plan.digest)

    return look


def _upkeep(store: SeenStore) -> Callable[[Any], UpkeepFacts]:
    retention = store.pipeline.upkeep.retention
    return lambda meta: find_due_work(meta, retention)
