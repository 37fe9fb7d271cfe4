"""JSON files (one object per line, or `multiLine`): the plain ones are read by actors, the others by Spark."""

import json
from typing import ClassVar

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.file_portions import FileRecords
from tussock.jobs.sources.measures import measure_records
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.plain_json import PlainJson
from tussock.jobs.sources.spark_files import SparkTexts


class JsonFiles(SparkTexts):
    """JSON files (one object per line, or `multiLine`)."""

    format: ClassVar[str] = "json"
    engine = PlainJson()
    options_class: ClassVar[str] = "catalyst.json.JSONOptions"

    def measure(self, source: CreateSource, file: PinnedFile) -> FileRecords:
        return measure_records(file, source.options, "multiline")

    def sample(self, source: CreateSource, value: str) -> str:
        return json.dumps({field.name: value for field in source.fields})
