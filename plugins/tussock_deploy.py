"""The tasks of a deploy DAG, which applies a pipeline's files to its store.

Parsing this imports no Spark and reads nothing.

    plan >> [approve] >> apply

`plan` returns the text for a person, and the whole plan: every statement, function, suite and setting that decides the
result. `apply` plans again, rejects a different plan, and names the edits. A local Spark in the task binds the SQL. If
nothing has changed, no Spark is started and the tasks after `plan` are skipped.
"""

from typing import TYPE_CHECKING, Any

from airflow.sdk import task
from tussock_airflow import AirflowSkipException
from tussock_approval import Approve, approved_plan, handed_on
from tussock_connections import set_connection_of_sink, set_connections_of_files
from tussock_defaults import list_field, text_field, yes_field
from tussock_steps import open_parent_store, pipeline_of
from tussock_tasks import no_retry

from tussock.jobs.settings.pipeline import Pipeline

if TYPE_CHECKING:
    from tussock.jobs.statements.deployment import DeployOptions

APPROVED_LINES = 20  # of an INSERT on the page of the approval; the log of `plan` has all
PARAMS = {
    "prune": yes_field("Prune", "Drop views that are missing from the files. Tables and sources stay."),
    "resume": list_field(
        "Resume views",
        "Paused views to resume. Each is rebuilt; readers see its old rows until the rebuild is complete.",
    ),
    "zone_rules": yes_field(
        "Zone rules", "Move the store to this Java's rules of its time zones, and rebuild the views that need them."
    ),
    "merge": text_field(
        "Merge a branch",
        "Let the store adopt the views of this branch with their rows, instead of applying the files. The "
        "branch must have the deployed files.",
    ),
}
"""The fields of the trigger form."""


def plan(pipeline: Pipeline) -> Any:
    """Compare the files with the store and print the plan; skip the following tasks if nothing has changed."""

    @task(task_id="plan", multiple_outputs=True)
    def compare(name: str, params: dict[str, Any] | None = None) -> dict[str, str]:
        from tussock.jobs.operations import deploy
        from tussock.jobs.texts.bill import describe_bill
        from tussock.jobs.texts.deployment import deployment_text

        if branch := (params or {}).get("merge"):
            return _plan_merge(name, branch)
        with no_retry(name):
            pipeline = pipeline_of(name)
            set_connections_of_files(pipeline)
            deployment = deploy.plan(pipeline, _read_options(params), print)
            bill = describe_bill(pipeline, deployment)
        print(deployment_text(deployment, pipeline.argument, full=True, bill=bill))
        if not deployment.pending:
            raise AirflowSkipException(f"The store of {name!r} is up to date with the pipeline's files.")
        text = deployment_text(deployment, pipeline.argument, full=True, run_lines=APPROVED_LINES, bill=bill)
        return handed_on(text, deployment.approval.to_json(), deployment.digest)

    return compare(pipeline.name)


def approve(pipeline: Pipeline) -> Approve:
    """Wait for a person to approve the plan; without approval nothing is applied."""
    return Approve(plan="plan", subject=f"Apply this to {pipeline.title}?")


def apply(pipeline: Pipeline) -> Any:
    """Apply the plan to the store atomically."""

    @task(task_id="apply")
    def bring(name: str, params: dict[str, Any] | None = None, ti: Any = None) -> None:
        from tussock.jobs.operations import deploy
        from tussock.jobs.texts.deployment import deployment_text

        if branch := (params or {}).get("merge"):
            _merge_branch(name, branch, approved_plan(ti, "plan"))
            return
        with no_retry(name):
            pipeline = pipeline_of(name)
            set_connections_of_files(pipeline)
            deployment = deploy.apply(pipeline, _read_options(params), approved_plan(ti, "plan"), print)
        print(deployment_text(deployment, name))

    return bring(pipeline.name)


def _plan_merge(name: str, branch: str) -> dict[str, str]:
    """Bring a branch to the epoch of its parent, and return the merge with the rows that readers will see changed."""
    from tussock.jobs.catalog.store_zone import store_zone
    from tussock.jobs.operations import branches
    from tussock.jobs.operations.differences import compare_for_merge
    from tussock.jobs.texts.branches import merge_text
    from tussock.jobs.texts.comparison import comparison_text

    with no_retry(name):
        store = open_parent_store(name)
        branches.bring_to_parent(store, branch, print)
        merge = branches.plan_merge_of(store, branch)
        difference = compare_for_merge(store, branch, print)
    text = f"{comparison_text(difference, store_zone(store.meta))}\n{merge_text(merge)}"
    print(text)
    if not merge.changes_parent:
        raise AirflowSkipException(f"Branch {branch} has no changes.")
    return handed_on(text, merge.digest, merge.digest)


def _merge_branch(name: str, branch: str, approved: str) -> None:
    """Let the store adopt the views of a branch, as they were approved. Its next run emits the events."""
    from tussock.jobs.operations.branches import merge_into_parent
    from tussock.jobs.texts.branches import merge_text

    with no_retry(name):
        store = open_parent_store(name)
        for sink in store.pipeline.publish:
            set_connection_of_sink(sink)
        print(merge_text(merge_into_parent(store, branch, approved, print)))


def _read_options(params: dict[str, Any] | None) -> "DeployOptions":
    """The values of the trigger form."""
    from tussock.jobs.statements.deployment import DeployOptions

    asked = params or {}
    return DeployOptions(
        bool(asked.get("prune")), tuple(asked.get("resume") or ()), zone_rules=bool(asked.get("zone_rules"))
    )
