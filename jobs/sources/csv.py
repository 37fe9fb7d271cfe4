"""CSV files, by Spark's reader."""

from typing import ClassVar

from jobs.sources.spark_files import SparkTexts


class CsvFiles(SparkTexts):
    """CSV files, by Spark's reader."""

    format: ClassVar[str] = "csv"
    missing_columns: ClassVar[tuple[str, ...]] = ("error",)
    why_missing: ClassVar[str] = "expected 'error': columns of a csv file go by their place, and a record that is too short does not parse"
    options_class: ClassVar[str] = "catalyst.csv.CSVOptions"
