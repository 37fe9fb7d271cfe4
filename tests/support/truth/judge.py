"""The Spark session that judges: ANSI mode, and quick at many small queries."""

from datetime import datetime

from tests.support.spark_types import SparkSession

INTERPRETED = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # a query runs once over few rows, so interpretation is faster than compilation
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def judge_session(spark: SparkSession) -> SparkSession:
    """A new session on another session's application."""
    session = spark.newSession()
    for name, value in INTERPRETED.items():
        session.conf.set(name, value)
    return session


def at_moment(sql: str, moment: datetime) -> str:
    """The SELECT as Spark is to answer it at a moment."""
    instant = f"timestamp_micros({round(moment.timestamp() * 1_000_000)})"
    for name in ("now()", "current_timestamp()"):
        sql = sql.replace(name, instant)
    sql = sql.replace("unix_timestamp()", f"unix_seconds({instant})")
    return sql.replace("current_date()", f"CAST({instant} AS DATE)")
