"""The merge iterator: several sorted runs of one table as one stream in key order, newest first within a key.

Runs are read in windows of blocks, and the next windows load while the current ones are merged. Each step takes from
every run the rows up to the smallest last key of the current windows, and sorts their keys stably, newest run first.
The caller then selects rows by key, epoch and op, and only those are put in order. No step processes single rows.

Windows and steps are bounded in bytes as well as in blocks, because a block of very wide rows takes megabytes: it has
one row.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.allocator import give_back_freed_memory
from tussock.statestore.hummock.block_source import OpenSection
from tussock.statestore.hummock.shared_buffer import BufferedSource, Section
from tussock.statestore.hummock.sorted_keys import (
    Fixed,
    Mask,
    Positions,
    differs_from_previous,
    fixed_keys,
    insert_positions,
    measure_widths,
    sort_order,
    take_keys,
)
from tussock.statestore.hummock.sst_format import HEAD_COLUMNS, KEY, PUT, block_schema
from tussock.statestore.hummock.sst_reader import Rows
from tussock.statestore.memory import memory_limit
from tussock.statestore.vnode import one_array

WINDOW_BLOCKS = 512
MERGE_BYTES = 128 << 20  # of decoded windows that all runs of a merge hold in memory
_MERGE_PART = 16  # of a limited memory
STEP_BYTES = 64 << 20  # a step has about as many at most, unless one key has more
_WINDOWS = 2  # that a run holds: the current one, and the next one if it is read ahead
_FEW_ROWS = 16  # a block with fewer rows may have more than _BLOCK_BYTES
_BLOCK_BYTES = 32 << 10
_WIDE_BLOCK_BYTES = 1 << 20  # of a decoded block
_LEAST_SHARE = 8 << 20  # of a run among many: smaller windows would cost more steps
_PADDED_KEY = 64  # bytes; padding costs more than searching if keys of very different lengths are longer
READ_AHEAD_THREADS = 4  # windows of this many runs load concurrently
_FEW_INSERTED = 4096  # rows that are merged into a larger table by slices of it
_WORTH_SLICING = 512  # rows of the larger table for each of them: a slice takes as long as copying so many rows

#: Selects blocks of a section: (len(section.reader),).
Blocks = Callable[[Section], Mask]

#: Selects rows of a table that begins with key, epoch, op. The table is in key order, newest first, with all rows of
#: each key.
Choose = Callable[[pa.Table], Mask]


def share_of(runs: int, most: int | None = None) -> int:
    """The decoded bytes that each run of a merge of so many holds in memory. `most`: of all runs; None: MERGE_BYTES."""
    most = memory_limit.limit_share(MERGE_BYTES, _MERGE_PART) if most is None else most
    return max(most // max(runs, 1), _LEAST_SHARE)


class RunCursor:
    """Reads a sorted run of disjoint sections in windows, from `first` (inclusive) to `last` (exclusive)."""

    def __init__(
        self,
        source: BufferedSource,
        sections: Sequence[Section],
        first: bytes | None,
        last: bytes | None,
        columns: Sequence[str] | None = None,
        ahead: Executor | None = None,
        blocks: Blocks | None = None,
        share: int = MERGE_BYTES,
    ) -> None:
        """Find the blocks of the run.

        Args:
            ahead: prefetches the next window; None: no prefetching.
            blocks: selects the blocks to read.
            share: decoded bytes of this run in memory: the current window and the next one.
        """
        self._source, self._first, self._last, self._columns = source, first, last, columns
        self._ahead, self._share = ahead, share
        self._coming: Future[Rows] | None = None  # the prefetched window
        self._growth: float | None = None  # decoded bytes per encoded byte in the last read
        self._todo = [
            (section, start, end)
            for section in sections
            for start, end in _selected_ranges(
                *_block_range(section, first, last), None if blocks is None else blocks(section)
            )
        ]
        self.window: pa.Table | None = None  # the window with rows that are read and not taken
        self._window_bytes = 0  # of the whole window
        self._taken = 0  # rows of `window` that are taken
        self.last_key = b""  # the greatest key of `window`; without meaning without one
        self._keys: Fixed | None = None  # the keys of `window`, unless they are too long to be padded

    @property
    def next_key(self) -> bytes | None:
        """A lower bound of the rows that remain to be read; None at the end."""
        if not self._todo:
            return None
        section, start, _ = self._todo[0]
        key: bytes = section.reader.first_keys.array[start].as_py()
        return key

    def read_window(self) -> None:
        """Read the next `window`; it is None if no row is in the range."""
        section, start, end = self._todo[0]
        if self._coming is not None:
            rows, self._coming = self._coming.result(), None
        else:
            rows = self._scan_blocks(section, start, self._end_of_fitting(section, start, end))
        self._learn_growth(section, start, rows)
        self._todo[:1] = [(section, rows.end_block, end)] if rows.end_block < end else []
        if rows.nbytes > _WIDE_BLOCK_BYTES * (rows.end_block - start):
            give_back_freed_memory()  # The C library would keep the gaps between large buffers of several threads.
        if self._ahead is not None and self._todo:
            section, start, end = self._todo[0]
            self._coming = self._ahead.submit(
                self._scan_blocks, section, start, self._end_of_fitting(section, start, end)
            )
        self._window_bytes = rows.nbytes
        self._hold_window(self._within_bounds(_table_of(rows)))

    def _within_bounds(self, window: pa.Table) -> pa.Table | None:
        """The rows from `first` to `last`, or None."""
        if self._first is not None and _to_bytes(window.column(0)[0]) < self._first:
            window = window.slice(_count_below(window.column(0), self._first))
        if self._last is not None and window.num_rows and _to_bytes(window.column(0)[-1]) >= self._last:
            window = window.slice(0, _count_below(window.column(0), self._last))
        return window if window.num_rows else None

    def _hold_window(self, window: pa.Table | None) -> None:
        """Keep a window, and what each step needs of it: steps of many runs take a few rows of every window."""
        self.window, self._taken, self._keys = window, 0, None
        if window is None:
            return
        keys = one_array(window.column(0))
        self.last_key = _to_bytes(keys[-1])
        if measure_widths(keys)[0] <= _PADDED_KEY:
            self._keys = fixed_keys(keys)

    def _end_of_fitting(self, section: Section, start: int, stop: int) -> int:
        """The end of the blocks from `start` on that are read at once."""
        stop = min(stop, start + WINDOW_BLOCKS)
        while stop - start > 1 and self._decoded_bytes(section, start, stop) > self._share // _WINDOWS:
            stop = start + (stop - start) // 2
        return stop

    def _decoded_bytes(self, section: Section, start: int, stop: int) -> int:
        """Estimate the memory of blocks. The first read of a run with very wide rows has one block, to learn it."""
        if not isinstance(section, OpenSection):
            return 0  # it is in memory already
        if self._growth is not None:
            return int(section.reader.lengths[start:stop].sum() * self._growth)
        if (bits := row_bits(section, self._columns)) is not None:
            return int(section.reader.rows[start:stop].sum()) * bits // 8
        few = bool((section.reader.rows[start:stop] <= _FEW_ROWS).any())
        return self._share if few and stop - start > 1 else (stop - start) * _BLOCK_BYTES

    def _learn_growth(self, section: Section, start: int, rows: Rows) -> None:
        if isinstance(section, OpenSection):
            stored = int(section.reader.lengths[start : start + rows.end_block - rows.first_block].sum())
            self._growth = rows.nbytes / max(stored, 1)

    def _scan_blocks(self, section: Section, start: int, stop: int) -> Rows:
        return self._source.scan_blocks(section, start, stop, self._columns)

    @property
    def waiting_bytes(self) -> int:
        """About the bytes of the rows that are not taken. Requires: there is a window."""
        assert self.window is not None
        rows = int(self.window.num_rows)
        return self._window_bytes * (rows - self._taken) // rows

    def key_at(self, share: float) -> bytes:
        """The key that follows this share of the rows that are not taken. Requires: there is a window."""
        assert self.window is not None
        return _to_bytes(self.window.column(0)[self._taken + int((self.window.num_rows - self._taken) * share)])

    def take_through(self, key: bytes) -> pa.Table | None:
        """Take the rows of the window up to and including `key`, a stored key of the table."""
        if self.window is None:
            return None
        start, window = self._taken, self.window
        if self.last_key <= key:
            self._hold_window(None)
            return window.slice(start) if start else window
        if self._keys is None:
            end = _count_below(one_array(window.column(0)), key, inclusive=True)
        else:  # NumPy cuts a longer key. This is no change: of two keys of a table, neither begins with the other.
            end = int(self._keys.searchsorted(np.array(key, self._keys.dtype), "right"))
        self._taken = end
        return window.slice(start, end - start) if end > start else None


def _table_of(rows: Rows) -> pa.Table:
    """Key, epoch, op and the row's columns of decoded rows."""
    heads = heads_of(rows)
    columns = rows.columns
    return pa.table([*heads.columns, *columns.columns], schema=pa.schema([*heads.schema, *columns.schema]))


