"""The task of a verify DAG.

Parsing this imports no Spark and reads nothing; the task imports the engine when it runs.
"""

from typing import Any

from airflow.sdk import Param
from tussock_defaults import yes_field
from tussock_tasks import SubmitJob

from tussock.jobs.settings.pipeline import Pipeline


def params(pipeline: Pipeline) -> dict[str, Param]:
    """The fields of the trigger form."""
    return {
        "percent": Param(
            pipeline.verify.percent,
            type="integer",
            minimum=1,
            maximum=100,
            title="Share of the keys, in percent",
            description="Compare only the rows of these keys. The sample differs from epoch to epoch.",
        ),
        "repair": yes_field(
            "Repair", "With the next epoch, rebuild the views that differ and the views that read them."
        ),
    }


def verify_views(pipeline: Pipeline) -> "VerifyViews":
    """Compare all views with Spark's answers, and fail if one differs. No retries, since they would find the same."""
    return VerifyViews(pipeline=pipeline, task_id="verify_views", job="verify", retries=0)


class VerifyViews(SubmitJob):
    """Runs the job `verify`."""

    def execute(self, context: Any) -> None:
        parameters = context["params"]
        self.submit(context, ["--percent", str(parameters["percent"]), *(["--repair"] if parameters["repair"] else [])])
