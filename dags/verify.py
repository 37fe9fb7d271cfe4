"""One DAG per pipeline: recompute its views with Spark and compare them with the stored rows.

It has no schedule unless `[verify]` in pipeline.toml sets one. It runs concurrently with the epoch DAG and upkeep,
since the epoch that it reads is pinned. Parsing reads only the small pipelines/*/pipeline.toml.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG
from airflow.timetables.trigger import CronTriggerTimetable
from tussock_defaults import store_note, tags_of, task_defaults
from tussock_steps import pipelines_of
from tussock_verify import params, verify_views

from tussock.jobs.settings.pipeline import Pipeline


def verify_dag(pipeline: Pipeline) -> DAG:
    """The verify DAG of a pipeline."""
    cron = pipeline.verify.schedule
    with DAG(
        dag_id=f"verify_{pipeline.name}",
        description=f"Compare the views of {pipeline.name} with Spark's answers",
        schedule=CronTriggerTimetable(cron, timezone=pipeline.time_zone) if cron else None,
        start_date=datetime(2000, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        params=params(pipeline),
        default_args=task_defaults(pipeline) | {"retries": 0},  # a retry would find the same difference
        tags=tags_of(pipeline),
        doc_md=store_note(pipeline),
    ) as dag:
        verify_views(pipeline)
    return dag


for pipeline in pipelines_of("verify"):  # broken_pipelines.py reports the others
    globals()[f"verify_{pipeline.name}"] = verify_dag(pipeline)
