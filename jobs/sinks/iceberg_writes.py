"""The files that a publish writes into an Iceberg table: data files and position deletes, named by their content.

The name of a file is a hash of its bytes and of the snapshot from which a publish continues. A publish that was killed
therefore writes the same objects again.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    _determine_partitions,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from tussock.jobs.delta.location import Location
from tussock.jobs.locator.edit import FileDeletes
from tussock.jobs.reading.keyed_rows import RowsWithKeys
from tussock.jobs.sinks.iceberg_outline import written_schema
from tussock.statestore.decoding import decoder_of

FILE_ROWS, FILE_BYTES = 1_000_000, 256 << 20  # of a first load; bytes in memory
_PATH_ID, _POSITION_ID = 2147483546, 2147483545
_ROW = "_tussock_row"
_DELETE_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(_PATH_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POSITION_ID)}),
    ]
)


PartitionValue = int | str | bool | float | None


class FileNote(msgspec.Struct, frozen=True):
    """The note of a locator about a data file: what a delete file of it needs."""

    spec: int
    partition: tuple[PartitionValue, ...]
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
            yield self._write_file(rows, keys, partition)

    def write_deletes(self, deletes: Sequence[FileDeletes]) -> Iterator[DataFile]:
        """Write position deletes: one file per partition of the data files."""
        groups: dict[tuple[int, tuple[Any, ...]], list[FileDeletes]] = {}
        for of_file in deletes:
            note = note_of(of_file.file.note)
            groups.setdefault((note.spec, note.partition), []).append(of_file)
        for (spec, partition), group in sorted(groups.items(), key=repr):
            yield self._write_delete_file(group, spec, partition)

    def _divide(self, rows: pa.Table) -> Iterator[tuple[pa.Table, pa.Array | None, Record]]:
        spec = self.metadata.spec()
        if spec.is_unpartitioned():
            yield rows, None, Record()
            return
        numbered = rows.append_column(_ROW, pa.array(np.arange(len(rows))))
        parts = [
            (part.arrow_table_partition, part.partition_key.partition)
            for part in _determine_partitions(spec, self.metadata.schema(), numbered)
        ]
        for part, partition in sorted(parts, key=lambda item: int(item[0][_ROW][0].as_py())):
            places = part[_ROW].combine_chunks()
            yield part.select(rows.column_names), places, partition

    def _write_file(self, rows: pa.Table, keys: pa.Table | pa.BinaryArray, partition: Record) -> NewFile:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        path = self._put(data, ".parquet")
        schema = self.metadata.schema()
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=pq.read_metadata(pa.BufferReader(data)),
            stats_columns=compute_statistics_plan(schema, self.metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=partition,
            file_size_in_bytes=len(data),
            sort_order_id=None,
            spec_id=self.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        file.spec_id = self.metadata.default_spec_id
        values = tuple(partition[i] for i in range(len(partition)))
        note = FileNote(self.metadata.default_spec_id, values, len(data))
        return NewFile(file, keys, msgspec.json.encode(note).decode())

    def _write_delete_file(self, deletes: Sequence[FileDeletes], spec: int, partition: tuple[Any, ...]) -> DataFile:
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
            partition=Record(*partition),
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

    def _put(self, data: bytes, end: str) -> str:
        digest = hashlib.sha256(self.salt.encode() + b"\0" + data).hexdigest()[:32]
        self.location.objects.put(f"{self.folder}/data/{digest}{end}", data)
        return f"{self.root}/data/{digest}{end}"


def whole_files(parts: Iterable[RowsWithKeys]) -> Iterator[RowsWithKeys]:
    """Combine rows into parts of FILE_ROWS rows or FILE_BYTES, the last one smaller."""
    waiting: list[RowsWithKeys] = []
    rows = size = 0
    for part in parts:
        for start in range(0, part.rows.num_rows, FILE_ROWS):
            piece = RowsWithKeys(part.rows.slice(start, FILE_ROWS), part.keys.slice(start, FILE_ROWS))
            if waiting and (rows + piece.rows.num_rows > FILE_ROWS or size + piece.rows.nbytes > FILE_BYTES):
                yield _joined(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows, size = rows + piece.rows.num_rows, size + piece.rows.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(parts: Sequence[RowsWithKeys]) -> RowsWithKeys:
    if len(parts) == 1:
        return parts[0]
    rows, keys = (pa.concat_tables([getattr(part, name) for part in parts]) for name in ("rows", "keys"))
    return RowsWithKeys(rows, keys)
