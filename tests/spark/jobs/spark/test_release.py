"""The exchange of releases that cannot name a partition, and the errors for what a release lacks."""

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tussock.jobs.chunks.spark_hash import spark_hash
from tussock.jobs.spark import release


@pytest.mark.parametrize("units", [1, 2, 7, 64])
def test_before_spark_4_1_each_row_still_reaches_the_partition_of_its_slot(
    spark: SparkSession, units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "RELEASE", (4, 0))
    rows = spark.range(0, 4 * units, 1, 3).selectExpr(f"cast(id % {units} AS int) AS slot")
    found = release.exchange_rows(rows, units).selectExpr("slot", "spark_partition_id() AS partition").collect()
    assert len(found) == 4 * units
    assert [row for row in found if row["slot"] != row["partition"]] == []


def test_the_hash_is_the_one_of_sparks_partitions(spark: SparkSession) -> None:
    numbers = np.array([0, 1, -1, 123456, 2**31 - 1, -(2**31)], dtype=np.int32)
    rows = spark.createDataFrame([(int(n),) for n in numbers], "n int").selectExpr("hash(n) AS h").collect()
    assert spark_hash(numbers).tolist() == [row["h"] for row in rows]
