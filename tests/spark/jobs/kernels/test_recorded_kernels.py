"""The recorded answers to the cases of kernels equal those of the installed Spark (tests/support/recorded_truth.py)."""

import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.kernels.edge_values import edge_table
from tests.support.jobs.kernels.kernel_cases import CASES, Case
from tests.support.jobs.kernels.kernel_truth import read_truth, truth_differences
from tests.support.jobs.kernels.spark_truth import live_truth
from tests.support.recorded_truth import version_to_compare


@pytest.mark.sampled(30)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_record_equals_spark(case: Case, spark: SparkSession) -> None:
    rows = edge_table(case.columns)
    recorded = read_truth(case, rows, version_to_compare())
    assert "\n".join(truth_differences(case, recorded, live_truth(spark, case, rows))) == ""
