"""The epoch job as a child process: `jobs/submitted.py epoch` with points, one clock for all runs, and small SSTs."""

import os
import sys
from unittest.mock import patch

from tests.support.exactly_once.daemon import watch_uploads
from tests.support.exactly_once.points import DRIVER_PID, PointedStore
from tests.support.exactly_once.workload import CLOCK_MS, POLICY
from tests.support.spark_types import SparkSession
from tussock.jobs import submitted
from tussock.jobs.driver import spark_runner
from tussock.jobs.settings import process
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store


def open_meta(store: str) -> MetaStore:
    """A store whose requests are points. All runs share a clock, so that an epoch has the same name in all of them."""
    return MetaStore(PointedStore(open_object_store(store)), f"child-{os.getpid()}", lambda: CLOCK_MS)


if __name__ == "__main__":
    os.environ[DRIVER_PID] = str(os.getpid())
    watch_uploads()  # small epochs are flushed by the driver
    runner = spark_runner.SparkRunner

    def with_small_ssts(spark: SparkSession, _policy: FlushPolicy) -> spark_runner.SparkRunner:
        return runner(spark, POLICY)

    with patch.object(process, "open_meta", open_meta), patch.object(spark_runner, "SparkRunner", with_small_ssts):
        sys.exit(submitted.main(["epoch", *sys.argv[1:]]))
