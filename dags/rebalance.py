"""One DAG per pipeline, to be triggered: move vnodes from parallel units that carry too much to others, or to another number of units.

The next epoch runs on what was moved. Runs beside the epoch DAG and upkeep, which neither wait for it nor need it. Parsing reads the small
pipelines/*/pipeline.toml and nothing else.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG
from tussock_defaults import task_defaults
from tussock_rebalance import approve, decide, measure, move, params, verify
from tussock_steps import definitions

from tussock.jobs.settings.pipeline import Pipeline


def rebalance_dag(pipeline: Pipeline) -> DAG:
    """The rebalance DAG of a pipeline."""
    with DAG(
        dag_id=f"rebalance_{pipeline.name}",
        description=f"Move vnodes of {pipeline.name} between its parallel units",
        schedule=None,
        start_date=datetime(2000, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,  # a plan that waits for its approval would be outdated by another run
        params=params(pipeline),
        default_args=task_defaults(pipeline),
        tags=["tussock"],
        doc_md=f"Store: `{pipeline.store}`",
    ) as dag:
        decided = measure(pipeline) >> decide(pipeline)
        (decided >> approve(pipeline) if pipeline.rebalance.approve else decided) >> move(pipeline) >> verify(pipeline)
    return dag


for pipeline in definitions().pipelines:  # of the others, broken_pipelines.py says what is wrong
    globals()[f"rebalance_{pipeline.name}"] = rebalance_dag(pipeline)
