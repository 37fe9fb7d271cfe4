"""Every format a source can have, with its reader: the one place that names formats."""

from jobs.sources.avro import AvroFiles
from jobs.sources.base import SourceReader
from jobs.sources.boundary import bounded
from jobs.sources.csv import CsvFiles
from jobs.sources.delta import DeltaTables
from jobs.sources.errors import UnsupportedFormatError
from jobs.sources.json import JsonFiles
from jobs.sources.kafka import KafkaTopics
from jobs.sources.orc import OrcFiles
from jobs.sources.parquet import ParquetFiles
from jobs.sources.text_files import TextFiles
from jobs.sources.xml import XmlFiles
from jobs.sql.statements import CreateSource

READERS: dict[str, SourceReader] = {
    "parquet": ParquetFiles(),
    "csv": CsvFiles(),
    "json": JsonFiles(),
    "orc": OrcFiles(),
    "avro": AvroFiles(),
    "delta": DeltaTables(),
    "text": TextFiles(),
    "xml": XmlFiles(),
    "kafka": KafkaTopics(),
}

#: Formats whose sources are found by other options than a path.
WITHOUT_PATH = ("kafka",)


_BOUNDED = {format: bounded(reader) for format, reader in READERS.items()}


def reader_of(source: CreateSource) -> SourceReader:
    """The reader of a source's format, behind the boundary (jobs.sources.boundary). Raises UnsupportedFormatError."""
    if (reader := _BOUNDED.get(source.format)) is None:
        raise UnsupportedFormatError(source.name, source.format, tuple(READERS))
    return reader