def merge_runs(cursors: Sequence[RunCursor], choose: Choose) -> Iterator[pa.Table]:
    """Merge the selected rows of the runs in key order, newest first within a key.

    Args:
        cursors: newest run first. Their shares are as in `share_of`.
        choose: called once per step with all rows of each key in the step.

    Yields:
        Non-empty tables of key, epoch, op and the row's columns, of about STEP_BYTES at most, unless the rows of one
        key take more. They depend on the runs only. Memory: a window per run, a second one with read-ahead, and two
        copies of the rows of a table.
    """
    while True:
        _read_ahead(cursors)
        waiting = [cursor for cursor in cursors if cursor.window is not None]
        if not waiting:
            return
        frontier = _find_frontier(waiting)
        taken = [rows for cursor in waiting if (rows := cursor.take_through(frontier)) is not None]
        chosen = _merge_chosen(taken, choose)
        if chosen.num_rows:
            yield chosen


def _find_frontier(cursors: Sequence[RunCursor]) -> bytes:
    """The greatest key up to which the windows have all rows, or a smaller one if these are more than a step."""
    frontier, waiting = min(cursor.last_key for cursor in cursors), sum(cursor.waiting_bytes for cursor in cursors)
    if waiting <= STEP_BYTES:
        return frontier
    largest = max(cursors, key=lambda cursor: cursor.waiting_bytes)
    return min(frontier, largest.key_at(STEP_BYTES / 2 / waiting))


