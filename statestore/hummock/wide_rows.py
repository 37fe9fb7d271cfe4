"""Rows that take too much memory at once: a window of a run whose columns may lie in a file, and a step of a merge.

A block has at least 16 rows, however wide they are. So a window of one block of 8 MB rows takes 128 MB, and a merge of
eight runs holds a window of each. The memory of a merge is therefore bounded in bytes, not in blocks:

* `WindowColumns` holds the row columns of a window in memory up to a bound, and otherwise in a temporary file.
* `WideRows` is a step of a merge. It has the keys of its rows in order, and takes their columns in slices.

Keys, epochs and ops always stay in memory: they decide the order and the choice of rows.
"""

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.sorted_keys import Mask, Positions
from tussock.statestore.hummock.sst_format import HEAD_COLUMNS
from tussock.statestore.local_disk import local_folder
from tussock.statestore.nested import as_list, is_nested
from tussock.statestore.vnode import one_array

log = logging.getLogger(__name__)

SLICE_BYTES = 16 << 20  # of rows that are taken or encoded at once, unless one block or row is larger
_PIECE_BYTES = 4 << 20  # of rows in a file that are read at once, unless one row is larger
_WIDE_ROW_BYTES = 64 << 10  # from here on, a slice per row costs less than another copy


class WindowColumns:
    """The row columns of a window: batches in memory, or pieces in a file if they exceed `most` bytes."""

    def __init__(self, most: int | None) -> None:
        """`most`: None if the rows are in memory anyway."""
        self._most = most
        self._batches: list[pa.RecordBatch] = []
        self._in_memory = 0
        self._file: IO[bytes] | None = None  # its space is freed with this object
        self._places: list[tuple[int, int]] = []  # of each piece in the file: offset, length
        self._before = 0  # rows before the last batch in the file
        self._starts = [0]  # the first row of each batch or piece, and the number of rows
        self._sizes: list[Positions] = []  # of the rows of each piece in the file
        self.schema = pa.schema([])  # that of the batches, once there is one

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def in_file(self) -> bool:
        """Whether the rows are in a file."""
        return self._file is not None

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._in_memory

    @cached_property
    def sizes(self) -> Positions:
        """(rows,): about the bytes of each row. Requires: no batch is added any more."""
        sizes = self._sizes if self.in_file else [row_sizes(batch) for batch in self._batches]
        return np.concatenate(sizes) if sizes else np.zeros(0, np.int64)

    def add(self, columns: pa.RecordBatch) -> None:
        """Append rows. If the disk cannot take them, they stay in memory, because the merge is still correct then."""
        self.schema = columns.schema
        size = columns.get_total_buffer_size()
        if self._most is None or (self._file is None and self._in_memory + size <= self._most):
            self._keep(columns, size)
            return
        try:
            self._move()
            self._before = len(self)
            self._write(columns)
        except OSError as error:
            log.warning(
                "%s bytes of wide rows stay in memory, because a file in %s cannot take them: %s. Free space there, or "
                "name a folder on a larger disk: on Spark with spark.local.dir (or SPARK_LOCAL_DIRS on its workers), "
                "without Spark with TMPDIR",
                f"{size:,}",
                _folder(),
                error,
            )
            self._unmove(columns)

    def _keep(self, columns: pa.RecordBatch, size: int) -> None:
        self._batches.append(columns)
        self._in_memory += size
        self._starts.append(self._starts[-1] + columns.num_rows)

    def _move(self) -> None:
        """Move the batches in memory to a file."""
        if self._file is not None:
            return
        self._file = tempfile.TemporaryFile(  # noqa: SIM115
            prefix="tussock-merge-", dir=local_folder(), buffering=0
        )
        batches, self._batches, self._starts = self._batches, [], [0]
        try:
            for batch in batches:
                self._write(batch)
        except OSError:
            self._batches = batches
            raise
        self._in_memory = 0

    def _write(self, columns: pa.RecordBatch) -> None:
        assert self._file is not None
        sizes = row_sizes(columns)
        for start, end in spans_of(sizes, _PIECE_BYTES):
            data = columns.slice(start, end - start).serialize()
            offset = sum(self._places[-1]) if self._places else 0
            written, view = 0, memoryview(data)
            while written < len(view):
                written += os.pwrite(self._file.fileno(), view[written:], offset + written)
            self._places.append((offset, len(view)))
            self._sizes.append(sizes[start:end])
            self._starts.append(self._starts[-1] + end - start)

    def _unmove(self, columns: pa.RecordBatch) -> None:
        """Hold all rows in memory, after the file could not take some of them."""
        held, rows = self._batches, sum(batch.num_rows for batch in self._batches)
        if not held:
            held, rows = [self._piece(number) for number in range(len(self._places))], self._before
        if self._file is not None:
            self._file.close()
        self._file, self._in_memory = None, 0
        self._places, self._sizes, self._batches, self._starts = [], [], [], [0]
        self._most = None
        for batch in held:
            batch = batch.slice(0, rows - self._starts[-1])  # without rows of the batch that was written in part
            if batch.num_rows:
                self._keep(batch, batch.get_total_buffer_size())
        self._keep(columns, columns.get_total_buffer_size())

    def _piece(self, number: int) -> pa.RecordBatch:
        if self._file is None:
            return self._batches[number]
        offset, length = self._places[number]
        data = os.pread(self._file.fileno(), length, offset)
        return pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)

    def table(self, start: int, stop: int) -> pa.Table:
        """Rows start … stop - 1."""
        if len(self._batches) == 1:
            return pa.Table.from_batches([self._batches[0].slice(start, stop - start)])
        return pa.Table.from_batches([part for part, _ in self._parts(np.arange(start, stop))], self.schema)

    def take(self, rows: Positions) -> pa.Table:
        """These rows, ascending. Reads the pieces of a file that hold one."""
        batches = [
            part if part.num_rows == len(at) else part.take(pa.array(at - at[0])) for part, at in self._parts(rows)
        ]
        return pa.Table.from_batches(batches, self.schema)

    def _parts(self, rows: Positions) -> Iterator[tuple[pa.RecordBatch, Positions]]:
        """Per batch or piece with some of the rows: its part from the first to the last of them, and the rows."""
        if not len(rows):
            return
        starts = np.array(self._starts)
        first, last = np.searchsorted(starts, [rows[0], rows[-1]], "right") - 1
        bounds = np.searchsorted(rows, starts[first : last + 2])
        for number, (low, high) in enumerate(pairwise(bounds.tolist()), int(first)):
            if low < high:
                at = rows[low:high]
                begin = int(at[0])
                part = self._piece(number).slice(begin - self._starts[number], int(at[-1]) + 1 - begin)
                yield part, at


