"""CSV files, by Spark's reader."""

from typing import ClassVar

from jobs.sources.spark_files import SparkTexts


class CsvFiles(SparkTexts):
    """CSV files, by Spark's reader."""

    format: ClassVar[str] = "csv"
    options_class: ClassVar[str] = "catalyst.csv.CSVOptions"
