"""The tasks of an upkeep DAG. Parsing this imports no Spark and reads nothing; a task imports the engine when it runs.

    raise_floor >> compact >> vacuum        [tidy_tables]

None of them waits for a turn as epochs do: they run while epochs, readers, other compactors and each other's retries run. The version
log decides who merges what, vacuum removes what nobody can commit any more, and each task goes on where it was killed.
"""

from typing import Any

import tussock_metrics as metrics
import tussock_steps as steps
from airflow.sdk import Param, task
from tussock_operators import SubmitJob, no_retry, spark_writes_tables

from tussock.jobs.settings.pipeline import Pipeline

PARAMS = {
    "full": Param(
        False,
        type="boolean",
        title="Everything",
        description="Merge all SSTs into the last level, whatever is due. Reads and writes the whole store.",
    )
}
"""The field of the trigger form."""


def raise_floor(pipeline: Pipeline) -> Any:
    """Let go of the epochs that retention no longer keeps, so that the compaction after it drops their rows."""

    @task(task_id="raise_floor")
    def retain(name: str) -> dict[str, str]:
        with no_retry():
            return steps.retain(name)

    return retain(pipeline.name)


def compact(pipeline: Pipeline) -> "CompactStore":
    """Merge what is due, in rounds, the pieces of a round in parallel: one Spark application, or none where nothing is due."""
    return CompactStore(pipeline=pipeline, task_id="compact", application="compaction.py")


def vacuum(pipeline: Pipeline) -> Any:
    """Remove the objects that nobody can read or commit any more."""

    @task(task_id="vacuum")
    def remove(name: str) -> dict[str, str | int]:
        with no_retry():
            done = steps.vacuum(name)
        metrics.send_upkeep(name, (int(done["removed objects"]), int(done["removed bytes"])))
        return done

    return remove(pipeline.name)


def tidy_tables(pipeline: Pipeline) -> Any:
    """Merge the small files of the tables that the pipeline publishes to, and remove what is too old. Requires: it has `[publish]`."""
    if spark_writes_tables(pipeline):
        return TidyTables(pipeline=pipeline, task_id="tidy_tables", application="publish.py")

    @task(task_id="tidy_tables")
    def tidy(name: str) -> None:
        with no_retry():
            steps.tidy_tables(name)

    return tidy(pipeline.name)


class TidyTables(SubmitJob):
    """`jobs/submitted/publish.py --tidy`."""

    def execute(self, context: Any) -> None:
        self.submit(context, ["--tidy"])


class CompactStore(SubmitJob):
    """`jobs/submitted/compaction.py` until nothing is due."""

    def execute(self, context: Any) -> None:
        full = bool(context["params"]["full"])
        with no_retry():
            reasons = steps.compaction_due(self.pipeline_name)
        if not reasons and not full:
            self.log.info("nothing is due")
            return
        for reason in reasons:
            self.log.info("due: %s", reason)
        self.submit(context, ["--spark", *(["--full"] if full else [])])
        metrics.send_upkeep(self.pipeline_name)
