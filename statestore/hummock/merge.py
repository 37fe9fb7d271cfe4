"""The merge iterator: several sorted runs of one table as one stream in key order, newest first within a key.

Runs are read in windows of blocks. Each step takes from every run the rows up to the least last key at hand, puts them together and
sorts them stably, newest run first: numpy's stable sort recognises the sorted pieces and merges them. No step looks at single rows.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.hummock.shared_buffer import BufferedSource, Section
from statestore.hummock.sorted_keys import differs_from_previous, sort_order
from statestore.hummock.sst_format import BLOCKS_PER_PARTITION, KEY, block_schema
from statestore.hummock.sst_reader import Rows

WINDOW_BLOCKS = BLOCKS_PER_PARTITION


class RunCursor:
    """Reads one sorted run, its sections ascending and apart, from `first` (inclusive) to `last` (exclusive), window by window."""

    def __init__(
        self,
        source: BufferedSource,
        sections: Sequence[Section],
        first: bytes | None,
        last: bytes | None,
        columns: Sequence[str] | None = None,
        window: int = WINDOW_BLOCKS,
    ) -> None:
        self._source, self._first, self._last, self._columns, self._window = source, first, last, columns, window
        self._todo = [(section, *_block_range(section, first, last)) for section in sections]
        self._todo = [(section, start, end) for section, start, end in self._todo if start < end]
        self.held: pa.Table | None = None  # rows read and not yet taken

    @property
    def next_key(self) -> bytes | None:
        """No row that is still to be read is below this key; None: all is read."""
        if not self._todo:
            return None
        section, start, _ = self._todo[0]
        key: bytes = section.reader.first_keys.array[start].as_py()
        return key

    @property
    def last_key(self) -> bytes:
        """The greatest key at hand. Requires: `held` has rows."""
        assert self.held is not None
        return _binary(self.held.column(0)[-1])

    def read(self) -> None:
        """Read the next window into `held`, which becomes None if no row of it is in the range."""
        section, start, end = self._todo[0]
        stop = min(end, start + self._window)
        self._todo[:1] = [(section, stop, end)] if stop < end else []
        rows = with_heads(self._source.scan(section, start, stop, self._columns))
        key = rows.column(0)
        if self._first is not None and _binary(key[0]) < self._first:
            rows = rows.slice(_count_below(key, self._first))
        if self._last is not None and rows.num_rows and _binary(rows.column(0)[-1]) >= self._last:
            rows = rows.slice(0, _count_below(rows.column(0), self._last))
        self.held = rows if rows.num_rows else None

    def take_through(self, key: bytes) -> pa.Table | None:
        """Take the held rows up to and including `key`."""
        if self.held is None:
            return None
        if self.last_key <= key:
            taken, self.held = self.held, None
            return taken
        count = _count_below(self.held.column(0), key, inclusive=True)
        taken, self.held = self.held.slice(0, count), self.held.slice(count)
        return taken if count else None


def merge_runs(cursors: Sequence[RunCursor]) -> Iterator[pa.Table]:
    """All rows of the runs, in key order, newest first within a key; all rows of a key are in one table.

    Args:
        cursors: newest run first.

    Yields:
        Tables of key, epoch, op and the row's columns. Memory: one window a run whose keys overlap.
    """
    while True:
        _read_ahead(cursors)
        held = [cursor for cursor in cursors if cursor.held is not None]
        if not held:
            return
        frontier = min(cursor.last_key for cursor in held)
        taken = [rows for cursor in held if (rows := cursor.take_through(frontier)) is not None]
        yield taken[0] if len(taken) == 1 else merge_tables(taken)


def merge_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Sorted tables, newest first, as one sorted table: stable, so of equal keys the newer table's rows come first."""
    kinds = {table.schema.field(0).type for table in tables}
    if len(kinds) > 1:
        tables = [table.set_column(0, pa.field(KEY, pa.binary(), nullable=False), table.column(0).cast(pa.binary())) for table in tables]
    merged = pa.concat_tables(tables).combine_chunks()
    return merged.take(pa.array(sort_order(one_array(merged.column(0)))))


def visible(rows: pa.Table, epoch: int) -> pa.Table:
    """Of rows as `merge_runs` yields them: per key the newest no newer than `epoch`, if it is a put."""
    epochs = rows.column(1)
    if pc.max(epochs).as_py() > epoch:
        rows = rows.filter(pc.less_equal(epochs, pa.scalar(epoch, pa.uint64())))
    keep = differs_from_previous(one_array(rows.column(0)))
    keep &= rows.column(2).to_numpy() == 1
    return rows if keep.all() else rows.filter(pa.array(keep))


def with_heads(rows: Rows) -> pa.Table:
    """Decoded rows as a table of key, epoch, op and the row's columns."""
    count = len(rows)
    epochs = rows.epochs if rows.epochs is not None else np.full(count, rows.min_epoch, np.uint64)
    ops: npt.NDArray[np.uint8] = rows.puts.astype(np.uint8) if rows.puts is not None else np.ones(count, np.uint8)
    schema = block_schema(rows.keys.array.type, rows.columns.schema)
    return pa.table([rows.keys.array, pa.array(epochs), pa.array(ops), *rows.columns.columns], schema=schema)


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column's values in one array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _read_ahead(cursors: Sequence[RunCursor]) -> None:
    """Read until no run can still bring a key at or below the least last key at hand."""
    while True:
        waiting = [(key, cursor) for cursor in cursors if cursor.held is None and (key := cursor.next_key) is not None]
        frontier = min((cursor.last_key for cursor in cursors if cursor.held is not None), default=None)
        if frontier is None:
            if not waiting:
                return
            min(waiting, key=lambda item: item[0])[1].read()
            continue
        due = [cursor for key, cursor in waiting if key <= frontier]
        if not due:
            return
        for cursor in due:
            cursor.read()


def _block_range(section: Section, first: bytes | None, last: bytes | None) -> tuple[int, int]:
    """Blocks that may hold keys of first … last: by Arrow's exact comparison, for the bounds may be any bytes."""
    reader = section.reader
    start = 0 if first is None else _count_below(reader.last_keys.array, first)
    end = len(reader) if last is None else _count_below(reader.first_keys.array, last)
    return start, end


def _count_below(keys: pa.Array | pa.ChunkedArray, bound: bytes, inclusive: bool = False) -> int:
    """How many of the ascending keys are below (or at) the bound."""
    compare = pc.less_equal if inclusive else pc.less
    column = keys if pa.types.is_binary(keys.type) else keys.cast(pa.binary())
    return int(pc.sum(compare(column, pa.scalar(bound, pa.binary()))).as_py() or 0)


def _binary(key: pa.Scalar) -> bytes:
    value: bytes = key.as_py()
    return value

