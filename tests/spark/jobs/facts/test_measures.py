"""The work of an epoch, as manifests and versions record it.

Each number is compared with an independent count.
"""

import pytest

from tests.support.jobs.driver.embedded import insert
from tests.support.jobs.facts.measures import run_and_compare, store_in_s3
from tests.support.s3_servers import KEY, SECRET, Seen, moto_server
from tests.support.spark_types import SparkSession
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.wire.flush_policy import FlushPolicy


@pytest.mark.spark
def test_an_epoch_on_spark_counts_its_workers_requests(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every flush policy. The units' seconds come with the requests."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }.items():  # the JVM may have been started without them
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    seen: list[Seen] = []
    with moto_server(seen) as endpoint:
        meta = store_in_s3(endpoint, "spark", units=3)
        for step, policy in enumerate(
            (FlushPolicy(), FlushPolicy(), FlushPolicy(driver_bytes=0))
        ):  # by exchange, by driver, by units
            insert(meta, "t", *((k, k % 7, step) for k in range(100 * step, 100 * step + 50)))
            found = run_and_compare(SparkRunner(spark, policy), meta, seen)
            assert found.seconds is not None
            assert [work.unit for work in found.units] == [0, 1, 2]
            assert all(0 < work.seconds < found.seconds.run for work in found.units)
