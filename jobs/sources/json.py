"""JSON files (one object a line, or `multiLine`), by Spark's reader."""

import json
from typing import ClassVar

from jobs.sources.spark_files import SparkTexts
from jobs.sql.statements import CreateSource


class JsonFiles(SparkTexts):
    """JSON files (one object a line, or `multiLine`), by Spark's reader."""

    format: ClassVar[str] = "json"
    options_class: ClassVar[str] = "catalyst.json.JSONOptions"

    def sample(self, source: CreateSource, value: str) -> str:
        """See SparkTexts."""
        return json.dumps({field.name: value for field in source.fields})
