"""The Spark settings to write Delta tables. DAG parsing imports this module, so it stays light."""

from collections.abc import Mapping

_LISTS = {  # comma-separated settings: the pipeline's own values stay
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",  # Spark downloads them once
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
}
_OTHERS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # partitions of a table's small log; by default 50 tasks per read
}


def with_delta(settings: Mapping[str, str]) -> dict[str, str]:
    """Add Delta's settings to a pipeline's Spark settings."""
    lists = {name: ",".join(filter(None, (settings.get(name), value))) for name, value in _LISTS.items()}
    return {**_OTHERS, **settings, **lists}
