"""JSON files (one object a line, or `multiLine`), by Spark's reader."""

from typing import ClassVar

from jobs.sources.spark_files import SparkTexts


class JsonFiles(SparkTexts):
    """JSON files (one object a line, or `multiLine`), by Spark's reader."""

    format: ClassVar[str] = "json"
    options_class: ClassVar[str] = "catalyst.json.JSONOptions"
