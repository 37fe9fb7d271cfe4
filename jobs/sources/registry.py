"""The readers of all formats. Only this module lists the formats."""

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.avro import AvroFiles
from tussock.jobs.sources.base import SourceReader
from tussock.jobs.sources.boundary import BoundedReader
from tussock.jobs.sources.csv import CsvFiles
from tussock.jobs.sources.delta import DeltaTables
from tussock.jobs.sources.envelope_files import EnvelopeFiles
from tussock.jobs.sources.errors import UnsupportedFormatError
from tussock.jobs.sources.iceberg import IcebergTables
from tussock.jobs.sources.jdbc import JdbcTables
from tussock.jobs.sources.json import JsonFiles
from tussock.jobs.sources.kafka import KafkaTopics
from tussock.jobs.sources.keyed import JDBC, POSTGRES, KeyedPlan, has_envelopes, plan_of
from tussock.jobs.sources.orc import OrcFiles
from tussock.jobs.sources.other_store import FORMAT as OTHER_STORE
from tussock.jobs.sources.other_store import OtherStores
from tussock.jobs.sources.parquet import ParquetFiles
from tussock.jobs.sources.postgres import PostgresTables
from tussock.jobs.sources.text_files import TextFiles
from tussock.jobs.sources.xml import XmlFiles

READERS: dict[str, SourceReader] = {
    "parquet": ParquetFiles(),
    "csv": CsvFiles(),
    "json": JsonFiles(),
    "orc": OrcFiles(),
    "avro": AvroFiles(),
    "delta": DeltaTables(),
    "iceberg": IcebergTables(),
    "text": TextFiles(),
    "xml": XmlFiles(),
    "kafka": KafkaTopics(),
    JDBC: JdbcTables(),
    OTHER_STORE: OtherStores(),
    POSTGRES: PostgresTables(),
}

#: Formats whose sources have other options than a path.
WITHOUT_PATH = ("kafka", "iceberg", OTHER_STORE, POSTGRES)


_ENVELOPES = "envelopes"
_BOUNDED = {format: BoundedReader(reader) for format, reader in {**READERS, _ENVELOPES: EnvelopeFiles()}.items()}


def reader_of(source: CreateSource) -> SourceReader:
    """Return the reader of a source's format, inside the boundary (boundary.py). Raises UnsupportedFormatError."""
    in_lines = has_envelopes(source) and source.format == "json"
    if (reader := _BOUNDED.get(_ENVELOPES if in_lines else source.format)) is None:
        raise UnsupportedFormatError(source.name, source.format, tuple(READERS))
    return reader


def plan_of_source(source: CreateSource) -> KeyedPlan:
    """Return how the records of a keyed source change rows. Raises as `plan_of`. Requires: it is keyed."""
    return plan_of(source, reader_of(source).hidden(source))
