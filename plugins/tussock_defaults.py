"""The arguments that all DAGs and tasks of a pipeline share. Parsing this reads nothing."""

from datetime import timedelta
from typing import Any

from tussock.jobs.settings.pipeline import Pipeline


def task_defaults(pipeline: Pipeline) -> dict[str, Any]:
    """The `default_args` of a pipeline's DAGs. Tasks that wait for a person override the timeout."""
    return {
        "retries": 2,
        "retry_delay": timedelta(seconds=15),
        "execution_timeout": timedelta(
            milliseconds=pipeline.epoch.limit
        ),  # a task that hangs would block all later runs
    }


def store_note(pipeline: Pipeline) -> str:
    """The text of a DAG in Airflow about the pipeline's environment and store."""
    environment = f"Environment: `{pipeline.environment}`\n\n" if pipeline.environment else ""
    return f"{environment}Store: `{pipeline.store}`"
