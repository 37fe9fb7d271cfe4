"""The merge iterator: several sorted runs of one table as one stream in key order, newest first within a key.

Runs are read in windows of blocks, and the next windows load while the current ones are merged. Each step takes from
every run the rows up to the smallest last key of the current windows, and sorts their keys stably, newest run first.
The caller then selects rows by key, epoch and op, and only those are put in order. No step processes single rows.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.shared_buffer import BufferedSource, Section
from tussock.statestore.hummock.sorted_keys import Mask, differs_from_previous, sort_order, take_keys
from tussock.statestore.hummock.sst_format import BLOCKS_PER_PARTITION, HEAD_COLUMNS, KEY, PUT, block_schema
from tussock.statestore.hummock.sst_reader import Rows
from tussock.statestore.vnode import one_array

WINDOW_BLOCKS = BLOCKS_PER_PARTITION
READ_AHEAD_THREADS = 4  # windows of this many runs load concurrently

#: Selects blocks of a section: (len(section.reader),).
Blocks = Callable[[Section], Mask]

#: Selects rows of a table that begins with key, epoch, op. The table is in key order, newest first, with all rows of
#: each key.
Choose = Callable[[pa.Table], Mask]


class RunCursor:
    """Reads a sorted run of disjoint sections in windows, from `first` (inclusive) to `last` (exclusive)."""

    def __init__(
        self,
        source: BufferedSource,
        sections: Sequence[Section],
        first: bytes | None,
        last: bytes | None,
        columns: Sequence[str] | None = None,
        window: int = WINDOW_BLOCKS,
        ahead: Executor | None = None,
        blocks: Blocks | None = None,
    ) -> None:
        """`ahead` prefetches the next window; None: no prefetching. `blocks` selects the blocks to read."""
        self._source, self._first, self._last, self._columns, self._window = source, first, last, columns, window
        self._ahead = ahead
        self._coming: Future[Rows] | None = None  # the prefetched window
        self._todo = [
            (section, start, end)
            for section in sections
            for start, end in _wanted(*_block_range(section, first, last), None if blocks is None else blocks(section))
        ]
        self.held: pa.Table | None = None  # rows that are read and not taken

    @property
    def next_key(self) -> bytes | None:
        """A lower bound of the rows that remain to be read; None at the end."""
        if not self._todo:
            return None
        section, start, _ = self._todo[0]
        key: bytes = section.reader.first_keys.array[start].as_py()
        return key

    @property
    def last_key(self) -> bytes:
        """The greatest held key. Requires: `held` has rows."""
        assert self.held is not None
        return _binary(self.held.column(0)[-1])

    def read(self) -> None:
        """Read the next window into `held`, or set it to None if no row is in the range."""
        rows = with_heads(self._coming.result() if self._coming is not None else self._scan(*self._window_at_hand()))
        section, _, stop = self._window_at_hand()
        _, _, end = self._todo[0]
        self._todo[:1] = [(section, stop, end)] if stop < end else []
        self._coming = (
            self._ahead.submit(self._scan, *self._window_at_hand()) if self._ahead is not None and self._todo else None
        )
        key = rows.column(0)
        if self._first is not None and _binary(key[0]) < self._first:
            rows = rows.slice(_count_below(key, self._first))
        if self._last is not None and rows.num_rows and _binary(rows.column(0)[-1]) >= self._last:
            rows = rows.slice(0, _count_below(rows.column(0), self._last))
        self.held = rows if rows.num_rows else None

    def _window_at_hand(self) -> tuple[Section, int, int]:
        """The blocks of the next window."""
        section, start, end = self._todo[0]
        return section, start, min(end, start + self._window)

    def _scan(self, section: Section, start: int, stop: int) -> Rows:
        return self._source.scan(section, start, stop, self._columns)

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


def merge_runs(cursors: Sequence[RunCursor], choose: Choose) -> Iterator[pa.Table]:
    """Merge the selected rows of the runs in key order, newest first within a key.

    Args:
        cursors: newest run first.
        choose: called once per step with all rows of each key in the step.

    Yields:
        Non-empty tables of key, epoch, op and the row's columns. Memory: one window per run with overlapping keys, a
        second one with read-ahead, and two copies of the rows of a step.
    """
    while True:
        _read_ahead(cursors)
        held = [cursor for cursor in cursors if cursor.held is not None]
        if not held:
            return
        frontier = min(cursor.last_key for cursor in held)
        taken = [rows for cursor in held if (rows := cursor.take_through(frontier)) is not None]
        rows = _chosen(taken, choose)
        if rows.num_rows:
            yield rows


def merge_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge sorted tables, newest first, into one sorted table. For equal keys, rows of newer tables come first."""
    return _chosen(tables, lambda rows: np.ones(rows.num_rows, np.bool_))


