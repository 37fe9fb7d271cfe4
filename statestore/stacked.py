"""Many columns at once: columns of one type become one long array, a *stack*.

A call of Arrow or NumPy costs about 10 µs, however few rows it gets. For a table of ten rows and 2,000 columns, calls
per column would cost far more than the rows themselves. Functions that treat each value alone (compare, take, add) give
the same values over a stack. A stack has at most MOST_VALUES values and MOST_BYTES bytes. Columns of more than FEW_ROWS
rows form stacks of one column: copying them would cost more than the calls.
"""

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.batch_message import BatchMessage
from tussock.statestore.nested import zero_under_nulls

FEW_ROWS = 1 << 11
MOST_VALUES = 1 << 16
MOST_BYTES = 16 << 20

_WITHOUT_PARAMETERS = frozenset(
    kind().id
    for kind in (
        pa.bool_,
        pa.int8,
        pa.int16,
        pa.int32,
        pa.int64,
        pa.float32,
        pa.float64,
        pa.string,
        pa.binary,
        pa.date32,
    )
)


def group_stacks(kinds: Sequence[Hashable], rows: int, *columns: Sequence[pa.Array]) -> list[list[int]]:
    """Group positions of the same kind into stacks.

    Args:
        kinds: the kind of each position.
        rows: the number of rows of each column.
        columns: the columns to stack, one sequence for each stack that a batch will form; their bytes are bounded.

    Returns: lists of positions, together all of them.
    """
    most = 1 if rows > FEW_ROWS else max(1, MOST_VALUES // max(rows, 1))
    if most == 1:
        return [[place] for place in range(len(kinds))]
    of_kind: dict[Hashable, list[int]] = {}
    for place, kind in enumerate(kinds):
        # Types have slow hashes. The number of a type without parameters is its own hash.
        named = kind.id if isinstance(kind, pa.DataType) and kind.id in _WITHOUT_PARAMETERS else kind
        if (places := of_kind.get(named)) is None:
            of_kind[named] = [place]
        else:
            places.append(place)
    stacks: list[list[int]] = []
    for places in of_kind.values():
        if len(places) == 1 or not any(_is_varying(stacked[places[0]].type) for stacked in columns):
            stacks += (places[start : start + most] for start in range(0, len(places), most))
        else:
            stacks += _split_by_bytes(places, most, columns)
    return stacks


def _is_varying(kind: pa.DataType) -> bool:
    """Whether values have different numbers of bytes."""
    return bool(pa.types.is_nested(kind)) or not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _split_by_bytes(places: Sequence[int], most: int, columns: Sequence[Sequence[pa.Array]]) -> list[list[int]]:
    stacks: list[list[int]] = []
    size = 0
    for place in places:
        own = max((stacked[place].nbytes for stacked in columns), default=0)
        if not stacks or len(stacks[-1]) == most or size + own > MOST_BYTES:
            stacks.append([])
            size = 0
        stacks[-1].append(place)
        size += own
    return stacks


def stack_columns(columns: Sequence[pa.Array]) -> pa.Array:
    """Columns of one type, one after the other. A single column is not copied."""
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def unstack_columns(array: pa.Array, count: int) -> list[pa.Array]:
    """The `count` columns of a stack. Nothing is copied."""
    if count == 1:
        return [array]
    rows = len(array) // count
    return [array.slice(start, rows) for start in range(0, rows * count, rows)] if rows else [array] * count


def arrays_of(rows: pa.Table | pa.RecordBatch) -> list[pa.Array]:
    """The columns, each as one array."""
    parts = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
    if parts and rows.num_rows <= FEW_ROWS:  # half the objects of the columns of a table
        return list(parts[0].columns if len(parts) == 1 else pa.concat_batches(parts).columns)
    return [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in rows.columns]


def no_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows. Arrow's own `empty_table` makes an array for each column, which costs far more."""
    return pa.Table.from_batches([], schema=schema)


def take_from(columns: Sequence[pa.Array], places: npt.NDArray[np.int64] | pa.Array) -> list[pa.Array]:
    """The values of each column at `places`: (m,), NULL for a NULL place.

    Requires: all columns have the same length. Cost: a gather.
    """
    if not columns:
        return []
    rows, columns_at_places = len(columns[0]), [columns[0]] * len(columns)
    wanted = places if isinstance(places, pa.Array) else pa.array(places)
    for batch in group_stacks([c.type for c in columns], max(rows, len(wanted)), columns):
        taken = stack_columns([columns[i] for i in batch]).take(_repeat_places(wanted, len(batch), rows))
        for place, column in zip(batch, unstack_columns(taken, len(batch)), strict=True):
            columns_at_places[place] = column
    return columns_at_places


def _repeat_places(places: pa.Array, count: int, rows: int) -> pa.Array:
    """The same places in each of the `count` columns of a stack."""
    if count == 1:
        return places
    there = places.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    stacked = (np.arange(count, dtype=np.int64)[:, None] * rows + there).ravel()
    missing = np.tile(places.is_null().to_numpy(zero_copy_only=False), count) if places.null_count else None
    return pa.array(stacked, mask=missing)


def canonical_rows(rows: pa.Table) -> pa.Table:
    """The rows with zeros under NULLs (`nested.zero_under_nulls`), and in a memory layout that depends on the rows
    alone.
    """
    if not rows.num_columns:
        return rows
    if not 0 < rows.num_rows <= FEW_ROWS:
        return pa.Table.from_arrays(canonical_columns(arrays_of(rows)), schema=rows.schema)
    batch = pa.concat_batches(rows.to_batches())  # a copy, in buffers of its own
    null_counts = BatchMessage.from_batch(batch).null_counts
    nested = len(null_counts) > batch.num_columns  # their elements are counted, too
    if nested or null_counts.any():
        places = range(batch.num_columns) if nested else np.flatnonzero(null_counts).tolist()
        columns = list(batch.columns)
        for place, column in zip(places, canonical_columns([columns[i] for i in places]), strict=True):
            columns[place] = column
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    return pa.Table.from_batches([batch])


def canonical_columns(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Columns of the same length with zeros under NULLs (`nested.zero_under_nulls`).

    Their memory layout depends on the values alone.
    """
    zeroed_columns = list(columns)
    for batch in group_stacks([c.type for c in columns], len(columns[0]) if columns else 0, columns):
        same = zero_under_nulls(stack_columns([columns[i] for i in batch]))
        for place, column in zip(batch, unstack_columns(same, len(batch)), strict=True):
            zeroed_columns[place] = column
    return zeroed_columns


def take_rows(rows: pa.Table, places: npt.NDArray[np.int64] | pa.Array) -> pa.Table:
    """The rows at `places`, as `Table.take`. Nothing is copied if these are all rows in their order."""
    if isinstance(places, np.ndarray) and len(places) == rows.num_rows and (places == np.arange(len(places))).all():
        return rows
    wanted = places if isinstance(places, pa.Array) else pa.array(places)
    if not 0 < rows.num_rows <= FEW_ROWS:
        return rows.take(wanted)
    return pa.Table.from_batches([pa.concat_batches(rows.to_batches()).take(wanted)], schema=rows.schema)


def count_bytes(rows: pa.Table) -> int:
    """About the bytes of the rows. `nbytes` inspects each column, which takes ten times as long if the rows are few."""
    if rows.num_rows > FEW_ROWS:
        return int(rows.nbytes)
    return sum(pa.ipc.get_record_batch_size(part) for part in rows.to_batches())
