"""Exchanges: cells, the chunk codec and the dispatcher.

A cell is one row of a Spark shuffle: `(slot int, fragment int, input int, chunk binary)`. Spark moves a few large cells instead of rows.

    fragment >= 0  a chunk of that fragment's output; `input` is the number of its exchange, or one of the leaf inputs below
    FLUSH          a sealed MemTable; `input` is its table id
    REPORT         what a fragment did (JSON), for the driver
    FAILURE        an error that stops the epoch (JSON), for the driver; a retry would meet it again, so the task does not fail
    SST            an SST that was uploaded (JSON), for the driver
    <= BUFFERED    a sealed MemTable of an epoch in flight: BUFFERED - n is that of the n-th epoch; `input` is its table id

Leaf inputs: SPLITS and BACKFILL (JSON, what an actor reads by itself), ROWS and BACKFILL_ROWS (chunks that Spark's own reader made),
ENTRIES (row changes of the log, JSON), TICK (nothing; lets a fragment run without input).
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from jobs.wire.chunk import WEIGHT
from statestore.vnode import vnodes_of

FLUSH, REPORT, FAILURE, SST, BUFFERED = -1, -2, -3, -4, -16
SPLITS, BACKFILL, ROWS, BACKFILL_ROWS, ENTRIES, TICK = -1, -2, -3, -4, -5, -6

CELL_SCHEMA = pa.schema([("slot", pa.int32()), ("fragment", pa.int32()), ("input", pa.int32()), ("chunk", pa.binary())])
MAX_CELL_BYTES = 32 << 20
COMPRESSED_BYTES = 64 << 10  # larger tables are compressed here: five copies between two processes and a shuffle carry less

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def cells(slot: int, fragment: int, input: int, chunks: Iterable[bytes]) -> pa.RecordBatch:
    """One cell per chunk, all with the same address."""
    data = list(chunks)
    n = len(data)
    columns = [pa.array([v] * n, pa.int32()) for v in (slot, fragment, input)]
    return pa.record_batch([*columns, pa.array(data, pa.binary())], schema=CELL_SCHEMA)


def encode(table: pa.Table) -> Iterator[bytes]:
    """A table as Arrow IPC streams of at most about MAX_CELL_BYTES each; one, without rows, for an empty table."""
    pieces = max(1, -(-table.nbytes // MAX_CELL_BYTES))
    rows = max(1, -(-table.num_rows // pieces))
    for start in range(0, max(table.num_rows, 1), rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED if table.nbytes > COMPRESSED_BYTES else None) as writer:
            writer.write_table(table.slice(start, rows).combine_chunks())
        yield sink.getvalue().to_pybytes()


def decode(chunks: Iterable[bytes | pa.Buffer]) -> pa.Table | None:
    """The tables concatenated; None where there is none."""
    tables = [pa.ipc.open_stream(chunk).read_all() for chunk in chunks]
    return pa.concat_tables(tables) if tables else None


def dispatch(chunk: pa.Table, keys: Sequence[int], units: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    """Slice a chunk per parallel unit.

    Args:
        chunk: rows with weights (jobs.wire.chunk).
        keys: the distribution key's columns; none: all rows go to vnode 0's unit.
        units: (vnode count,) the mapping, vnode -> unit.

    Yields: (unit, its rows in their order), only units that get rows, in order of units.
    Cost: one hash and one stable sort of the rows.
    """
    if chunk.num_rows == 0:
        return
    if not keys:
        yield int(units[0]), chunk
        return
    chunk = chunk.combine_chunks()
    vnodes = vnodes_of([chunk.column(k) for k in keys], len(units))
    unit_of_row = units[np.asarray(vnodes)]
    first = int(unit_of_row[0])
    if bool((unit_of_row == first).all()):
        yield first, chunk
        return
    order = np.argsort(unit_of_row, kind="stable")
    grouped = chunk.take(pa.array(order))
    found, starts, counts = np.unique(unit_of_row[order], return_index=True, return_counts=True)
    for unit, start, count in zip(found.tolist(), starts.tolist(), counts.tolist(), strict=True):
        yield unit, grouped.slice(start, count)


def select(chunk: pa.Table, columns: Sequence[int]) -> pa.Table:
    """Some columns of a chunk, renumbered, with its weights."""
    picked = [chunk.column(c) for c in columns]
    return pa.table([*picked, chunk.column(WEIGHT)], names=[*(f"c{i}" for i in range(len(columns))), WEIGHT])
