"""One DAG per pipeline that keeps its store small and fast: expire old epochs, merge SSTs, remove unreferenced objects.

This DAG runs concurrently with the epoch DAG, which does not depend on it. Without upkeep the store grows and its reads
become slower, nothing else. Parsing reads only the small pipelines/*/pipeline.toml.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG
from airflow.timetables.trigger import CronTriggerTimetable
from tussock_defaults import store_note, tags_of, task_defaults
from tussock_steps import pipelines_of
from tussock_upkeep import PARAMS, compact, raise_floor, tidy_tables, vacuum

from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.publishing import PublishSettings


def upkeep_dag(pipeline: Pipeline) -> DAG:
    """The upkeep DAG of a pipeline; with the schedule "none" it runs only when triggered."""
    cron = pipeline.upkeep.schedule
    with DAG(
        dag_id=f"upkeep_{pipeline.name}",
        description=f"Retention, compaction and vacuum of {pipeline.name}",
        schedule=CronTriggerTimetable(cron, timezone=pipeline.time_zone) if cron else None,
        start_date=datetime(2000, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,  # a second run would find the work in progress
        params=dict(PARAMS),
        default_args=task_defaults(pipeline),
        tags=tags_of(pipeline),
        doc_md=store_note(pipeline),
    ) as dag:
        (
            raise_floor(pipeline)  # first, so that compaction drops expired rows instead of merging them
            >> compact(pipeline)
            >> vacuum(pipeline)  # last, so that the SSTs that compaction replaced are removed in the same run
        )
        if sinks := [sink for sink in pipeline.publish if sink.upkeep is None]:
            tidy_tables(pipeline, sinks)  # tables outside the store, which the other tasks do not touch
    return dag


def sink_upkeep_dag(pipeline: Pipeline, sink: PublishSettings, cron: str) -> DAG:
    """The upkeep of a sink with a schedule of its own; with "none" it runs only when triggered."""
    with DAG(
        dag_id=f"upkeep_{pipeline.name}.{sink.title}",
        description=f"Upkeep of the sink {sink.title} of {pipeline.name}",
        schedule=CronTriggerTimetable(cron, timezone=pipeline.time_zone) if cron else None,
        start_date=datetime(2000, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        default_args=task_defaults(pipeline),
        tags=tags_of(pipeline),
        doc_md=store_note(pipeline),
    ) as dag:
        tidy_tables(pipeline, [sink])
    return dag


for pipeline in pipelines_of("upkeep"):  # broken_pipelines.py reports the others
    globals()[f"upkeep_{pipeline.name}"] = upkeep_dag(pipeline)
    for sink in pipeline.publish:
        if sink.upkeep is not None:
            globals()[f"upkeep_{pipeline.name}.{sink.title}"] = sink_upkeep_dag(pipeline, sink, sink.upkeep)
