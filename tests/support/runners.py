"""Runners for tests that do not depend on the runner of an epoch."""

from tests.support.spark_types import SparkSession
from tussock.jobs.driver.runner import AutoRunner


def here(spark: SparkSession) -> AutoRunner:
    """Epochs in this process, on Spark only if Spark has to read or compute something.

    The epoch needs a fraction of the CPU of one on Spark and writes the same bytes
    (tests/spark/jobs/driver/test_runner.py).
    """
    from tussock.jobs.driver.spark_runner import SparkRunner

    return AutoRunner(lambda: SparkRunner(spark), lambda: False)
