"""The tasks of a preview DAG: changed files of a pipeline, tried on a branch of its store.

    branch >> apply >> follow >> check >> diff >> report >> end

Each task opens the changed files anew, by the commit or the folder that `branch` returned, since tasks may run on
different hosts. In an environment that is a branch, the run works on the store of its parent. Parsing this imports no
Spark and reads nothing.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import Param, task
from tussock_airflow import AirflowFailException
from tussock_defaults import text_field, yes_field
from tussock_operators import RunActors
from tussock_steps import open_parent_store, parent_pipeline_of
from tussock_tasks import no_retry
from tussock_turn import run_of

from tussock.jobs.settings.pipeline import Pipeline

if TYPE_CHECKING:
    from tussock.jobs.operations.change_preview import ChangedFiles

LOOK_AGAIN = timedelta(seconds=30)  # for the next epoch of the parent
HOUR_MS = 3_600_000

PARAMS: Mapping[str, Param] = {
    "revision": text_field(
        "Git revision", "Try the files of this branch, tag or commit, in the repository that contains the pipelines."
    ),
    "folder": text_field(
        "Folder",
        "Without a revision: try the files of this folder of pipelines, below TUSSOCK_PREVIEWS. Without "
        "both, the run tries the deployed files.",
    ),
    "epochs": Param(
        0,
        type="integer",
        minimum=0,
        title="Epochs to follow",
        description="Wait for this many further epochs of the pipeline, and take them on the branch too.",
    ),
    "hours": Param(
        24,
        type="integer",
        minimum=1,
        title="Hours",
        description="The age at which the branch ends, even if the run has not ended it.",
    ),
    "name": text_field("Name of the branch", "If empty, the run makes one up."),
    "keep": yes_field("Keep the branch", "Leave the branch open, to look at its rows or to merge it."),
}
"""The fields of the trigger form."""


def begin_branch(pipeline: Pipeline) -> Any:
    """Find the changed files, and begin the branch."""

    @task(task_id="branch")
    def begin(name: str, params: dict[str, Any] | None = None, dag_run: Any = None) -> dict[str, str]:
        from tussock.jobs.operations import change_preview

        asked = params or {}
        with no_retry(name):
            found = change_preview.find_files(
                parent_pipeline_of(name), asked.get("revision") or "", asked.get("folder") or ""
            )
            run = f"{dag_run.dag_id}/{dag_run.run_id}"
            branch = asked.get("name") or f"preview-{sha256(run.encode()).hexdigest()[:8]}"
            keep_ms = int(asked.get("hours") or 24) * HOUR_MS
            change_preview.begin_branch(open_parent_store(name), branch, run, keep_ms)
        print(f"branch {branch} tries {found.title or 'the deployed files'}")
        return {"branch": branch, **found._asdict()}

    return begin(pipeline.name)


def apply_files(pipeline: Pipeline) -> Any:
    """Apply the changed files to the branch."""

    @task(task_id="apply")
    def bring(name: str, ti: Any = None) -> None:
        from tussock.jobs.operations import change_preview
        from tussock.jobs.texts.deployment import deployment_text

        branch, files = _branch_of_run(ti)
        with no_retry(name), change_preview.open_files(parent_pipeline_of(name), files) as changed:
            deployment = change_preview.apply_files(changed, branch, print)
        print(deployment_text(deployment, name, full=True))

    return bring(pipeline.name)


def follow_epochs(pipeline: Pipeline) -> "FollowEpochs":
    """Build the changed views, and take the epochs of the parent."""
    return FollowEpochs(pipeline=pipeline, task_id="follow", job="epoch")


class FollowEpochs(RunActors):
    """Runs epochs on the branch until it has taken as many epochs of the parent as the run requests."""

    opens = staticmethod(open_parent_store)

    def execute(self, context: Any) -> None:
        params = context["params"]
        name = _branch_of_run(context["ti"])[0]
        self.pipeline = parent_pipeline_of(self.pipeline_name)  # its environment is that of the submitted job
        of_branch = {**context, "params": {**params, "branch": name}}
        super().execute(of_branch)
        from tussock.jobs.operations.change_preview import count_followed

        with no_retry(self.pipeline_name, of_branch):
            followed = count_followed(open_parent_store(self.pipeline_name, name))
        if followed >= params["epochs"]:
            self.log.info("The branch has taken %d epochs of its parent.", followed)
            return
        if datetime.now(UTC) > context["dag_run"].start_date + timedelta(hours=params["hours"]):
            raise AirflowFailException(
                f"The branch has taken {followed} of {params['epochs']} epochs, because its parent has not had more. "
                "Trigger the DAG again with fewer epochs to follow, or with more hours."
            )
        self.log.info("The branch has taken %d of %d epochs of its parent.", followed, params["epochs"])
        self.defer(trigger=TimeDeltaTrigger(LOOK_AGAIN), method_name="resume")

    def resume(self, context: Any, event: object = None) -> None:
        """Continue after the deferral."""
        self.execute(context)


def check_branch(pipeline: Pipeline) -> Any:
    """Run the suites, the assertions and the tests of views of the changed files. `report` fails if one fails."""

    @task(task_id="check")
    def judge(name: str, ti: Any = None) -> list[dict[str, Any]]:
        from tussock.jobs.operations import change_preview

        branch, files = _branch_of_run(ti)
        with no_retry(name):
            open_parent_store(name)  # decides whether values of rows may be printed
            with change_preview.open_files(parent_pipeline_of(name), files) as changed:
                judged = change_preview.judge_branch(changed, branch, print)
                checks = [one for one in (judged, _test_views(changed)) if one is not None]
        for check in checks:
            print(f"{check.name}: {'passed' if check.passed else 'failed'}", *check.lines, sep="\n  ")
        return [msgspec.to_builtins(check) for check in checks]

    return judge(pipeline.name)


def _test_views(changed: Pipeline) -> Any:
    """Run the tests of views of the changed files; None if there are none."""
    from tussock.jobs.compare.preview_record import PreviewCheck
    from tussock.jobs.texts.view_tests import trials_text
    from tussock.jobs.viewtests.pipeline_tests import pipeline_tests, run_tests
    from tussock.jobs.viewtests.trial import TrialVerdict

    if not pipeline_tests(changed):
        return None
    trials = run_tests(changed, progress=print)
    passed = all(trial.verdict is TrialVerdict.PASSED for trial in trials.trials)
    return PreviewCheck("tests of views", passed, tuple(trials_text(trials).split("\n")))


def compare_branch(pipeline: Pipeline) -> Any:
    """Compare the branch with its parent at equal input, and record the preview for the pages."""

    @task(task_id="diff")
    def compare(name: str, ti: Any = None, dag_run: Any = None) -> str:
        from tussock.jobs.catalog.store_zone import store_zone
        from tussock.jobs.compare.preview_record import Preview, PreviewCheck
        from tussock.jobs.operations import change_preview
        from tussock.jobs.operations.differences import compare_for_merge
        from tussock.jobs.settings.process import clock_ms
        from tussock.jobs.texts.comparison import comparison_text, with_text_samples
        from tussock.jobs.texts.preview_report import preview_markdown
        from tussock.statestore.decoding import convert_value

        branch, files = _branch_of_run(ti)
        with no_retry(name):
            store, on_branch = open_parent_store(name), open_parent_store(name, branch)
            zone = store_zone(store.meta)
            difference = with_text_samples(compare_for_merge(store, branch, print), zone)
            checks = tuple(convert_value(check, PreviewCheck) for check in ti.xcom_pull(task_ids="check"))
            followed, ended = change_preview.count_followed(on_branch), clock_ms()
            preview = Preview(
                branch, files.title, run_of({"dag_run": dag_run})["run"], ended, followed, difference, checks
            )
            change_preview.record_preview(store, preview)
        print(comparison_text(difference, zone))
        return preview_markdown(preview, zone)

    return compare(pipeline.name)


def report_preview() -> Any:
    """Print the Markdown for a pull request, and fail if a check failed."""

    @task(task_id="report")
    def show(ti: Any = None) -> None:
        text = ti.xcom_pull(task_ids="diff")
        print(text)
        if failed := [check["name"] for check in ti.xcom_pull(task_ids="check") if not check["passed"]]:
            raise AirflowFailException(f"These checks of the changed files failed: {', '.join(failed)}.")

    return show()


def end_branch(pipeline: Pipeline) -> Any:
    """End the branch, in any state of the earlier tasks, unless the run keeps it."""

    @task(task_id="end")
    def end(name: str, params: dict[str, Any] | None = None, ti: Any = None) -> None:
        from tussock.jobs.operations import change_preview

        begun = ti.xcom_pull(task_ids="branch")
        if begun is None:
            print("No branch was begun.")
        elif (params or {}).get("keep"):
            print(f"branch {begun['branch']} stays open")
        else:
            with no_retry(name):
                was_open = change_preview.end_if_open(open_parent_store(name), begun["branch"])
            print(f"branch {begun['branch']} {'has ended' if was_open else 'had ended'}")

    return end(pipeline.name).as_teardown()


def _branch_of_run(ti: Any) -> "tuple[str, ChangedFiles]":
    """The branch of the run, and the place of its files."""
    from tussock.jobs.operations.change_preview import ChangedFiles

    begun = ti.xcom_pull(task_ids="branch")
    return str(begun["branch"]), ChangedFiles(begun["commit"], begun["folder"])
