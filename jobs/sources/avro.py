"""Avro files, read by Spark. Spark's Avro reader is a separate module that the session has to load."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import SchemaMismatchError
from tussock.jobs.sources.file_portions import FileRecords
from tussock.jobs.sources.measures import measure_avro
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.spark_files import SparkTypedFiles, require_module

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MISMATCH = re.compile(
    r"Cannot convert Avro field '(?:.+)' to SQL field '(.+)' because schema is incompatible "
    r"\(avroType = (.+), sqlType = (.+)\)"
)
_PACKAGE = "org.apache.spark:spark-avro_2.13"


class AvroFiles(SparkTypedFiles):
    """Avro files, read by Spark."""

    format: ClassVar[str] = "avro"
    options_class: ClassVar[str] = "avro.AvroOptions"

    def measure(self, source: CreateSource, file: PinnedFile) -> FileRecords:
        return measure_avro(file, source.options)

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        require_module(source, spark(), _PACKAGE)
        return super().describe(source, spark)

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        require_module(source, spark, _PACKAGE)
        return super().frame(spark, source, document, columns)

    def mismatch(self, path: str, cause: str) -> SchemaMismatchError | None:
        match = _MISMATCH.search(cause)
        return None if match is None else SchemaMismatchError(path, match[1], match[2].strip('"'), match[3].lower())
