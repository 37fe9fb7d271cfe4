"""The files that a publish writes into an Iceberg table: data files, and files of deleted rows, named by their content.

Deleted rows are position deletes in format 2, and deletion vectors in format 3.

The name of a file is a hash of its bytes and of the snapshot from which a publish continues. A publish that was killed
therefore writes the same objects again.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import partition_record_value
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from tussock.jobs.delta.location import Location
from tussock.jobs.iceberg.deletion_vectors import encode_puffin
from tussock.jobs.iceberg.manifests import ROW_LINEAGE
from tussock.jobs.iceberg.partition_texts import decode_partition, encode_partition
from tussock.jobs.locator.edit import FileDeletes
from tussock.jobs.reading.keyed_rows import RowsWithKeys
from tussock.jobs.sinks.iceberg_order import sorted_places
from tussock.jobs.sinks.iceberg_outline import transformed_column, written_schema
from tussock.statestore.decoding import decoder_of

_PATH_ID, _POSITION_ID = 2147483546, 2147483545
_DELETE_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(_PATH_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POSITION_ID)}),
    ]
)


class FileNote(msgspec.Struct, frozen=True):
    """The note of a locator about a data file: what a delete file of it needs."""

    spec: int
    partition: str  # partition_texts.py
    size: int


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file, and the keys of its rows."""

    file: DataFile
    keys: pa.Table | pa.BinaryArray
    note: str


