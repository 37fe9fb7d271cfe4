"""Whose turn it is: runs of a pipeline go through their tasks one after the other, so that each publishes before the next one begins.

A pool of one slot would not do. It has to be made before the DAG is scheduled, or its tasks wait for ever; and whenever a task ends, the
slot goes to whichever run's task the scheduler sees first. `max_active_runs=1` does it for all runs but backfills, which bring a limit of
their own. So the first task of a run looks who is ahead of it, and is deferred until that run has published or ended.

What is safe does not depend on any of this: whichever order tasks of two runs come in, the store takes in each file once.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

FIRST, LAST = "inject_barrier", "publish_views"
IN_ORDER = ("scheduled", "backfill")
"""Kinds of runs that begin in the order of their intervals; one by hand begins when nobody is in the middle."""

FINISHED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
POLL_S = 3.0
LOOK_AGAIN_S = 60.0
"""Who is ahead may change while a run waits (runs are cleared, deleted, marked by hand), so the task itself looks again after so long."""


def run_ahead(context: Mapping[str, Any], holder: str | None) -> str | None:
    """The run of this DAG that goes before the one of `context`; None: it is this one's turn.

    Args:
        holder: the run whose epoch is open, or committed and not published; None: there is none, or it is nobody's.

    Cost: two requests to the API server.
    """
    run = context["dag_run"]
    if run.run_type in IN_ORDER:
        earlier = context["ti"].get_previous_dagrun(state="running")
        if earlier is not None and earlier.run_type in IN_ORDER:
            return str(earlier.run_id)
    if holder is not None and holder != run.run_id:
        states = _states(run.dag_id, holder)
        if states.get(FIRST) == "success" and states.get(LAST) not in FINISHED:
            return holder
    return None


def run_of(context: Mapping[str, Any]) -> dict[str, str]:
    """What barriers keep of the run that injects them; tussock.jobs.operations.epochs.holder reads it."""
    return {"dag": context["dag_run"].dag_id, "run": context["dag_run"].run_id}


class RunPublished(BaseTrigger):
    """Fires when a run has published or ended, or after LOOK_AGAIN_S."""

    def __init__(self, dag_id: str, run_id: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dag_id, self.run_id = dag_id, run_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.RunPublished", {"dag_id": self.dag_id, "run_id": self.run_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        for _ in range(int(LOOK_AGAIN_S / POLL_S)):
            states = await sync_to_async(_states)(self.dag_id, self.run_id)
            if not states or states.get(LAST) in FINISHED:
                break
            await asyncio.sleep(POLL_S)
        yield TriggerEvent(None)  # type: ignore[no-untyped-call]


def _states(dag_id: str, run_id: str) -> Mapping[str, str | None]:
    """State by task of a run; empty where the run is gone."""
    states: Mapping[str, dict[str, str | None]] = RuntimeTaskInstance.get_task_states(
        dag_id, task_ids=[FIRST, LAST], run_ids=[run_id]
    )
    return states.get(run_id, {})
