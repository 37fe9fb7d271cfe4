"""Text files with one row per line (or per file, with `wholetext`), read by Spark into one column of strings."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import TextColumnsError
from tussock.jobs.sources.file_portions import FileRecords
from tussock.jobs.sources.measures import measure_records
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.spark_files import SparkFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VALUE = Field("value", "string")  # Spark's name


class TextFiles(SparkFiles):
    """Text files, read by Spark."""

    format: ClassVar[str] = "text"
    options_class: ClassVar[str] = "execution.datasources.text.TextOptions"
    raw_column: ClassVar[int | None] = 0

    def check(self, source: CreateSource) -> None:
        super().check(source)
        if source.fields and [f.type for f in source.fields] != [_VALUE.type]:
            raise TextColumnsError(source.name, ", ".join(f"{f.name} {f.type}" for f in source.fields))

    def measure(self, source: CreateSource, file: PinnedFile) -> FileRecords:
        return measure_records(file, source.options, "wholetext")

    def reads_names(self, source: CreateSource) -> bool:
        return False

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        self.require_known_options(source, spark())
        self.first_file(source)
        return source.fields or (_VALUE,)