def merge_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge sorted tables, newest first, into one sorted table. For equal keys, rows of newer tables come first."""
    return _merge_chosen(tables, lambda rows: np.ones(rows.num_rows, np.bool_))


def _merge_chosen(tables: Sequence[pa.Table], choose: Choose) -> pa.Table:
    """Merge sorted tables, newest first, and return the selected rows in order."""
    if len(tables) == 1:
        keep = choose(tables[0])
        return tables[0] if keep.all() else tables[0].filter(pa.array(keep))
    kinds = {table.schema.field(0).type for table in tables}
    if len(kinds) > 1:
        tables = [_with_binary_key(table) for table in tables]
    if (merged := _insert_few(tables)) is not None:
        keep = choose(merged.select(range(HEAD_COLUMNS)))
        return (merged if keep.all() else _keep_rows(merged, keep)).combine_chunks()
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


def _insert_few(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Merge sorted tables, newest first, by slices of the largest one. None unless the others have few rows.

    As a scan of a large table meets them of which each epoch changes some rows: a sort and a copy by position would
    take most of its time.
    """
    largest = max(range(len(tables)), key=lambda i: tables[i].num_rows)
    large = tables[largest]
    few = sum(table.num_rows for table in tables) - large.num_rows
    if not few or few > _FEW_INSERTED or few * _WORTH_SLICING > large.num_rows:
        return None
    stored, places = one_array(large.column(0)), list[Positions]()
    for i, table in enumerate(tables):
        if i != largest:  # newer rows of a key come before those of the large table, and older ones after them
            places.append(insert_positions(stored, one_array(table.column(0)), after=i > largest))
    others = pa.concat_tables([table for i, table in enumerate(tables) if i != largest]).combine_chunks()
    order = sort_order(one_array(others.column(0)))
    others, starts = others.take(pa.array(order)), np.concatenate(places)[order]
    pieces, done = list[pa.Table](), 0
    edges = np.flatnonzero(np.diff(starts, prepend=-1))
    for first, end in zip(edges.tolist(), [*edges[1:].tolist(), few], strict=True):
        start = int(starts[first])
        pieces += [large.slice(done, start - done), others.slice(first, end - first)]
        done = start
    return pa.concat_tables([*pieces, large.slice(done)])


