"""One manually triggered DAG per pipeline: apply changed SQL files to the store, after a plan of the changes.

The changes take effect with the next epoch. Parsing reads only the small pipelines/*/pipeline.toml.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG
from tussock_defaults import store_note, tags_of, task_defaults
from tussock_deploy import PARAMS, apply, approve, plan
from tussock_steps import pipelines_of

from tussock.jobs.settings.pipeline import Pipeline


def deploy_dag(pipeline: Pipeline) -> DAG:
    """The deploy DAG of a pipeline."""
    with DAG(
        dag_id=f"deploy_{pipeline.name}",
        description=f"Apply the SQL files of {pipeline.name} to its store",
        schedule=None,
        start_date=datetime(2000, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,  # another run would make a plan that waits for approval obsolete
        params=dict(PARAMS),
        default_args=task_defaults(pipeline),
        tags=tags_of(pipeline),
        doc_md=store_note(pipeline),
    ) as dag:
        planned = plan(pipeline)
        (planned >> approve(pipeline) if pipeline.deploy.approve else planned) >> apply(pipeline)
    return dag


for pipeline in pipelines_of("deploy"):  # broken_pipelines.py reports the others
    globals()[f"deploy_{pipeline.name}"] = deploy_dag(pipeline)
