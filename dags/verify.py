"""One DAG per pipeline: compute its views by Spark and compare them with their rows.

It has no schedule unless `[verify]` of pipeline.toml gives it one. Runs beside the epoch DAG and upkeep: the epoch that it reads is pinned.
Parsing reads the small pipelines/*/pipeline.toml and nothing else.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG
from airflow.timetables.trigger import CronTriggerTimetable
from tussock_defaults import task_defaults
from tussock_steps import definitions
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
        default_args=task_defaults(pipeline) | {"retries": 0},  # what differs once differs again
        tags=["tussock"],
        doc_md=f"Store: `{pipeline.store}`",
    ) as dag:
        verify_views(pipeline)
    return dag


for pipeline in definitions().pipelines:  # of the others, broken_pipelines.py says what is wrong
    globals()[f"verify_{pipeline.name}"] = verify_dag(pipeline)
