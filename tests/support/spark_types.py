"""Names of Spark's classes for annotations, so that a test module is collected without pyspark (`make unit`)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
else:
    DataFrame = SparkSession = Any

__all__ = ["DataFrame", "SparkSession"]