def _keep_rows(rows: pa.Table, keep: Mask) -> pa.Table:
    """The chosen rows. A few long runs are cheaper to slice than to filter."""
    edges = np.flatnonzero(np.diff(keep.view(np.int8), prepend=0, append=0))
    if len(edges) * _WORTH_SLICING > rows.num_rows:
        return rows.filter(pa.array(keep))
    runs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return pa.concat_tables([rows.slice(0, 0), *(rows.slice(start, end - start) for start, end in runs)])


def _with_binary_key(table: pa.Table) -> pa.Table:
    return table.set_column(0, pa.field(KEY, pa.binary(), nullable=False), table.column(0).cast(pa.binary()))


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


def heads_of(rows: Rows) -> pa.Table:
    """Key, epoch and op of decoded rows."""
    count = len(rows)
    epochs = rows.epochs if rows.epochs is not None else np.full(count, rows.min_epoch, np.uint64)
    ops: npt.NDArray[np.uint8] = rows.puts.astype(np.uint8) if rows.puts is not None else np.ones(count, np.uint8)
    schema = block_schema(rows.keys.array.type, pa.schema([]))
    return pa.table([rows.keys.array, pa.array(epochs), pa.array(ops)], schema=schema)


def _read_ahead(cursors: Sequence[RunCursor]) -> None:
    """Read until no run can yield a key at or below the smallest last key of the current windows."""
    while True:
        waiting = [
            (key, cursor) for cursor in cursors if cursor.window is None and (key := cursor.next_key) is not None
        ]
        frontier = min((cursor.last_key for cursor in cursors if cursor.window is not None), default=None)
        if frontier is None:
            if not waiting:
                return
            min(waiting, key=lambda item: item[0])[1].read_window()
            continue
        due = [cursor for key, cursor in waiting if key <= frontier]
        if not due:
            return
        for cursor in due:
            cursor.read_window()


def row_bits(section: OpenSection, columns: Sequence[str] | None) -> int | None:
    """Bits of a decoded row with these columns (None: all); None if they depend on the row's values."""
    row = [field for field in section.reader.row_schema if columns is None or field.name in columns]
    bits = 0
    for field in (*list(section.reader.schema)[:HEAD_COLUMNS], *row):
        try:
            bits += field.type.bit_width
        except ValueError:
            return None
    return bits


def _block_range(section: Section, first: bytes | None, last: bytes | None) -> tuple[int, int]:
    """The blocks that may hold keys between first and last.

    Arrow compares exactly, since the bounds may be any bytes.
    """
    reader = section.reader
    start = 0 if first is None else _count_below(reader.last_keys.array, first)
    end = len(reader) if last is None else _count_below(reader.first_keys.array, last)
    return start, end


def _selected_ranges(start: int, end: int, blocks: Mask | None) -> list[tuple[int, int]]:
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
    return search(range(len(keys)), bound, key=lambda place: _to_bytes(keys[place]))


def _to_bytes(key: pa.Scalar) -> bytes:
    value: bytes = key.as_py()
    return value
