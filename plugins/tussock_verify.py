"""The task of a verify DAG. Parsing this imports no Spark and reads nothing; the task imports the engine when it runs."""

from typing import Any

from airflow.sdk import Param
from tussock_operators import SubmitJob

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
            description="Compare only the rows of these keys. Each epoch has other keys in its share.",
        ),
        "repair": Param(
            False,
            type="boolean",
            title="Repair",
            description="Build the views that differ anew with the next epoch, and the views over them.",
        ),
    }


def verify_views(pipeline: Pipeline) -> "VerifyViews":
    """Compare all views with Spark's answers, and fail if one differs. The next attempt would find the same, so there is none."""
    return VerifyViews(pipeline=pipeline, task_id="verify_views", application="verification.py", retries=0)


class VerifyViews(SubmitJob):
    """`jobs/submitted/verification.py`."""

    def execute(self, context: Any) -> None:
        given = context["params"]
        self.submit(context, ["--percent", str(given["percent"]), *(["--repair"] if given["repair"] else [])])
