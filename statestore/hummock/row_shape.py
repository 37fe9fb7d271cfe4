"""The current columns of a table that has sections with other columns: some were added later, or removed by an undo.

A section keeps the columns that it was written with. Readers find them by name, since names are never reused in a
table, and fill missing columns with `ColumnSpec.missing`. Compaction rewrites a section with the columns of all
readable epochs.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from tussock.statestore.meta.catalog import ColumnSpec, TableSchema
from tussock.statestore.types import arrow_type


@dataclass(frozen=True, slots=True)
class RowShape:
    """A table's row columns, which differ from those of older sections."""

    schema: pa.Schema
    missing: Mapping[str, pa.Array]  # added column -> its value in older rows
    digest: str  # names the shape in caches; equal for equal columns and values

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        names: list[str] = self.schema.names
        return names

    def widen_rows(self, rows: pa.RecordBatch, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Add missing columns to rows, and leave others out. Cost: a constant per added column.

        Args:
            columns: the result's columns; None: all.
        """
        wanted = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        there = set(rows.schema.names)
        arrays = [
            rows.column(f.name) if f.name in there else repeat_value(self.missing[f.name], rows.num_rows)
            for f in wanted
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=wanted) if len(wanted) else rows


def shape_of(table: TableSchema) -> RowShape | None:
    """The shape of a table's rows, or None if all its sections have the same columns."""
    return rows_of(table.columns) if differs_from_sections(table) else None


def differs_from_sections(table: TableSchema) -> bool:
    """Whether sections of a table may have other columns than the table."""
    return bool(table.retired) or any(column.missing for column in table.columns)


def rows_of(columns: Sequence[ColumnSpec]) -> RowShape:
    """The shape of rows with these columns."""
    added = {c.name: value_of(c.missing) for c in columns if c.missing}
    digest = hashlib.blake2b(msgspec.json.encode(columns), digest_size=16).hexdigest()
    return RowShape(pa.schema([(c.name, arrow_type(c.type)) for c in columns]), added, digest)


def repeat_value(value: pa.Array, rows: int) -> pa.Array:
    """A column with `value` repeated `rows` times."""
    return value.take(pa.array(np.zeros(rows, np.int64)))


def value_bytes(value: pa.Array) -> bytes:
    """Encode a value for the catalog: an Arrow IPC stream of one row. Requires: len(value) == 1."""
    batch = pa.RecordBatch.from_arrays([value], names=["missing"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def value_of(stored: bytes) -> pa.Array:
    """Decode the result of `value_bytes` to an array of length 1."""
    return pa.ipc.open_stream(pa.py_buffer(stored)).read_next_batch().column(0)
