"""The Spark session: the settings that an epoch needs, in one place."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

LOCAL_MASTER = "local[2,4]"  # the second number lets tasks be retried; plain local[N] retries nothing

#: What an epoch's correctness needs, whatever the master.
REQUIRED: Mapping[str, str] = {
    # attempts of a task that disagree are caught instead of mixed
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",  # cells are large: few a batch
}

#: What makes small epochs quick on one machine.
DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.worker.reuse": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.codegen.wholeStage": "true",
}


def build_spark(app_name: str = "tussock", master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The active session, or a new one with everything an epoch needs.

    Args:
        master: LOCAL_MASTER when None and spark-submit names none.
        settings: override DEFAULTS, never REQUIRED.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else local workers are the PATH's python3, which lacks the packages
    builder = SparkSession.builder.appName(app_name)
    submitted = "SPARK_SUBMIT_MODE" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has settled master and memory
    if master is not None or not submitted:
        builder = builder.master(master or LOCAL_MASTER)
    for name, value in {**({} if submitted else DEFAULTS), **(settings or {}), **REQUIRED}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
