"""Chunks: rows with weights, the data that flows between executors.

A chunk is a `pyarrow.Table` whose columns are named `c0`, `c1`, … (numbered, never the user's names) followed by `w`, an int64 weight
per row: +1 inserts the row, -1 deletes it; any other non-zero weight stands for that many. An update is a delete and an insert with the
same stream key. The sum of a stream's chunks is the relation's content as a multiset.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.types import arrow_type

WEIGHT = "w"


def chunk_schema(types: Sequence[str]) -> pa.Schema:
    """The schema of a chunk whose columns have these types (Spark's names)."""
    return pa.schema([*(pa.field(f"c{i}", arrow_type(t)) for i, t in enumerate(types)), pa.field(WEIGHT, pa.int64())])


def empty_chunk(types: Sequence[str]) -> pa.Table:
    """A chunk of these column types without rows."""
    return chunk_schema(types).empty_table()


def make_chunk(columns: Sequence[pa.ChunkedArray | pa.Array], weights: pa.ChunkedArray | pa.Array) -> pa.Table:
    """A chunk from its columns, in order, and its weights."""
    return pa.table([*columns, weights], names=[*(f"c{i}" for i in range(len(columns))), WEIGHT])


def inserts(rows: pa.Table) -> pa.Table:
    """Rows (any names, in order) as a chunk of inserts."""
    return make_chunk(rows.columns, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))


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
