"""Airflow's LocalExecutor with the libraries of tasks already imported.

    [core]
    executor = tussock_executor.WarmLocalExecutor

LocalExecutor forks a process for each task, and each imports its libraries: pyarrow, pandas and Great Expectations take
longer than the work of a small epoch. This executor imports them before the first fork. It costs the scheduler seconds
at its start, and memory that its forks share.

It imports libraries only. Each task still loads Tussock's own code and the DAG files as installed when the task starts.
"""

from contextlib import suppress
from importlib import import_module

from airflow.executors.local_executor import LocalExecutor

from tussock.jobs.quality.import_gx import import_gx
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
    "pyarrow.csv",
    "pyarrow.dataset",
    "pyarrow.json",
    "pyarrow.parquet",
    "tomllib",
    "xml.parsers.expat",
    "xxhash",
)
"""Libraries that tasks import. A fork loses the threads of a library; these libraries start theirs again there."""


def import_libraries() -> None:
    """Import the libraries. Those of extras that are not installed are skipped."""
    for name in LIBRARIES:
        with suppress(MissingExtraError), extras_named():
            import_module(name)
    with suppress(MissingExtraError):
        import_gx(spark=True)  # with Spark, since tasks of other DAGs need it as well


class WarmLocalExecutor(LocalExecutor):
    """LocalExecutor that imports the libraries before its first fork."""

    def start(self) -> None:
        """Import the libraries, then start forking."""
        import_libraries()
        super().start()