def _chosen(tables: Sequence[pa.Table], choose: Choose) -> pa.Table:
    """Merge sorted tables, newest first, and return the selected rows in order."""
    if len(tables) == 1:
        keep = choose(tables[0])
        return tables[0] if keep.all() else tables[0].filter(pa.array(keep))
    kinds = {table.schema.field(0).type for table in tables}
    if len(kinds) > 1:
        tables = [
            table.set_column(0, pa.field(KEY, pa.binary(), nullable=False), table.column(0).cast(pa.binary()))
            for table in tables
        ]
    merged = pa.concat_tables(tables).combine_chunks()
    keys = one_array(merged.column(0))
    order = sort_order(keys)
    heads = (
        merged.select(range(1, HEAD_COLUMNS))
        .take(pa.array(order))
        .add_column(0, merged.schema.field(0), take_keys(keys, order))
    )
    keep = choose(heads)
    if not keep.all():
        heads, order = heads.filter(pa.array(keep)), order[keep]
    rows = merged.select(range(HEAD_COLUMNS, merged.num_columns)).take(pa.array(order))
    return pa.table([*heads.columns, *rows.columns], schema=merged.schema)


def visible_at(epoch: int) -> Choose:
    """Select per key the newest row up to `epoch`, if it is a put."""

    def choose(rows: pa.Table) -> Mask:
        newest = _newest_seen(rows, rows.column(1).to_numpy(), epoch)
        chosen: Mask = newest & (rows.column(2).to_numpy() == PUT)
        return chosen

    return choose


def _newest_seen(rows: pa.Table, epochs: npt.NDArray[np.uint64], epoch: int) -> Mask:
    """Per key the newest row up to `epoch`."""
    newest = differs_from_previous(one_array(rows.column(0)))
    seen = epochs <= np.uint64(epoch)
    if not seen.all():
        newest[1:] |= ~seen[:-1]  # The row before is too new and of the same key, or belongs to the previous key.
        newest &= seen
    return newest


def newest_between(since: int, until: int) -> Choose:
    """Select per key the newest row up to `until`, put or delete, if it is newer than `since`."""

    def choose(rows: pa.Table) -> Mask:
        epochs = rows.column(1).to_numpy()
        chosen: Mask = _newest_seen(rows, epochs, until) & (epochs > np.uint64(since))
        return chosen

    return choose


def with_heads(rows: Rows) -> pa.Table:
    """Decoded rows as a table of key, epoch, op and the row's columns."""
    count = len(rows)
    epochs = rows.epochs if rows.epochs is not None else np.full(count, rows.min_epoch, np.uint64)
    ops: npt.NDArray[np.uint8] = rows.puts.astype(np.uint8) if rows.puts is not None else np.ones(count, np.uint8)
    schema = block_schema(rows.keys.array.type, rows.columns.schema)
    return pa.table([rows.keys.array, pa.array(epochs), pa.array(ops), *rows.columns.columns], schema=schema)


def _read_ahead(cursors: Sequence[RunCursor]) -> None:
    """Read until no run can yield a key at or below the smallest last key of the current windows."""
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
    """The blocks that may hold keys between first and last.

    Arrow compares exactly, since the bounds may be any bytes.
    """
    reader = section.reader
    start = 0 if first is None else _count_below(reader.last_keys.array, first)
    end = len(reader) if last is None else _count_below(reader.first_keys.array, last)
    return start, end


def _wanted(start: int, end: int, blocks: Mask | None) -> list[tuple[int, int]]:
    """The selected blocks of start … end - 1, as ranges."""
    if start >= end:
        return []
    if blocks is None:
        return [(start, end)]
    edges = np.flatnonzero(np.diff(blocks[start:end].astype(np.int8), prepend=0, append=0)) + start
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _count_below(keys: pa.Array | pa.ChunkedArray, bound: bytes, inclusive: bool = False) -> int:
    """The number of ascending keys below (or at) the bound."""
    search = bisect_right if inclusive else bisect_left
    return search(range(len(keys)), bound, key=lambda place: _binary(keys[place]))


def _binary(key: pa.Scalar) -> bytes:
    value: bytes = key.as_py()
    return value
