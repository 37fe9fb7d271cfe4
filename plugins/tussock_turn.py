"""Turns: runs of a pipeline execute one after the other, so that each publishes before the next one starts.

A pool of one slot would not work. It must exist before the DAG is scheduled, or its tasks wait forever. And when a task
ends, the scheduler gives the slot to a task of any run. `max_active_runs=1` works for all runs except backfills, which
have their own limit. So the first task of a run checks which run is ahead of it, and is deferred until that run has
published or ended.

Safety does not depend on turns: the store takes each file once, for any order of the tasks of two runs.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from typing import Any

from airflow.sdk.execution_time.comms import GetPreviousDagRun
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

FIRST, LAST = "inject_barrier", "publish_views"
IN_ORDER = ("scheduled", "backfill")
"""Types of runs that start in the order of their intervals. A manual run starts when no other run is in progress."""

FINISHED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
POLL_S = 3.0
LOOK_AGAIN_S = 60.0
"""The run ahead may change during the wait (runs are cleared, deleted, marked manually), so the task checks again."""


def run_ahead(context: Mapping[str, Any], holder: str | None) -> str | None:
    """Return the run of this DAG that goes before the run of `context`; None: it is this run's turn.

    Args:
        holder: the run whose epoch is open, or committed but not published; None: no run has such an epoch.

    Cost: two requests to the API server, and one per manual run between.
    """
    run = context["dag_run"]
    if run.run_type in IN_ORDER and run.logical_date is not None:
        for earlier in runs_before(run.dag_id, run.logical_date, "running"):
            if earlier.run_type in IN_ORDER:
                return str(earlier.run_id)
    if holder is not None and holder != run.run_id:
        states = _run_states(run.dag_id, holder)
        if states.get(FIRST) == "success" and states.get(LAST) not in FINISHED:
            return holder
    return None


def runs_before(dag_id: str, moment: datetime, state: str) -> Iterator[Any]:
    """The runs of a DAG in this state whose logical dates are before a moment, newest first. Cost: a request each."""
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    while True:
        answer: Any = SUPERVISOR_COMMS.send(GetPreviousDagRun(dag_id=dag_id, logical_date=moment, state=state))
        if (run := answer.dag_run) is None:
            return
        yield run
        moment = run.logical_date


def run_of(context: Mapping[str, Any]) -> dict[str, str]:
    """The origin that barriers record: DAG and run. tussock.jobs.operations.epochs.holding_run reads it."""
    return {"dag": context["dag_run"].dag_id, "run": context["dag_run"].run_id}


def branch_in(context: Mapping[str, Any]) -> str:
    """The branch of the store that a run works on; empty: the store itself."""
    return str((context.get("params") or {}).get("branch") or "")


class RunPublished(BaseTrigger):
    """Fires when a run has published or ended, or after LOOK_AGAIN_S."""

    def __init__(self, dag_id: str, run_id: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dag_id, self.run_id = dag_id, run_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.RunPublished", {"dag_id": self.dag_id, "run_id": self.run_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        for _ in range(int(LOOK_AGAIN_S / POLL_S)):
            states = await sync_to_async(_run_states)(self.dag_id, self.run_id)
            if not states or states.get(LAST) in FINISHED:
                break
            await asyncio.sleep(POLL_S)
        yield TriggerEvent(None)  # type: ignore[no-untyped-call]


def _run_states(dag_id: str, run_id: str) -> Mapping[str, str | None]:
    """States of the first and last task of a run; empty if the run no longer exists."""
    states: Mapping[str, dict[str, str | None]] = RuntimeTaskInstance.get_task_states(
        dag_id, task_ids=[FIRST, LAST], run_ids=[run_id]
    )
    return states.get(run_id, {})
