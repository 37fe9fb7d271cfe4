"""The epoch job killed with SIGKILL at each of its steps and started again.

Each kill costs a separate driver, so the quick run takes few steps; the deep run takes all.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once import workload
from tests.support.exactly_once.fixtures import Case
from tests.support.exactly_once.kill import assert_undisturbed


@pytest.mark.spark
def test_an_undisturbed_run_equals_spark_and_uses_every_level(case: Case, store: Path, spark: SparkSession) -> None:
    workload.resume(spark, store)
    assert_undisturbed(case, store)
    assert len(case.undisturbed.levels[0]) > 2 * 2  # several SSTs an epoch
