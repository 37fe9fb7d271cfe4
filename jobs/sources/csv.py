"""CSV files: the plain ones are read by actors, the others by Spark."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.sources.csv_header import ENFORCE, has_header, is_enforced, option, require_header
from tussock.jobs.sources.errors import BadOptionError, UnreadableFileError
from tussock.jobs.sources.file_documents import files_of
from tussock.jobs.sources.file_portions import FileRecords
from tussock.jobs.sources.kept import map_in_threads
from tussock.jobs.sources.measures import measure_records
from tussock.jobs.sources.pins import PinnedFile, verify_pin
from tussock.jobs.sources.plain_csv import PlainCsv
from tussock.jobs.sources.spark_files import SparkTexts, spark_errors
from tussock.jobs.sources.spark_paths import spark_paths_of
from tussock.jobs.spark.jvm_errors import is_of_machine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_KEEP = "columnNameOfCorruptRecord"


class CsvFiles(SparkTexts):
    """CSV files. Names in a header are compared with the declared columns (csv_header.py)."""

    format: ClassVar[str] = "csv"
    engine = PlainCsv()
    missing_columns: ClassVar[tuple[str, ...]] = ("error",)
    why_missing: ClassVar[str] = (
        "expected 'error': columns of a csv file are matched by position, and a record that is too short does not parse"
    )
    options_class: ClassVar[str] = "catalyst.csv.CSVOptions"

    def default_options(self, options: Mapping[str, str]) -> dict[str, str]:
        checked = has_header(options) and option(options, ENFORCE) is None
        return super().default_options(options) | ({"enforceSchema": "false"} if checked else {})

    def check(self, source: CreateSource) -> None:
        super().check(source)
        if (enforce := option(source.options, ENFORCE)) is not None and enforce.lower() not in ("true", "false"):
            reason = "expected 'false' (hold a file with another header) or 'true' (match columns by position)"
            raise BadOptionError(source.name, "enforceSchema", enforce, reason)

    def measure(self, source: CreateSource, file: PinnedFile) -> FileRecords:
        """See FileSource. A record of several lines counts as several."""
        return measure_records(file, source.options)

    def reads_names(self, source: CreateSource) -> bool:
        return has_header(source.options) and not is_enforced(source.options)

    def sample(self, source: CreateSource, value: str) -> str:
        separator = option(source.options, "sep") or option(source.options, "delimiter") or ","
        return separator.join([value] * len(source.fields))

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        """See SparkFiles; also raises CsvHeaderError.

        Headers of rows that are taken back are not checked: they were matched by position.
        """
        if self.reads_names(source):
            case_sensitive = str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"

            def judge_header(file: PinnedFile) -> None:
                verify_pin(file, source.options)
                fields = source.fields[: source.width_of(file.number)]
                try:
                    require_header(
                        file, fields, source.options, case_sensitive, lambda: self._header_by_spark(spark, source, file)
                    )
                except spark_errors() as err:
                    if is_of_machine(err):
                        raise
                    raise UnreadableFileError(file.path, self.format, cause_of(err)) from err

            map_in_threads(judge_header, [f for f in files_of(document) if f.weight > 0])
        return super().frame(spark, source, document, columns)

    def reader_options(self, source: CreateSource) -> dict[str, str]:
        """`frame` has already compared the header."""
        return {k: v for k, v in super().reader_options(source).items() if k.lower() != ENFORCE} | {
            "enforceSchema": "true"
        }

    def _header_by_spark(self, spark: "SparkSession", source: CreateSource, file: PinnedFile) -> list[str] | None:
        """Return the header as Spark reads it; None for a file without rows.

        Cost: one job over the file's beginning, and two without a file.

        The schema has one column, so Spark keeps the text of a header with several. Without a schema, Spark treats the
        path of a multi-line file as a pattern, and does not find a file in a folder called `[x]`.
        """
        own = {
            k: v
            for k, v in self.reader_options(source).items()
            if k.lower() not in ("header", "inferschema", "mode", _KEEP.lower())
        }
        options = own | {"mode": "PERMISSIVE", _KEEP: "text", "header": "false"}
        at = spark_paths_of(spark, [file], source.options)
        first = self.load_files(spark, options, [file], at, "name string, text string").select("name", "text").head()
        if first is None:
            return None
        return [first.name or ""] if first.text is None else _split_record(spark, first.text, own)


def _split_record(spark: "SparkSession", record: str, options: Mapping[str, str]) -> list[str]:
    """Split one record into its values with Spark's parser."""
    from pyspark.sql.functions import from_csv, lit, schema_of_csv

    text = lit(record)
    one = spark.range(1)
    (schema,) = one.select(schema_of_csv(text, {**options})).first() or ("",)
    columns = ", ".join(f"_c{n} string" for n in range(schema.count(": ")))
    (cells,) = one.select(from_csv(text, columns, {**options})).first() or ((),)
    return [cell or "" for cell in cells]