def _folder() -> str:
    """The folder of the files, for a message."""
    try:
        return local_folder() or tempfile.gettempdir()
    except OSError:  # A process without write access has none.
        return "a folder for temporary files"


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows of a run that are read and not merged yet. Taking some costs little, since small steps of many runs are."""

    rows: pa.Table  # key, epoch, op; then the row's columns, unless they are in a file
    columns: WindowColumns
    start: int = 0  # of the first row in `columns`

    @staticmethod
    def of(heads: pa.Table, columns: WindowColumns) -> "HeldRows":
        """A window with its key, epoch and op, and its columns."""
        return HeldRows(heads if columns.in_file else _side_by_side(heads, columns.table(0, len(columns))), columns)

    def slice(self, start: int, count: int | None = None) -> "HeldRows":
        """Some of the rows."""
        return HeldRows(self.rows.slice(start, count), self.columns, self.start + start)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def keys(self) -> pa.ChunkedArray:
        """The keys."""
        return self.rows.column(0)

    @property
    def heads(self) -> pa.Table:
        """Key, epoch and op."""
        return self.rows.select(range(HEAD_COLUMNS))

    @property
    def nbytes(self) -> int:
        """About the bytes of the rows, in memory or not."""
        if not self.columns.in_file:  # cheap, and steps of narrow rows are many
            return self.columns.nbytes * len(self) // max(len(self.columns), 1)
        return int(self.columns.sizes[self.start : self.start + len(self)].sum())

    def table(self) -> pa.Table:
        """The rows with their columns."""
        if not self.columns.in_file:
            return self.rows
        return _side_by_side(self.rows, self.columns.table(self.start, self.start + len(self)))


def _side_by_side(heads: pa.Table, rows: pa.Table) -> pa.Table:
    return pa.table([*heads.columns, *rows.columns], schema=pa.schema([*heads.schema, *rows.schema]))


@dataclass(frozen=True)
class WideRows:
    """Rows in order whose columns are taken from their sources in slices."""

    heads: pa.Table  # key, epoch, op
    sources: tuple[WindowColumns, ...]
    source: Positions  # (rows,): position in `sources`
    row: Positions  # (rows,): row of the source; ascending for each source
    schema: pa.Schema

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.heads.num_rows)

    @cached_property
    def sizes(self) -> Positions:
        """(rows,): about the bytes of each row."""
        found = np.zeros(self.num_rows, np.int64)
        for number, source in enumerate(self.sources):
            mine = self.source == number
            found[mine] = source.sizes[self.row[mine]]
        return found

    @property
    def nbytes(self) -> int:
        """About the bytes of all rows."""
        return int(self.sizes.sum())

    def where(self, mask: Mask) -> "WideRows":
        """The rows selected by `mask`."""
        if mask.all():
            return self
        return WideRows(self.heads.filter(pa.array(mask)), self.sources, self.source[mask], self.row[mask], self.schema)

    def with_key_type(self, key: pa.Field) -> "WideRows":
        """The same rows with keys of another type."""
        heads = self.heads.set_column(0, key, self.heads.column(0).cast(key.type))
        return WideRows(heads, self.sources, self.source, self.row, self.schema.set(0, key))

    def slice(self, start: int, count: int | None = None) -> pa.Table:
        """Rows from `start` on with their columns. Memory: twice their bytes."""
        stop = self.num_rows if count is None else min(start + count, self.num_rows)
        numbers, rows = self.source[start:stop], self.row[start:stop]
        parts, places, taken = [], np.empty(stop - start, np.int64), 0
        for number in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == number)
            parts.append(self.sources[number].take(rows[mine]))
            places[mine] = taken + np.arange(len(mine))
            taken += len(mine)
        columns = pa.concat_tables(parts) if parts else pa.schema(list(self.schema)[HEAD_COLUMNS:]).empty_table()
        if len(parts) > 1:
            if int(self.sizes[start:stop].sum()) >= _WIDE_ROW_BYTES * (stop - start):
                columns = pa.concat_tables([columns.slice(place, 1) for place in places.tolist()])
            else:
                columns = columns.take(pa.array(places))
        return pa.table([*self.heads.slice(start, stop - start).columns, *columns.columns], schema=self.schema)

    def slices(self) -> Iterator[pa.Table]:
        """All rows in tables of about SLICE_BYTES."""
        for start, end in spans_of(self.sizes, SLICE_BYTES):
            yield self.slice(start, end - start)

    @staticmethod
    def joined(parts: "Sequence[pa.Table | WideRows]") -> "WideRows":
        """The rows of all parts, in their order. Requires: equal schemas."""
        wide = [part if isinstance(part, WideRows) else _of_table(part) for part in parts]
        before = np.cumsum([0, *(len(part.sources) for part in wide)])
        return WideRows(
            pa.concat_tables([part.heads for part in wide]).combine_chunks(),
            tuple(source for part in wide for source in part.sources),
            np.concatenate([part.source + base for part, base in zip(wide, before.tolist(), strict=False)]),
            np.concatenate([part.row for part in wide]),
            wide[0].schema,
        )


def _of_table(rows: pa.Table) -> WideRows:
    columns = WindowColumns(None)
    for batch in rows.select(range(HEAD_COLUMNS, rows.num_columns)).to_batches():
        columns.add(batch)
    places = np.arange(rows.num_rows)
    return WideRows(rows.select(range(HEAD_COLUMNS)), (columns,), np.zeros_like(places), places, rows.schema)


def row_sizes(columns: pa.RecordBatch | pa.Table) -> Positions:
    """(rows,): about the bytes of each row."""
    sizes = np.zeros(columns.num_rows, np.int64)
    for column in columns.columns:
        sizes += _value_sizes(one_array(column))
    return sizes


def _value_sizes(values: pa.Array) -> Positions | int:
    """(values,): about the bytes of each value, or those of every value."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths: Positions = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        return 4 + lengths
    if pa.types.is_struct(kind):
        return sum((_value_sizes(field) for field in values.flatten()), start=0)
    if is_nested(kind):
        listed = as_list(values)
        ends = np.cumsum(pc.fill_null(pc.list_value_length(listed), 0).to_numpy(zero_copy_only=False), dtype=np.int64)
        elements = listed.flatten()
        each = np.broadcast_to(np.asarray(_value_sizes(elements), np.int64), len(elements))
        sizes: Positions = 4 + np.diff(np.append(0, np.cumsum(each))[np.append(0, ends)])
        return sizes
    return -(-int(kind.bit_width) // 8)


def spans_of(sizes: Positions, most: int) -> list[tuple[int, int]]:
    """Split items with these sizes into consecutive spans of at most `most`, or of one item."""
    ends = np.cumsum(sizes)
    found, start = [], 0
    while start < len(ends):
        limit = most + (int(ends[start - 1]) if start else 0)
        end = max(start + 1, int(np.searchsorted(ends, limit, "right")))
        found.append((start, end))
        start = end
    return found
