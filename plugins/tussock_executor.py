"""Airflow's LocalExecutor, whose processes have imported the libraries of a task once, instead of each task for itself.

    [core]
    executor = tussock_executor.WarmLocalExecutor

LocalExecutor forks a process for each task, which then imports what it needs: pyarrow, pandas and Great Expectations take longer than the
work of a small epoch. Here they are imported before the first fork, so a task finds them. It costs the scheduler seconds when it starts,
and memory that its forks share.

Only libraries: of Tussock's own code, as of DAG files, each task reads what is installed when it starts.
"""

from contextlib import suppress
from importlib import import_module

from airflow.executors.local_executor import LocalExecutor

from tussock.jobs.gate.import_gx import import_gx
from tussock.statestore.extras import MissingExtraError, extras_named

LIBRARIES = (
    "airflow.dag_processing.dagbag",
    "airflow.providers.apache.spark.operators.spark_submit",
    "airflow.providers.standard.decorators.python",
    "airflow.sdk.definitions.decorators.task_group",
    "airflow.sdk.execution_time.task_runner",
    "airflow.sdk.observability.stats",
    "asgiref.sync",
    "boto3",
    "deltalake",
    "duckdb",
    "google_crc32c",
    "msgspec",
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "tomllib",
    "xxhash",
)
"""What tasks import. A fork has none of the threads that a library starts; those of these libraries start them anew there."""


def import_libraries() -> None:
    """Libraries of extras that are not installed are left out."""
    for name in LIBRARIES:
        with suppress(MissingExtraError), extras_named():
            import_module(name)
    with suppress(MissingExtraError):
        import_gx(spark=True)  # all of it: it is there for other DAGs' tasks as well


class WarmLocalExecutor(LocalExecutor):
    """See above."""

    def start(self) -> None:
        """Import, then fork."""
        import_libraries()
        super().start()
