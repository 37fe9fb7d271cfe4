"""Chunks: rows with weights, the data that flows between executors.

A chunk is a `pyarrow.Table`. Its columns are named `c0`, `c1`, … (numbers, never the user's names), followed by `w`,
an int64 weight per row: +1 inserts the row, -1 deletes it. Another non-zero weight inserts or deletes that many copies.
An update is a delete and an insert with the same stream key. The sum of a stream's chunks is the relation's content as
a multiset.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.named_rows import numbered_schema, with_schema
from tussock.statestore.stacked import FEW_ROWS, canonical_rows, count_bytes
from tussock.statestore.types import arrow_type

WEIGHT = "w"
MAX_CELL_BYTES = 32 << 20
COMPRESSED_BYTES = 64 << 10  # larger tables are compressed, because each is copied five times on its way to a reader
_LEAST_BYTES_A_COLUMN = 1 << 10  # packing buffers that are smaller costs 5 us each, and saves little
_END_BYTES = 8  # of a stream
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def chunk_schema(types: Sequence[str]) -> pa.Schema:
    """The schema of a chunk whose columns have these types (Spark's names)."""
    return pa.schema([*(pa.field(f"c{i}", arrow_type(t)) for i, t in enumerate(types)), pa.field(WEIGHT, pa.int64())])


def empty_chunk(types: Sequence[str]) -> pa.Table:
    """An empty chunk with these column types."""
    return _empty_chunk(tuple(types))


@lru_cache(maxsize=1024)
def _empty_chunk(types: tuple[str, ...]) -> pa.Table:
    """Cached: idle fragments need an empty chunk in every epoch."""
    return chunk_schema(types).empty_table()


def make_chunk(columns: Sequence[pa.ChunkedArray | pa.Array], weights: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Build a chunk from its columns, in order, and its weights."""
    return pa.table([*columns, weights], names=[*(f"c{i}" for i in range(len(columns))), WEIGHT])


def to_inserts(rows: pa.Table) -> pa.Table:
    """Convert rows (columns of any names, in order) to a chunk of inserts."""
    return with_weight(rows, 1)


def with_weight(rows: pa.Table, weight: int) -> pa.Table:
    """Convert rows (columns of any names, in order) to a chunk in which each row has this weight."""
    return add_weights(rows, pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows))


def add_weights(rows: pa.Table, weights: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Build a chunk from rows (columns of any names, in order) and their weights. Makes no object per column."""
    return with_schema(rows, numbered_schema(rows.schema)).append_column(WEIGHT, weights)


def rows_of(chunk: pa.Table) -> pa.Table:
    """The chunk's rows without weights."""
    return chunk.drop_columns([WEIGHT])


def some_rows(rows: pa.Table, chosen: npt.NDArray[np.bool_]) -> pa.Table:
    """The chosen rows in their order. Nothing is copied if all rows are chosen, or neighbours of a few.

    A slice costs a fifth of a filter if the columns are many, and changes mostly have their deletes first.
    """
    if chosen.all():
        return rows
    places = np.flatnonzero(chosen)
    if rows.num_rows > FEW_ROWS or (len(places) and places[-1] - places[0] >= len(places)):
        return rows.filter(pa.array(chosen))
    return rows.slice(int(places[0]) if len(places) else 0, len(places))


def chunk_of_difference(before: pa.Table, after: pa.Table) -> pa.Table:
    """A chunk with weight -1 per row of `before` and +1 per row of `after`.

    Both have the same columns in the same order.
    """
    plus = to_inserts(after)
    return pa.concat_tables([with_weight(before, -1), plus]) if before.num_rows else plus


def encode_table(table: pa.Table) -> Iterator[pa.Buffer]:
    """Encode a table as Arrow IPC streams of about MAX_CELL_BYTES at most.

    An empty table gives one stream without rows.
    """
    nbytes = count_bytes(table)
    for some in _cut_pieces(table, nbytes):
        stream = _Stream(table.schema, nbytes)
        stream.write(some)
        yield stream.close()


def _cut_pieces(table: pa.Table, nbytes: int) -> Iterator[pa.Table]:
    """Slice a table of `nbytes` into pieces of about MAX_CELL_BYTES at most. An empty one gives one empty slice."""
    pieces = max(1, -(-nbytes // MAX_CELL_BYTES))
    rows = max(1, -(-table.num_rows // pieces))
    return (table.slice(start, rows) for start in range(0, max(table.num_rows, 1), rows))


def encode_parts(parts: Iterable[tuple[int, pa.Table]], nbytes: int) -> Iterator[tuple[int, pa.Buffer]]:
    """Encode tables for several receivers as Arrow IPC streams of about MAX_CELL_BYTES each.

    Args:
        parts: (receiver, rows), in any order. Each part is released before the next one is requested.
        nbytes: approximate size of all parts together.

    Yields: (receiver, stream). The rows of one receiver keep their order.
    """
    open_streams: dict[int, _Stream] = {}
    for receiver, rows in parts:
        for some in _cut_pieces(rows, count_bytes(rows)):
            if (stream := open_streams.get(receiver)) is None:
                stream = open_streams[receiver] = _Stream(rows.schema, nbytes)
            stream.write(some)
            stream.size += count_bytes(some)
            if stream.size >= MAX_CELL_BYTES:
                yield receiver, open_streams.pop(receiver).close()
    for receiver in sorted(open_streams):
        yield receiver, open_streams.pop(receiver).close()


def encode_whole(table: pa.Table) -> pa.Buffer:
    """Encode a table as one Arrow IPC stream, not compressed. Requires: rows of less than 2 GB.

    Its size is known, so it does not grow: a stream of `encode_parts` takes six times as long, and with compression ten
    times.
    """
    whole = canonical_rows(table.combine_chunks())
    size = sum(pa.ipc.get_record_batch_size(batch) for batch in whole.to_batches())
    data = pa.allocate_buffer(whole.schema.serialize().size + size + _END_BYTES)
    sink = pa.FixedSizeBufferWriter(data)
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    return data.slice(0, sink.tell())


class _Stream:
    """An Arrow IPC stream that is being written.

    Its bytes depend on the rows alone, not on the memory layout of this process: cells are sorted by their bytes.
    """

    def __init__(self, schema: pa.Schema, nbytes: int) -> None:
        """`nbytes`: size of the whole table, this stream holds a part of it."""
        self._sink = pa.BufferOutputStream()
        packed = nbytes > max(COMPRESSED_BYTES, _LEAST_BYTES_A_COLUMN * len(schema))
        self._writer = pa.ipc.new_stream(self._sink, schema, options=_COMPRESSED if packed else None)
        self.size = 0  # bytes of the tables written so far, as the caller counts them

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(canonical_rows(table))

    def close(self) -> pa.Buffer:
        """End the stream and return its bytes."""
        self._writer.close()
        return self._sink.getvalue()


def decode_tables(chunks: Iterable[bytes | pa.Buffer]) -> pa.Table | None:
    """Decode and concatenate tables. None if `chunks` is empty."""
    tables = [pa.ipc.open_stream(chunk).read_all() for chunk in chunks]
    return pa.concat_tables(tables) if tables else None
