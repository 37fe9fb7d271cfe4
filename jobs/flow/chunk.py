"""Chunks: rows with weights, the data that flows between executors.

A chunk is a `pyarrow.Table` whose columns are named `c0`, `c1`, … (numbered, never the user's names) followed by `w`, an int64 weight
per row: +1 inserts the row, -1 deletes it; any other non-zero weight stands for that many. An update is a delete and an insert with the
same stream key. The sum of a stream's chunks is the relation's content as a multiset.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.nested import canonical
from tussock.statestore.types import arrow_type

WEIGHT = "w"
MAX_CELL_BYTES = 32 << 20
COMPRESSED_BYTES = (
    64 << 10
)  # larger tables are compressed here: five copies between two processes and a shuffle carry less
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def chunk_schema(types: Sequence[str]) -> pa.Schema:
    """The schema of a chunk whose columns have these types (Spark's names)."""
    return pa.schema([*(pa.field(f"c{i}", arrow_type(t)) for i, t in enumerate(types)), pa.field(WEIGHT, pa.int64())])


def empty_chunk(types: Sequence[str]) -> pa.Table:
    """A chunk of these column types without rows."""
    return _empty(tuple(types))


@lru_cache(maxsize=1024)
def _empty(types: tuple[str, ...]) -> pa.Table:
    """Made once for each list of types: idle fragments of every epoch ask for theirs."""
    return chunk_schema(types).empty_table()


def make_chunk(columns: Sequence[pa.ChunkedArray | pa.Array], weights: pa.ChunkedArray | pa.Array) -> pa.Table:
    """A chunk from its columns, in order, and its weights."""
    return pa.table([*columns, weights], names=[*(f"c{i}" for i in range(len(columns))), WEIGHT])


def inserts(rows: pa.Table) -> pa.Table:
    """Rows (any names, in order) as a chunk of inserts."""
    return weighted(rows, 1)


def weighted(rows: pa.Table, weight: int) -> pa.Table:
    """Rows (any names, in order) as a chunk, each with this weight."""
    return make_chunk(rows.columns, pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows))


def rows_of(chunk: pa.Table) -> pa.Table:
    """The chunk's rows without weights."""
    return chunk.drop_columns([WEIGHT])


def some_rows(rows: pa.Table, chosen: npt.NDArray[np.bool_]) -> pa.Table:
    """The chosen rows, in their order; all of them without a copy."""
    return rows if chosen.all() else rows.filter(pa.array(chosen))


def difference(before: pa.Table, after: pa.Table) -> pa.Table:
    """-1 for each row of `before`, +1 for each of `after` (tables of rows, same columns in order)."""
    minus, plus = inserts(before), inserts(after)
    return pa.concat_tables([minus.set_column(minus.num_columns - 1, WEIGHT, pc.negate(minus[WEIGHT])), plus])


def encode(table: pa.Table) -> Iterator[pa.Buffer]:
    """A table as Arrow IPC streams of at most about MAX_CELL_BYTES each; one, without rows, for an empty table."""
    for some in _cut(table):
        stream = _Stream(table.schema, table.nbytes)
        stream.write(some.combine_chunks())
        yield stream.close()


def _cut(table: pa.Table) -> Iterator[pa.Table]:
    """The table in slices of at most about MAX_CELL_BYTES; one of an empty table."""
    pieces = max(1, -(-table.nbytes // MAX_CELL_BYTES))
    rows = max(1, -(-table.num_rows // pieces))
    return (table.slice(start, rows) for start in range(0, max(table.num_rows, 1), rows))


def encode_parts(parts: Iterable[tuple[int, pa.Table]], nbytes: int) -> Iterator[tuple[int, pa.Buffer]]:
    """Tables for several receivers as Arrow IPC streams of about MAX_CELL_BYTES each.

    Args:
        parts: (receiver, rows), in any order. Each is let go of before the next is asked for.
        nbytes: of all parts, about.

    Yields: (receiver, stream); a receiver's rows in their order.
    """
    open_streams: dict[int, _Stream] = {}
    for receiver, rows in parts:
        for some in _cut(rows):
            if (stream := open_streams.get(receiver)) is None:
                stream = open_streams[receiver] = _Stream(rows.schema, nbytes)
            stream.write(some)
            if stream.size >= MAX_CELL_BYTES:
                yield receiver, open_streams.pop(receiver).close()
    for receiver in sorted(open_streams):
        yield receiver, open_streams.pop(receiver).close()


class _Stream:
    """An Arrow IPC stream in the making. Its bytes follow from the rows alone: cells are put in an order by their bytes, and what a process
    has in its memory must not decide about that."""

    def __init__(self, schema: pa.Schema, nbytes: int) -> None:
        """`nbytes`: of the table that it is a part of."""
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, schema, options=_COMPRESSED if nbytes > COMPRESSED_BYTES else None)
        self.size = 0  # bytes of the tables in it

    def write(self, table: pa.Table) -> None:
        columns = (
            pa.chunked_array([canonical(part) for part in column.chunks], column.type) for column in table.columns
        )
        self._writer.write_table(
            pa.Table.from_arrays(list(columns), schema=table.schema) if table.num_columns else table
        )
        self.size += table.nbytes

    def close(self) -> pa.Buffer:
        """The whole stream."""
        self._writer.close()
        return self._sink.getvalue()


def decode(chunks: Iterable[bytes | pa.Buffer]) -> pa.Table | None:
    """The tables concatenated; None where there is none."""
    tables = [pa.ipc.open_stream(chunk).read_all() for chunk in chunks]
    return pa.concat_tables(tables) if tables else None
