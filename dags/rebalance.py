"""One manually triggered DAG per pipeline: move vnodes between parallel units.

This relieves busy units, or changes their number.

The next epoch uses the new mapping. This DAG runs independently of the epoch DAG and upkeep. Parsing reads only the
small pipelines/*/pipeline.toml.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG
from tussock_defaults import store_note, tags_of, task_defaults
from tussock_rebalance import approve, decide, measure, move, params, verify
from tussock_steps import pipelines_of

from tussock.jobs.settings.pipeline import Pipeline


def rebalance_dag(pipeline: Pipeline) -> DAG:
    """The rebalance DAG of a pipeline."""
    with DAG(
        dag_id=f"rebalance_{pipeline.name}",
        description=f"Move vnodes of {pipeline.name} between its parallel units",
        schedule=None,
        start_date=datetime(2000, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,  # another run would make a plan that waits for approval obsolete
        params=params(pipeline),
        default_args=task_defaults(pipeline),
        tags=tags_of(pipeline),
        doc_md=store_note(pipeline),
    ) as dag:
        decided = measure(pipeline) >> decide(pipeline)
        (decided >> approve(pipeline) if pipeline.rebalance.approve else decided) >> move(pipeline) >> verify(pipeline)
    return dag


for pipeline in pipelines_of("rebalance"):  # broken_pipelines.py reports the others
    globals()[f"rebalance_{pipeline.name}"] = rebalance_dag(pipeline)
