"""Avro files, by Spark's reader, which is a module of its own: the Spark session has to bring it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from jobs.sources.errors import MissingSparkModuleError
from jobs.sources.spark_files import SparkTypedFiles, spark_errors
from jobs.sql.logical import Field
from jobs.sql.statements import CreateSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class AvroFiles(SparkTypedFiles):
    """Avro files, by Spark's reader."""

    format: ClassVar[str] = "avro"
    options_class: ClassVar[str] = "avro.AvroOptions"

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        _require_module(source, spark())
        return super().describe(source, spark)

    def frame(self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]) -> "DataFrame":
        _require_module(source, spark)
        return super().frame(spark, source, document, columns)


def _require_module(source: CreateSource, spark: "SparkSession") -> None:
    """Raises MissingSparkModuleError."""
    jvm = spark._jvm
    assert jvm is not None
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource("avro", spark._jsparkSession.sessionState().conf())
    except spark_errors() as err:
        package = f"org.apache.spark:spark-avro_2.13:{spark.version}"
        raise MissingSparkModuleError(source.name, source.format, package) from err
