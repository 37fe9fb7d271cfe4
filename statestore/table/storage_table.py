"""StorageTable: the read-only face of a state table at a committed epoch, for batch reads.

A table is partitioned by vnode: its key order is vnode first, then primary key. Reads of several vnodes go down as few ranges of
neighbouring vnodes.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.table.key_order import EVERY_KEY, KeyBounds, rows_in_order
from tussock.statestore.table.schema import ChangedRows, Found, PrefixRows, TableLayout


class StorageTable:
    """Rows of one table as they stood at `epoch`."""

    def __init__(self, schema: TableSchema, store: HummockStore, epoch: int, vnode_count: int) -> None:
        """`store`: a version in which `epoch` is readable. Raises TableSchemaError, UnsupportedTypeError."""
        self.layout = TableLayout(schema, vnode_count)
        self.epoch = epoch
        self._store = store
        if self.layout.shape is not None:
            store.read_as(schema.table_id, self.layout.shape)

    def get_rows(self, keys: pa.Table, columns: Sequence[int] | None = None) -> Found:
        """Rows by primary key.

        Args:
            keys: (n,) the key's columns in key order; repeats allowed.
            columns: places of the row columns to return, in that order; all unless given.

        Raises: WrongColumnsError, and what a read of the store raises.
        Cost: one batched read.
        """
        return self.read_keys(self.layout.keys_of(keys), columns)

    def scan(self, columns: Sequence[int] | None = None, vnodes: Iterable[int] | None = None) -> Iterator[pa.Table]:
        """All rows, or those of `vnodes`, in key order (vnode, then primary key), as tables of at most a few blocks."""
        for first, end in vnode_ranges(range(self.layout.vnode_count) if vnodes is None else vnodes):
            for keyed in self.read_range(*self.layout.range_of(first, end), columns):
                yield keyed.remove_column(0)

    def scan_in_order(
        self,
        bounds: KeyBounds = EVERY_KEY,
        limit: int | None = None,
        reverse: bool = False,
        columns: Sequence[int] | None = None,
        vnodes: Iterable[int] | None = None,
    ) -> Iterator[pa.Table]:
        """All rows, or those of `vnodes`, in the order of the primary key, whatever their vnodes, as tables that are not empty.

        Args:
            bounds: only rows between these (key_order.key_bounds).
            limit: rows at most.
            reverse: from the largest key down, the limit counted from there.
            columns: as in `get_rows`.

        Cost: without a limit that of the rows between the bounds; with one, the first block of each vnode between the bounds, and the
        blocks that hold the rows. Memory: some 131,072 rows, or 256 of each vnode.
        """

        def read(
            firsts: pa.BinaryArray, ends: pa.BinaryArray, most: int
        ) -> tuple[pa.Int64Array, pa.BinaryArray, pa.Table]:
            return self.read_between(firsts, ends, most, reverse, columns)

        return rows_in_order(
            self.layout, range(self.layout.vnode_count) if vnodes is None else vnodes, read, bounds, limit, reverse
        )

    def scan_prefix(
        self, prefixes: pa.Table, limit: int | None = None, reverse: bool = False, columns: Sequence[int] | None = None
    ) -> PrefixRows:
        """Rows whose key starts with each prefix.

        Args:
            prefixes: the first k key columns, at least the distribution's; a singleton's may be one row without columns.
            limit: rows per prefix at most.
            reverse: from the largest key down, the limit counted from there.
            columns: as in `get_rows`.

        Raises: WrongColumnsError, and what a read of the store raises.
        """
        index, _, rows = self.read_prefixes(self.layout.prefixes_of(prefixes), limit, reverse, columns)
        return PrefixRows(index, rows)

    def changes(
        self,
        since: int,
        until: int | None = None,
        columns: Sequence[int] | None = None,
        vnodes: Iterable[int] | None = None,
    ) -> Iterator[ChangedRows]:
        """The net changes between two readable epochs: what, added to the rows at `since`, gives those at `until`.

        Args:
            since, until: since <= until; until None: this table's epoch. 0, the epoch of the empty store, gives every row.
            columns: places of the row columns to return; a change of others alone gives nothing.
            vnodes: only rows of these.

        Yields: batches of a few blocks, in each first rows at weight -1, then rows at +1. No key is in two batches.
        Raises: EpochExpiredError where `since` is below the floor and not pinned: compaction may have dropped old rows and deletes then.
        Cost: blocks that hold a row written in between, and one batched read of those keys at `since`; see HummockStore.changes.
        """
        until = self.epoch if until is None else until
        self._store.require_readable(since)
        self._store.require_readable(until)
        return self._changes(since, until, columns, range(self.layout.vnode_count) if vnodes is None else vnodes)

    def written(
        self, since: int, columns: Sequence[int] | None = None, vnodes: Iterable[int] | None = None
    ) -> Iterator[pa.Table]:
        """This epoch's rows that were written after `since`, an epoch as in `changes`: those that it gives at +1, and rows that were
        written again as they were.

        Raises: as `changes`. Cost: blocks that hold a row written since; no row is looked up, so it does not grow with the table.
        """
        schema, names = self._selected(columns), self._names(columns)
        for first, end in vnode_ranges(range(self.layout.vnode_count) if vnodes is None else vnodes):
            low, high = self.layout.range_of(first, end)
            for part in self._store.written(self.layout.schema.table_id, low, high, since, self.epoch, names):
                yield _conform(part.remove_column(0), schema, part.num_rows)

    def _changes(
        self, since: int, until: int, columns: Sequence[int] | None, vnodes: Iterable[int]
    ) -> Iterator[ChangedRows]:
        schema, names = self._selected(columns), self._names(columns)
        for first, end in vnode_ranges(vnodes):
            low, high = self.layout.range_of(first, end)
            for part in self._store.changes(self.layout.schema.table_id, low, high, since, until, names):
                rows = _conform(part.select(range(2, part.num_columns)), schema, part.num_rows)
                yield ChangedRows(part.column(1).combine_chunks(), rows)

    def holds_rows(self) -> bool:
        """Whether there may be a row: False is certain. Cost: no read."""
        return self._store.holds(self.layout.schema.table_id, self.epoch)

    def read_keys(self, keys: pa.BinaryArray, columns: Sequence[int] | None = None) -> Found:
        """As `get_rows`, by storage keys."""
        schema = self._selected(columns)
        if not len(keys):
            return Found(schema.empty_table(), pa.array([], pa.bool_()))
        found, rows = self._store.multi_get(self.layout.schema.table_id, keys, self.epoch, self._names(columns))
        return Found(_conform(rows, schema, len(keys)), found)

    def read_prefixes(
        self, prefixes: pa.BinaryArray, limit: int | None, reverse: bool, columns: Sequence[int] | None = None
    ) -> tuple[pa.Int64Array, pa.BinaryArray, pa.Table]:
        """As `scan_prefix`, by storage key prefixes: (place of the prefix, storage key, row) of each row."""
        index, keys, rows = self._store.scan_prefix(
            self.layout.schema.table_id, prefixes, self.epoch, limit, reverse, self._names(columns)
        )
        return index, keys.cast(pa.binary()), _conform(rows, self._selected(columns), len(keys))

    def read_between(
        self,
        firsts: pa.BinaryArray,
        ends: pa.BinaryArray,
        limit: int | None,
        reverse: bool,
        columns: Sequence[int] | None = None,
    ) -> tuple[pa.Int64Array, pa.BinaryArray, pa.Table]:
        """As `read_prefixes`, by the storage keys between which to read: `firsts[i]` inclusive, `ends[i]` exclusive."""
        names = self._names(columns)
        index, keys, rows = self._store.scan_between(
            self.layout.schema.table_id, firsts, ends, self.epoch, limit, reverse, names
        )
        return index, keys.cast(pa.binary()), _conform(rows, self._selected(columns), len(keys))

    def read_range(self, first: bytes, end: bytes, columns: Sequence[int] | None = None) -> Iterator[pa.Table]:
        """Rows with a storage key from `first` up to, not with, `end`, in key order: a column `key`, then the row's columns."""
        schema = self._selected(columns)
        for keyed in self._store.iter(self.layout.schema.table_id, first, end, self.epoch, self._names(columns)):
            rows = _conform(keyed.remove_column(0), schema, keyed.num_rows)
            yield rows.add_column(0, "key", keyed.column(0).cast(pa.binary()))

    def _selected(self, columns: Sequence[int] | None) -> pa.Schema:
        return (
            self.layout.rows if columns is None else pa.schema([self.layout.rows.field(column) for column in columns])
        )

    def _names(self, columns: Sequence[int] | None) -> list[str] | None:
        return None if columns is None else [self.layout.rows.field(column).name for column in columns]


def vnode_ranges(vnodes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The vnodes, in any order, as ascending ranges [first, end) that are as long as possible."""
    ordered = np.unique(np.fromiter(vnodes, np.int64))
    if len(ordered):
        breaks = np.flatnonzero(np.diff(ordered) > 1)
        firsts, lasts = ordered[np.r_[0, breaks + 1]], ordered[np.r_[breaks, len(ordered) - 1]]
        yield from zip(firsts.tolist(), (lasts + 1).tolist(), strict=True)


def _conform(rows: pa.Table, schema: pa.Schema, count: int) -> pa.Table:
    """Rows as the store gave them under the table's names; a store that has never seen the table knows no columns."""
    if rows.num_columns == 0 and len(schema):
        return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)
    return pa.table(rows.columns, schema=schema)
