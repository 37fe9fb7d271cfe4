"""One DAG per pipeline, to be triggered: bring its changed SQL files into its store, after a look at what that comes to.

What it brings takes effect with the next epoch. Parsing reads the small pipelines/*/pipeline.toml and nothing else.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG
from tussock_defaults import task_defaults
from tussock_deploy import PARAMS, apply, approve, plan
from tussock_steps import definitions

from tussock.jobs.settings.pipeline import Pipeline


def deploy_dag(pipeline: Pipeline) -> DAG:
    """The deploy DAG of a pipeline."""
    with DAG(
        dag_id=f"deploy_{pipeline.name}",
        description=f"Bring the SQL files of {pipeline.name} into its store",
        schedule=None,
        start_date=datetime(2000, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,  # a plan that waits for its approval would be outdated by another run
        params=dict(PARAMS),
        default_args=task_defaults(pipeline),
        tags=["tussock"],
        doc_md=f"Store: `{pipeline.store}`",
    ) as dag:
        planned = plan(pipeline)
        (planned >> approve(pipeline) if pipeline.deploy.approve else planned) >> apply(pipeline)
    return dag


for pipeline in definitions().pipelines:  # of the others, broken_pipelines.py says what is wrong
    globals()[f"deploy_{pipeline.name}"] = deploy_dag(pipeline)
