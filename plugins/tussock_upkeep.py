"""The tasks of an upkeep DAG. Parsing this imports no Spark and reads nothing; a task imports the engine when it runs.

    raise_floor >> compact >> vacuum        [tidy_tables…]

Unlike epochs, these tasks wait for no turn. They run concurrently with epochs, readers, other compactors and their own
retries. The version log assigns merges, vacuum removes only objects that no writer can commit, and a killed task
resumes.
"""

import logging
from collections.abc import Sequence
from typing import Any

import tussock_metrics as metrics
from airflow.sdk import task
from tussock_connections import set_connection_of_sink
from tussock_defaults import yes_field
from tussock_publishing import for_each_sink
from tussock_steps import open_pipeline_store
from tussock_tasks import SubmitJob, no_retry

from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.publishing import PublishSettings, writes_with_spark

log = logging.getLogger(__name__)

PARAMS = {"full": yes_field("Everything", "Merge all SSTs into the last level. Reads and writes the whole store.")}
"""The field of the trigger form."""


def raise_floor(pipeline: Pipeline) -> Any:
    """Expire the epochs that retention no longer keeps, so that the following compaction drops their rows."""

    @task(task_id="raise_floor")
    def retain(name: str) -> dict[str, str]:
        from tussock.jobs.operations import upkeep

        with no_retry(name):
            version = upkeep.raise_floor(open_pipeline_store(name))
        return {"floor": str(version.min_readable_epoch), "version": str(version.id)}

    return retain(pipeline.name)


def compact(pipeline: Pipeline) -> "CompactStore":
    """Run the due compactions in rounds, the pieces of a round in parallel.

    Starts one Spark application, or none if nothing is due.
    """
    return CompactStore(pipeline=pipeline, task_id="compact", job="compact")


def vacuum(pipeline: Pipeline) -> Any:
    """Remove the objects that no reader needs and no writer can commit."""

    @task(task_id="vacuum")
    def remove(name: str) -> dict[str, str | int]:
        from tussock.jobs.operations import upkeep

        with no_retry(name):
            done = upkeep.vacuum_store(open_pipeline_store(name))
        removed = (*done.vacuumed.garbage, *done.copies)
        size = sum(removed_object.size for removed_object in removed)
        metrics.send_upkeep(name, (len(removed), size))
        return {"removed objects": len(removed), "removed bytes": size, "kept bytes": done.vacuumed.kept_bytes}

    return remove(pipeline.name)


def tidy_tables(pipeline: Pipeline, sinks: Sequence[PublishSettings]) -> Any:
    """Merge small files of the sinks' tables, and remove expired files; one task per sink. Requires: a sink."""
    return for_each_sink(sinks, "tidy_tables", lambda sink, task_id: _tidy_task(pipeline, sink, task_id))


def _tidy_task(pipeline: Pipeline, sink: PublishSettings, task_id: str) -> Any:
    if writes_with_spark(sink):
        return TidyTables(pipeline=pipeline, sink=sink, task_id=task_id, job="publish")

    @task(task_id=task_id)
    def tidy(name: str, sink_name: str) -> None:
        from tussock.jobs.operations import tables

        with no_retry(name):
            set_connection_of_sink(sink)
            tables.tidy_tables(open_pipeline_store(name), log.info, sink_name)

    return tidy(pipeline.name, sink.title)


class TidyTables(SubmitJob):
    """Runs the job `publish --tidy` for a sink."""

    def __init__(self, *, sink: PublishSettings, **more: Any) -> None:
        super().__init__(**more)
        self.sink = sink

    def execute(self, context: Any) -> None:
        self.submit(context, ["--tidy", "--sink", self.sink.title])


class CompactStore(SubmitJob):
    """Runs the job `compact` until nothing is due."""

    def execute(self, context: Any) -> None:
        from tussock.jobs.operations import compaction

        full = bool(context["params"]["full"])
        with no_retry(self.pipeline_name):
            picks = compaction.due_picks(open_pipeline_store(self.pipeline_name))
        if not picks and not full:
            self.log.info("No compaction is due.")
            return
        for pick in picks:
            self.log.info("due: %s", pick.reason)
        self.submit(context, ["--spark", *(["--full"] if full else [])])
        metrics.send_upkeep(self.pipeline_name)
