"""One small local Spark session in UTC."""

import os
import sys

from pyspark.sql import SparkSession


def local_session() -> SparkSession:
    """Start Spark in this process."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # otherwise its workers use the PATH's python3, which has no packages
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # a query runs once over few rows, so interpretation is faster than compilation or adaptive planning
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
    }
    return SparkSession.builder.master("local[2,4]").appName("tussock-tests").config(map=settings).getOrCreate()
