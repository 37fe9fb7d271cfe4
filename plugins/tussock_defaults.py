"""The arguments that all DAGs and tasks of a pipeline share, and the fields of their trigger forms.

Parsing this reads nothing.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Param
from tussock_notify import on_failure

from tussock.jobs.settings.pipeline import Pipeline


def task_defaults(pipeline: Pipeline) -> dict[str, Any]:
    """The `default_args` of a pipeline's DAGs. Tasks that wait for a person override the timeout."""
    of = pipeline.airflow
    chosen = {"owner": of.owner, "pool": of.pool, "queue": of.queue, "priority_weight": of.priority}
    return {
        **of.default_args,
        **{name: value for name, value in chosen.items() if value is not None},
        "retries": of.retries,
        "retry_delay": timedelta(milliseconds=of.retry_delay),
        "execution_timeout": timedelta(
            milliseconds=pipeline.epoch.limit
        ),  # a task that hangs would block all later runs
        **on_failure(pipeline),
    }


def tags_of(pipeline: Pipeline) -> list[str]:
    """The tags of a pipeline's DAGs."""
    return ["tussock", *(pipeline.airflow.tags or ())]


def run_limit(pipeline: Pipeline) -> timedelta | None:
    """The `dagrun_timeout` of the epoch DAG: Airflow fails a run that takes longer."""
    limit = pipeline.airflow.run_limit
    return None if limit is None else timedelta(milliseconds=limit)


def store_note(pipeline: Pipeline) -> str:
    """The text of a DAG in Airflow about the pipeline's environment and store."""
    environment = f"Environment: `{pipeline.environment}`\n\n" if pipeline.environment else ""
    return f"{environment}Store: `{pipeline.store}`"


def text_field(title: str, description: str, **more: Any) -> Param:
    """A field for a text, empty by default. `more`: further properties of its JSON schema."""
    return Param(None, type=["null", "string"], title=title, description=description, **more)


def list_field(title: str, description: str) -> Param:
    """A field for texts, none by default."""
    return Param([], type="array", items={"type": "string"}, title=title, description=description)


def yes_field(title: str, description: str) -> Param:
    """A switch, off by default."""
    return Param(False, type="boolean", title=title, description=description)
