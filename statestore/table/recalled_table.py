"""A small table that a driver reads in every epoch. The process remembers its rows and reads what was written since.

Every read of a StorageTable searches all SSTs that may have its keys, and small epochs make many SSTs. The tables of
taken files are read in full, or nearly so, by each epoch of a driver.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.forks import new_lock, renew_in_child
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.sst_format import PUT
from tussock.statestore.table.schema import FoundRows
from tussock.statestore.table.storage_table import StorageTable

MOST_BYTES = 32 << 20  # of one table (100,000 taken files); larger ones are read as usual
_MOST_TOGETHER = 64 << 20  # of a process; the table that was unused for longest is forgotten first


@dataclass(frozen=True, slots=True)
class _Remembered:
    epoch: int  # committed, so its rows never change
    rows: pa.Table  # `key` (the storage key), then the row's columns; in key order


class _Memory:
    """The remembered tables of a process, by store and table. Thread-safe."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._tables: OrderedDict[tuple[str, int], _Remembered] = OrderedDict()

    def get(self, name: tuple[str, int]) -> _Remembered | None:
        with self._lock:
            if (table := self._tables.get(name)) is not None:
                self._tables.move_to_end(name)
            return table

    def put(self, name: tuple[str, int], remembered: _Remembered) -> None:
        with self._lock:
            self._tables.pop(name, None)
            self._tables[name] = remembered
            while sum(one.rows.nbytes for one in self._tables.values()) > _MOST_TOGETHER:
                self._tables.popitem(last=False)


@cache
def _process_memory() -> _Memory:
    return _Memory()


renew_in_child(_process_memory.cache_clear)


class RecalledTable(StorageTable):
    """Rows of one small table as of a committed epoch. Raises and returns the same as a StorageTable.

    Requires: the epoch is committed. The process remembers its rows, and rows of an epoch in flight could change.

    Cost: the first read in a process, or one after vacuum removed the remembered epoch, reads the table. Other reads
    read the SSTs that others wrote since the last one; `recall_written` knows those of this process.
    """

    def read_keys(self, keys: pa.BinaryArray, columns: Sequence[int] | None = None, once: bool = False) -> FoundRows:
        """See StorageTable."""
        if (rows := self._recall_rows()) is None:
            return super().read_keys(keys, columns, once)
        at = pc.index_in(keys.cast(pa.binary()), rows["key"])
        schema = self._selected_schema(columns)
        return FoundRows(rows.select(schema.names).take(at).cast(schema), at.is_valid())

    def read_range(self, first: bytes, end: bytes, columns: Sequence[int] | None = None) -> Iterator[pa.Table]:
        """See StorageTable. One table."""
        if (rows := self._recall_rows()) is None:
            yield from super().read_range(first, end, columns)
            return
        inside = pc.and_(pc.greater_equal(rows["key"], first), pc.less(rows["key"], end))
        if (rows_inside := rows.filter(inside).select(["key", *self._selected_schema(columns).names])).num_rows:
            yield rows_inside

    def _recall_rows(self) -> pa.Table | None:
        """All rows; None for a large table."""
        name = (self._store.objects.uri, self.layout.schema.table_id)
        remembered = _process_memory().get(name)
        if remembered is None or (rows := self._update_remembered(remembered)) is None:
            parts, size = [], 0
            for part in super().read_range(*self.layout.range_of(0, self.layout.vnode_count)):
                size += part.nbytes
                if size > MOST_BYTES:
                    return None
                parts.append(part)
            rows = pa.concat_tables([self._empty_rows(), *parts])
        if rows.nbytes > MOST_BYTES:
            return None
        if remembered is None or rows is not remembered.rows or self.epoch != remembered.epoch:
            _process_memory().put(name, _Remembered(self.epoch, rows.combine_chunks()))
        return rows

    def _update_remembered(self, remembered: _Remembered) -> pa.Table | None:
        """The remembered rows with what was written since; None if that is unknown.

        Epochs are times. So another store that was at this address before has none of this one's, except a copy of it,
        in which their rows are equal.
        """
        if remembered.epoch == self.epoch:
            return remembered.rows
        if remembered.rows.schema != self._empty_rows().schema or remembered.epoch not in self._store.version.epochs:
            return None  # such an epoch is below the floor, or of another store that was at this address
        written: list[pa.Array] = []
        rows: list[pa.Table] = []
        everything = self.layout.range_of(0, self.layout.vnode_count)
        since, table_id = remembered.epoch, self.layout.schema.table_id
        for keys, put, after in self._store.read_entries(table_id, *everything, since, self.epoch):
            written.append(keys)
            rows.append(after.add_column(0, "key", keys).filter(pa.array(put)).cast(self._empty_rows().schema))
        return _overlay_rows(remembered.rows, written, rows)

    def _empty_rows(self) -> pa.Table:
        schema = self.layout.rows
        return schema.insert(0, pa.field("key", pa.binary())).empty_table()


def recall_written(store: str, written: SealedBatch, since: int, epoch: int) -> None:
    """Remember the rows that this process has written to a table, if it remembers those before. So it reads no SST.

    Args:
        store: the store's address.
        written: all that `epoch` has written to the table.
        since: the epoch before. Requires: both are committed.
    """
    before, columns = _process_memory().get((store, written.table_id)), written.rows.remove_column(1)
    if before is None or before.epoch != since or before.rows.schema.names != columns.schema.names:
        return
    puts = pc.equal(written.rows.column(1), PUT)
    rows = _overlay_rows(before.rows, written.rows.column(0).chunks, [columns.filter(puts).cast(before.rows.schema)])
    if rows.nbytes <= MOST_BYTES:
        _process_memory().put((store, written.table_id), _Remembered(epoch, rows.combine_chunks()))


def _overlay_rows(rows: pa.Table, written: Sequence[pa.Array], new: Sequence[pa.Table]) -> pa.Table:
    """`rows` without those of the `written` keys, and the `new` ones, in key order."""
    if not written:
        return rows
    stale = pc.is_in(rows["key"], value_set=pa.concat_arrays([keys.cast(pa.binary()) for keys in written]))
    return pa.concat_tables([rows.filter(pc.invert(stale)), *new]).sort_by("key")
