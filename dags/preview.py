"""One manually triggered DAG per pipeline: try changed SQL files on a branch of its store, and report the difference.

Readers of the store, its tables and its events see nothing of it. Parsing reads only the small
pipelines/*/pipeline.toml.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG
from tussock_defaults import store_note, tags_of, task_defaults
from tussock_preview import (
    PARAMS,
    apply_files,
    begin_branch,
    check_branch,
    compare_branch,
    end_branch,
    follow_epochs,
    report_preview,
)
from tussock_steps import pipelines_of

from tussock.jobs.settings.pipeline import Pipeline


def preview_dag(pipeline: Pipeline) -> DAG:
    """The preview DAG of a pipeline."""
    with DAG(
        dag_id=f"preview_{pipeline.name}",
        description=f"Try changed SQL files of {pipeline.name} on a branch of its store",
        schedule=None,
        start_date=datetime(2000, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,  # the record of previews is one object
        params=dict(PARAMS),
        default_args=task_defaults(pipeline),
        tags=tags_of(pipeline),
        doc_md=store_note(pipeline),
    ) as dag:
        (
            begin_branch(pipeline)
            >> apply_files(pipeline)
            >> follow_epochs(pipeline)
            >> check_branch(pipeline)
            >> compare_branch(pipeline)
            >> report_preview()
            >> end_branch(pipeline)
        )
    return dag


for pipeline in pipelines_of("preview"):  # broken_pipelines.py reports the others
    globals()[f"preview_{pipeline.name}"] = preview_dag(pipeline)
