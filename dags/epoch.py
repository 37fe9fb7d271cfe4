"""One DAG per pipeline: advance all its views by one epoch, check the result, and publish it.

However a run is started, it takes the files of its interval, or all waiting files, each file once. Parsing reads the
small pipelines/*/pipeline.toml and the names in the SQL files next to them.
"""

from airflow.sdk import DAG
from tussock_defaults import run_limit, store_note, tags_of, task_defaults
from tussock_freshness import missing_deadlines, view_deadlines
from tussock_links import LINKED, LINKS
from tussock_operators import PARAMS, health, inject_barrier, run_actors
from tussock_publishing import (
    can_be_backfilled,
    commit_version,
    owed_events,
    publish_tables,
    publish_views,
    validate_views,
)
from tussock_steps import pipelines_of
from tussock_triggers import schedule_of

from tussock.jobs.settings.pipeline import Pipeline


def epoch_dag(pipeline: Pipeline) -> DAG:
    """The epoch DAG of a pipeline; without a schedule it runs only when triggered."""
    schedule = pipeline.schedule
    with DAG(
        dag_id=f"epoch_{pipeline.name}",
        description=pipeline.description,
        schedule=schedule_of(pipeline),
        start_date=schedule.start if schedule else pipeline.triggers.start,
        catchup=schedule.catchup if schedule else False,
        max_active_runs=pipeline.airflow.max_active_runs,  # backfills ignore it, so inject_barrier waits for its turn
        dagrun_timeout=run_limit(pipeline),
        params=dict(PARAMS),
        deadline=view_deadlines(pipeline) or None,
        default_args=task_defaults(pipeline),
        tags=tags_of(pipeline),
        doc_md=f"{pipeline.description}\n\n{store_note(pipeline)}{missing_deadlines(pipeline)}",
    ) as dag:
        published = (
            inject_barrier(pipeline)
            >> run_actors(pipeline)
            >> commit_version(pipeline)  # the only step besides run_actors that makes anything durable
            >> validate_views(pipeline)
            >> publish_views(pipeline)  # the only step that makes anything visible to readers
        )
        if can_be_backfilled(pipeline):
            # If the last run of a backfill fails, emit the events that the other runs left to it.
            published >> owed_events(pipeline)
        if pipeline.publish:
            published = published >> publish_tables(pipeline)  # for readers outside the store
        published >> health(pipeline)  # reports what is wrong, and fails the run for what it left undone
        for task_id in LINKED:
            dag.get_task(task_id).operator_extra_links = LINKS
    return dag


for pipeline in pipelines_of("epoch"):  # broken_pipelines.py reports the others
    globals()[f"epoch_{pipeline.name}"] = epoch_dag(pipeline)
