"""The Spark session that judges: ANSI mode, and quick at many small queries."""

from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # a query runs once, over few rows: to compile it takes longer than to interpret it
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def judge_session(spark: SparkSession) -> SparkSession:
    """A session of its own on the application of another."""
    session = spark.newSession()
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return session
