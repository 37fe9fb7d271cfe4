"""The tasks of a deploy DAG: a pipeline's files brought into its store. Parsing this imports no Spark and reads nothing.

    plan >> [approve] >> apply

What is applied is what was planned, and approved where that is asked for: `apply` compares, and refuses another. SQL is bound by a local
Spark in the task itself; where nothing has changed, none is started, and the tasks behind `plan` are skipped.
"""

from typing import Any

import tussock_steps as steps
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param, task
from airflow.sdk.exceptions import AirflowSkipException
from tussock_operators import no_retry

from jobs.settings.pipeline import Pipeline

PARAMS = {
    "prune": Param(
        False,
        type="boolean",
        title="Prune",
        description="Drop the views that the files do not name. Tables and sources stay.",
    ),
    "resume": Param(
        [],
        type="array",
        items={"type": "string"},
        title="Resume views",
        description="Paused views that go on: each is built anew, beside the one that readers see.",
    ),
}
"""The fields of the trigger form."""


def plan(pipeline: Pipeline) -> Any:
    """Compare the files with the store, and say what is to be done; skipped where that is nothing."""

    @task(task_id="plan")
    def compare(name: str, params: dict[str, Any] | None = None) -> str:
        with no_retry():
            text = steps.plan(name, *_asked(params), print)
        if text is None:
            raise AirflowSkipException(f"the store of {name!r} is as its files say")
        return text

    return compare(pipeline.name)


def approve(pipeline: Pipeline) -> ApprovalOperator:
    """Wait for a person who has read the plan; without a yes nothing is applied."""
    return ApprovalOperator(
        task_id="approve",
        subject=f"Apply this to {pipeline.name}?",
        body="```\n{{ ti.xcom_pull(task_ids='plan') }}\n```",
    )


def apply(pipeline: Pipeline) -> Any:
    """Make the files hold in the store, all or nothing, as the plan says."""

    @task(task_id="apply")
    def bring(name: str, params: dict[str, Any] | None = None, ti: Any = None) -> None:
        with no_retry():
            steps.apply(name, *_asked(params), ti.xcom_pull(task_ids="plan"), print)

    return bring(pipeline.name)


def _asked(params: dict[str, Any] | None) -> tuple[bool, tuple[str, ...]]:
    """What the trigger form says: whether to prune, and which views to resume."""
    asked = params or {}
    return bool(asked.get("prune")), tuple(asked.get("resume") or ())
