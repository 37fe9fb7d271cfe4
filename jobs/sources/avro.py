"""Avro files, read by Spark. Spark's Avro reader is a separate module that the session has to load."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.spark_files import SparkTypedFiles, require_module

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PACKAGE = "org.apache.spark:spark-avro_2.13"


class AvroFiles(SparkTypedFiles):
    """Avro files, read by Spark."""

    format: ClassVar[str] = "avro"
    options_class: ClassVar[str] = "avro.AvroOptions"

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        require_module(source, spark(), _PACKAGE)
        return super().describe(source, spark)

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        require_module(source, spark, _PACKAGE)
        return super().frame(spark, source, document, columns)
