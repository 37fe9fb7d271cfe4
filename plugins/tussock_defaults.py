"""The arguments that the tasks of all DAGs of a pipeline share. Parsing this reads nothing."""

from datetime import timedelta
from typing import Any

from tussock.jobs.settings.pipeline import Pipeline


def task_defaults(pipeline: Pipeline) -> dict[str, Any]:
    """The `default_args` of a pipeline's DAGs. A task that waits for a person sets no limit."""
    return {
        "retries": 2,
        "retry_delay": timedelta(seconds=15),
        "execution_timeout": timedelta(
            milliseconds=pipeline.epoch.limit
        ),  # a task that hangs would hold up all later runs
    }
