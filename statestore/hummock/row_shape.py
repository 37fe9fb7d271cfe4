"""The columns that a table's rows have now, where its oldest sections were written before some of them were added.

A section keeps the columns that it was written with. What reads it finds them by their names, which no other column of the table ever
had, and puts in what `ColumnSpec.missing` says for those that it lacks. Compaction writes what it has read so: the section is of the
new shape then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tussock.statestore.meta.catalog import ColumnSpec
from tussock.statestore.types import arrow_type


@dataclass(frozen=True, slots=True)
class RowShape:
    """A table's row columns, some of them added after it had rows."""

    schema: pa.Schema
    missing: Mapping[str, pa.Array]  # added column -> the one value that rows from before hold there

    @property
    def names(self) -> list[str]:
        """The columns' names, in order."""
        names: list[str] = self.schema.names
        return names

    def widened(self, rows: pa.RecordBatch, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Rows with the columns that were asked for (None: all), those that they lack at their value. Cost: a constant per such column."""
        wanted = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        there = set(rows.schema.names)
        arrays = [
            rows.column(f.name) if f.name in there else repeated(self.missing[f.name], rows.num_rows) for f in wanted
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=wanted) if len(wanted) else rows


def shape_of(columns: Sequence[ColumnSpec]) -> RowShape | None:
    """The shape of a table's rows; None where all its sections have all its columns: none was added."""
    added = {c.name: value_of(c.missing) for c in columns if c.missing}
    if not added:
        return None
    return RowShape(pa.schema([(c.name, arrow_type(c.type)) for c in columns]), added)


def repeated(value: pa.Array, rows: int) -> pa.Array:
    """A column of so many times one value."""
    return value.take(pa.array(np.zeros(rows, np.int64)))


def value_bytes(value: pa.Array) -> bytes:
    """One value as a catalog stores it: an Arrow IPC stream of one row. Requires: len(value) == 1."""
    batch = pa.RecordBatch.from_arrays([value], names=["missing"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def value_of(stored: bytes) -> pa.Array:
    """The value of `value_bytes`, an array of length 1."""
    return pa.ipc.open_stream(pa.py_buffer(stored)).read_next_batch().column(0)