#: Returns the note of a file from its text.
note_of = decoder_of(FileNote).decode


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Writes the files of one commit.

    Args:
        root: the table's location, as in its metadata.
        folder: of the table, below `location`.
        salt: identifies the state from which the commit continues, and the epoch.
    """

    location: Location
    root: str
    folder: str
    metadata: TableMetadata
    salt: str

    def write_rows(self, part: RowsWithKeys) -> Iterator[NewFile]:
        """Write rows as one data file per partition. Nothing for no rows."""
        if not part.rows.num_rows:
            return
        for rows, places, partition in self._divide(part.rows.cast(written_schema(self.metadata.schema()))):
            keys = part.keys if places is None else part.keys.take(places)
            if (order := sorted_places(rows, self.metadata)) is not None:
                rows, keys = rows.take(order), keys.take(order)
            yield self._write_file(rows, keys, partition)

    def write_deletes(self, deletes: Sequence[FileDeletes]) -> Iterator[DataFile]:
        """Write the deleted rows: one file with all vectors, or one file of positions per partition."""
        if self.metadata.format_version >= ROW_LINEAGE:
            yield from self._write_vectors(deletes)
            return
        groups: dict[tuple[int, str], list[FileDeletes]] = {}
        for of_file in deletes:
            note = note_of(of_file.file.note)
            groups.setdefault((note.spec, note.partition), []).append(of_file)
        for (spec, partition), group in sorted(groups.items(), key=lambda item: item[0]):
            yield self._write_delete_file(group, spec, partition)

    def _divide(self, rows: pa.Table) -> Iterator[tuple[pa.Table, pa.Array | None, Record]]:
        """Yield the rows of each partition with their places, in the order of the first ones."""
        spec, schema = self.metadata.spec(), self.metadata.schema()
        if spec.is_unpartitioned():
            yield rows, None, Record()
            return
        columns = [
            _number_moments(transformed_column(rows, schema, field.source_id, field.transform)) for field in spec.fields
        ]
        codes = np.stack([column.dictionary_encode("encode").indices.to_numpy() for column in columns])
        order = np.lexsort(codes)
        ordered = codes[:, order]
        starts = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
        for places in sorted(np.split(order, starts), key=lambda part: int(part[0])):
            values = [column[int(places[0])].as_py() for column in columns]
            represented = [
                partition_record_value(field, value, schema) for field, value in zip(spec.fields, values, strict=True)
            ]
            taken = pa.array(places)
            yield rows.take(taken), taken, Record(*represented)

    def _write_file(self, rows: pa.Table, keys: pa.Table | pa.BinaryArray, partition: Record) -> NewFile:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        path = self._put(data, ".parquet")
        ids = parquet_path_to_id_mapping(self.metadata.schema())
        footer = pq.read_metadata(pa.BufferReader(data))
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=self._plan_statistics(footer, ids),
            parquet_column_mapping=ids,
        )
        file = DataFile.from_args(
            self.metadata.format_version,
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=partition,
            file_size_in_bytes=len(data),
            sort_order_id=self.metadata.default_sort_order_id,
            spec_id=self.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        file.spec_id = self.metadata.default_spec_id
        values = encode_partition(partition[i] for i in range(len(partition)))
        note = FileNote(self.metadata.default_spec_id, values, len(data))
        return NewFile(file, keys, msgspec.json.encode(note).decode())

    def _plan_statistics(self, footer: pq.FileMetaData, ids: Mapping[str, int]) -> dict[int, StatisticsCollector]:
        """Return pyiceberg's plan of statistics. It has no bounds of moments that Python lacks, in the year 10000."""
        plan = compute_statistics_plan(self.metadata.schema(), self.metadata.properties)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        for column in (group.column(number) for group in groups for number in range(group.num_columns)):
            if not _has_readable_bounds(column):
                field_id = ids[column.path_in_schema]
                plan[field_id] = replace(plan[field_id], mode=MetricsMode(MetricModeTypes.COUNTS))
        return plan

    def _write_delete_file(self, deletes: Sequence[FileDeletes], spec: int, partition: str) -> DataFile:
        ordered = sorted(deletes, key=lambda of_file: of_file.file.path)
        paths = [pa.repeat(of_file.file.path, len(of_file.positions)) for of_file in ordered]
        positions = np.concatenate([of_file.positions for of_file in ordered])
        table = pa.table([pa.chunked_array(paths), pa.array(positions, pa.int64())], schema=_DELETE_SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", use_dictionary=["file_path"])
        data = sink.getvalue().to_pybytes()
        file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=self._put(data, "-deletes.parquet"),
            file_format=FileFormat.PARQUET,
            partition=Record(*decode_partition(partition)),
            record_count=len(table),
            file_size_in_bytes=len(data),
            column_sizes={},
            value_counts={},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds={_PATH_ID: ordered[0].file.path.encode()},
            upper_bounds={_PATH_ID: ordered[-1].file.path.encode()},
            spec_id=spec,
        )
        file.spec_id = spec
        return file

    def _write_vectors(self, deletes: Sequence[FileDeletes]) -> Iterator[DataFile]:
        """Write all deleted rows of each file that loses rows. A vector replaces the one before."""
        if not deletes:
            return
        data, places = encode_puffin({of_file.file.path: of_file.deleted for of_file in deletes})
        file_path = self._put(data, "-deletes.puffin")
        for of_file in deletes:
            note, (offset, length) = note_of(of_file.file.note), places[of_file.file.path]
            file = DataFile.from_args(
                ROW_LINEAGE,
                content=DataFileContent.POSITION_DELETES,
                file_path=file_path,
                file_format=FileFormat.PUFFIN,
                partition=Record(*decode_partition(note.partition)),
                record_count=len(of_file.deleted),
                file_size_in_bytes=len(data),
                referenced_data_file=of_file.file.path,
                content_offset=offset,
                content_size_in_bytes=length,
            )
            file.spec_id = note.spec
            yield file

    def _put(self, data: bytes, end: str) -> str:
        digest = hashlib.sha256(self.salt.encode() + b"\0" + data).hexdigest()[:32]
        self.location.objects.put(f"{self.folder}/data/{digest}{end}", data)
        return f"{self.root}/data/{digest}{end}"


def _number_moments(column: pa.Array) -> pa.Array:
    """Return days or microseconds for a column of dates or moments: Python lacks some, such as the year 10000."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _has_readable_bounds(column: pq.ColumnChunkMetaData) -> bool:
    """Return whether Python has the bounds of a column."""
    bounds = column.statistics
    try:
        if bounds is not None and bounds.has_min_max:
            bounds.min, bounds.max  # noqa: B018 - the conversion fails
    except OverflowError:
        return False
    return True
