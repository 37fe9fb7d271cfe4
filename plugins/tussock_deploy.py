"""The tasks of a deploy DAG: a pipeline's files brought into its store. Parsing this imports no Spark and reads nothing.

    plan >> [approve] >> apply

`plan` hands its whole plan on: the text that a person reads, and every statement, function, suite and setting that decides what is applied.
`apply` compares, and refuses another plan, naming what has been edited. SQL is bound by a local Spark in the task itself; where nothing has
changed, none is started, and the tasks behind `plan` are skipped.
"""

from typing import Any

from airflow.sdk import Param, task
from tussock_airflow import AirflowSkipException
from tussock_approval import Approve, handed_on, planned
from tussock_operators import no_retry
from tussock_steps import pipeline_of

from tussock.jobs.settings.pipeline import Pipeline

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

    @task(task_id="plan", multiple_outputs=True)
    def compare(name: str, params: dict[str, Any] | None = None) -> dict[str, str]:
        from tussock.jobs.operations import deploy
        from tussock.jobs.texts.deployment import deployment_text

        with no_retry():
            deployment = deploy.plan(pipeline_of(name), *_asked(params), progress=print)
        text = deployment_text(deployment, name, full=True)
        print(text)
        if not deployment.pending:
            raise AirflowSkipException(f"the store of {name!r} is as its files say")
        return handed_on(text, deployment.approval.json(), deployment.digest)

    return compare(pipeline.name)


def approve(pipeline: Pipeline) -> Approve:
    """Wait for a person who has read the plan; without a yes nothing is applied."""
    return Approve(plan="plan", subject=f"Apply this to {pipeline.name}?")


def apply(pipeline: Pipeline) -> Any:
    """Make the files hold in the store, all or nothing, as the plan says."""

    @task(task_id="apply")
    def bring(name: str, params: dict[str, Any] | None = None, ti: Any = None) -> None:
        from tussock.jobs.operations import deploy
        from tussock.jobs.texts.deployment import deployment_text

        with no_retry():
            deployment = deploy.apply(pipeline_of(name), *_asked(params), planned(ti, "plan"), progress=print)
        print(deployment_text(deployment, name))

    return bring(pipeline.name)


def _asked(params: dict[str, Any] | None) -> tuple[bool, tuple[str, ...]]:
    """What the trigger form says: whether to prune, and which views to resume."""
    asked = params or {}
    return bool(asked.get("prune")), tuple(asked.get("resume") or ())
