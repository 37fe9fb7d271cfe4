"""What a Spark application needs when it starts to write Delta tables. Light: DAG files are parsed with it."""

from collections.abc import Mapping

_LISTS = {  # settings that name several things, with commas between them: a pipeline's own stay
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",  # Spark fetches them once
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
}
_OTHERS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # of a table's log, small as it is; else 50 tasks for each look
}


def with_delta(settings: Mapping[str, str]) -> dict[str, str]:
    """A pipeline's settings of Spark, with Delta's."""
    lists = {name: ",".join(filter(None, (settings.get(name), value))) for name, value in _LISTS.items()}
    return {**_OTHERS, **settings, **lists}
