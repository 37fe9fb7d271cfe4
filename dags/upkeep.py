"""One DAG per pipeline: keep its store small and quick to read. Let go of old epochs, merge what epochs wrote, remove what is of no use.

Runs at the same time as the epoch DAG, which neither waits for it nor needs it: without upkeep a store grows and its reads slow down, and
nothing else. Parsing reads the small pipelines/*/pipeline.toml and nothing else.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG
from airflow.timetables.trigger import CronTriggerTimetable
from tussock_defaults import task_defaults
from tussock_steps import definitions
from tussock_upkeep import PARAMS, compact, raise_floor, tidy_tables, vacuum

from tussock.jobs.settings.pipeline import Pipeline


def upkeep_dag(pipeline: Pipeline) -> DAG:
    """The upkeep DAG of a pipeline; with the schedule "none" it runs when it is triggered."""
    cron = pipeline.upkeep.schedule
    with DAG(
        dag_id=f"upkeep_{pipeline.name}",
        description=f"Retention, compaction and vacuum of {pipeline.name}",
        schedule=CronTriggerTimetable(cron, timezone=pipeline.time_zone) if cron else None,
        start_date=datetime(2000, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,  # a second one would find the first at work, and little to do
        params=dict(PARAMS),
        default_args=task_defaults(pipeline),
        tags=["tussock"],
        doc_md=f"Store: `{pipeline.store}`",
    ) as dag:
        (
            raise_floor(pipeline)  # first: what nobody can read any more is then not merged but dropped
            >> compact(pipeline)
            >> vacuum(pipeline)  # last: what compaction has replaced goes in the same run
        )
        if pipeline.publish is not None:
            tidy_tables(pipeline)  # tables outside of the store, which none of the others knows
    return dag


for pipeline in definitions().pipelines:  # of the others, broken_pipelines.py says what is wrong
    globals()[f"upkeep_{pipeline.name}"] = upkeep_dag(pipeline)
