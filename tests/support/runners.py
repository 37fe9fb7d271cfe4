"""Runners for tests whose subject is not where an epoch runs."""

from tests.support.spark_types import SparkSession
from tussock.jobs.driver.runner import AutoRunner


def here(spark: SparkSession) -> AutoRunner:
    """Epochs in this process, on Spark only if Spark has to read or compute something.

    Such an epoch needs a fraction of the CPU of one on Spark and writes the same bytes, as tests/jobs/driver/test_runner.py shows.
    """
    from tussock.jobs.driver.spark_runner import SparkRunner

    return AutoRunner(lambda: SparkRunner(spark), lambda: False)
