"""StorageTable: read-only access to a state table at a committed epoch, for batch reads.

A table is partitioned by vnode: its storage order is vnode first, then primary key. Reads of several vnodes use as few
ranges of neighbouring vnodes as possible.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.hummock.unshared import TableAt, UnsharedKeys
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.named_rows import with_schema
from tussock.statestore.stacked import no_rows
from tussock.statestore.table.key_order import EVERY_KEY, KeyBounds, rows_in_order
from tussock.statestore.table.schema import ChangedRows, FoundRows, PrefixRows, table_layout


class StorageTable:
    """Rows of one table as of `epoch`."""

    def __init__(self, schema: TableSchema, store: HummockStore, epoch: int, vnode_count: int) -> None:
        """`store` reads a version in which `epoch` is readable. Raises TableSchemaError, UnsupportedTypeError."""
        self.layout = table_layout(schema, vnode_count)
        self.epoch = epoch
        self._store = store
        if self.layout.shape is not None:
            store.read_as(schema.table_id, self.layout.shape)

    @property
    def has_epochs_in_flight(self) -> bool:
        """Whether its rows include those of epochs that are not committed."""
        return not self._store.buffer.is_empty

    def get_rows(self, keys: pa.Table, columns: Sequence[int] | None = None) -> FoundRows:
        """Look up rows by primary key.

        Args:
            keys: (n,) the key's columns in key order; repeats allowed.
            columns: positions of the row columns to return, in this order; None: all.

        Raises: WrongColumnsError, and errors of store reads.
        Cost: one batched read.
        """
        return self.read_keys(self.layout.keys_of(keys), columns)

    def scan(self, columns: Sequence[int] | None = None, vnodes: Iterable[int] | None = None) -> Iterator[pa.Table]:
        """All rows, or the rows of `vnodes`, in key order (vnode, primary key), as tables of at most a few blocks."""
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
        """All rows, or the rows of `vnodes`, in primary key order across vnodes, as non-empty tables.

        Args:
            bounds: key range (key_order.key_bounds).
            limit: maximum of rows.
            reverse: greatest key first; the limit counts from there.
            columns: see `get_rows`.

        Cost: without a limit, the rows between the bounds. With a limit, the first block of each vnode between the
            bounds, and the blocks with the rows. Memory: about 131,072 rows, or 256 per vnode.
        """

        def read_ranges(
            firsts: pa.BinaryArray, ends: pa.BinaryArray, most: int
        ) -> tuple[pa.Int64Array, pa.BinaryArray, pa.Table]:
            return self.read_between(firsts, ends, most, reverse, columns)

        return rows_in_order(
            self.layout,
            range(self.layout.vnode_count) if vnodes is None else vnodes,
            read_ranges,
            bounds,
            limit,
            reverse,
        )

    def scan_prefix(
        self, prefixes: pa.Table, limit: int | None = None, reverse: bool = False, columns: Sequence[int] | None = None
    ) -> PrefixRows:
        """Find the rows whose keys start with each prefix.

        Args:
            prefixes: the first k key columns, at least the distribution's columns; for a singleton, one row without
                columns is possible.
            limit: maximum of rows per prefix.
            reverse: greatest key first; the limit counts from there.
            columns: see `get_rows`.

        Raises: WrongColumnsError, and errors of store reads.
        """
        index, _, rows = self.read_prefixes(self.layout.prefixes_of(prefixes), limit, reverse, columns)
        return PrefixRows(index, rows)

    def read_changes(
        self,
        since: int,
        until: int | None = None,
        columns: Sequence[int] | None = None,
        vnodes: Iterable[int] | None = None,
    ) -> Iterator[ChangedRows]:
        """The net changes between two readable epochs. Added to the rows at `since`, they give the rows at `until`.

        Args:
            since, until: since <= until; until None: this table's epoch. 0, the epoch of the empty store, yields every
                row.
            columns: positions of the row columns to return; changes of other columns only are omitted.
            vnodes: only rows of these vnodes.

        Yields: batches of a few blocks; rows with weight -1 come first, then rows with +1. Each key is in one batch
            only.
        Raises: EpochExpiredError if `since` is below the floor and not pinned, because compaction may have dropped old
            rows and deletes.
        Cost: the blocks with a row written in between, and one batched read of their keys at `since`; see
            HummockStore.read_changes.
        """
        until = self.epoch if until is None else until
        self._store.require_readable(since)
        self._store.require_readable(until)
        return self._read_changes(since, until, columns, range(self.layout.vnode_count) if vnodes is None else vnodes)

    def _read_changes(
        self, since: int, until: int, columns: Sequence[int] | None, vnodes: Iterable[int]
    ) -> Iterator[ChangedRows]:
        schema, names = self._selected_schema(columns), self._column_names(columns)
        for first, end in vnode_ranges(vnodes):
            low, high = self.layout.range_of(first, end)
            for part in self._store.read_changes(self.layout.schema.table_id, low, high, since, until, names):
                rows = _conform_rows(part.select(range(2, part.num_columns)), schema, part.num_rows)
                yield ChangedRows(part.column(1).combine_chunks(), rows)

    def find_unshared(self, other: "StorageTable") -> UnsharedKeys | None:
        """Find the keys whose rows may differ in `other`, which may be in another store, or at another epoch.

        None if the tables share no SST, because they have other table ids.

        Requires: equal layouts. Cost: see `UnsharedKeys`.
        """
        if self.layout.schema.table_id != other.layout.schema.table_id:
            return None
        one, two = (TableAt(side._store, side.layout.schema.table_id, side.epoch) for side in (self, other))
        return UnsharedKeys(one, two)

    def holds_rows(self) -> bool:
        """Whether the table may have rows; False is certain. Cost: no read."""
        return self._store.may_have_rows(self.layout.schema.table_id, self.epoch)

    def read_keys(self, keys: pa.BinaryArray, columns: Sequence[int] | None = None, once: bool = False) -> FoundRows:
        """`get_rows` by storage keys. `once`: later reads look other keys up."""
        schema = self._selected_schema(columns)
        if not len(keys):
            return FoundRows(no_rows(schema), pa.array([], pa.bool_()))
        names = self._column_names(columns)
        exists, rows = self._store.multi_get(self.layout.schema.table_id, keys, self.epoch, names, once=once)
        return FoundRows(_conform_rows(rows, schema, len(keys)), exists)

    def read_prefixes(
        self, prefixes: pa.BinaryArray, limit: int | None, reverse: bool, columns: Sequence[int] | None
    ) -> tuple[pa.Int64Array, pa.BinaryArray, pa.Table]:
        """`scan_prefix` by storage key prefixes. Returns (position of the prefix, storage key, row) of each row."""
        index, keys, rows = self._store.scan_prefix(
            self.layout.schema.table_id, prefixes, self.epoch, limit, reverse, self._column_names(columns)
        )
        return index, keys.cast(pa.binary()), _conform_rows(rows, self._selected_schema(columns), len(keys))

    def read_between(
        self,
        firsts: pa.BinaryArray,
        ends: pa.BinaryArray,
        limit: int | None,
        reverse: bool,
        columns: Sequence[int] | None = None,
    ) -> tuple[pa.Int64Array, pa.BinaryArray, pa.Table]:
        """Like `read_prefixes`, for ranges of storage keys: `firsts[i]` inclusive, `ends[i]` exclusive."""
        names = self._column_names(columns)
        index, keys, rows = self._store.scan_between(
            self.layout.schema.table_id, firsts, ends, self.epoch, limit, reverse, names
        )
        return index, keys.cast(pa.binary()), _conform_rows(rows, self._selected_schema(columns), len(keys))

    def read_range(self, first: bytes, end: bytes, columns: Sequence[int] | None = None) -> Iterator[pa.Table]:
        """Rows with storage keys between `first` (inclusive) and `end` (exclusive): `key`, then the row's columns."""
        schema = self._selected_schema(columns)
        for keyed in self._store.iter_rows(
            self.layout.schema.table_id, first, end, self.epoch, self._column_names(columns)
        ):
            rows = _conform_rows(keyed.remove_column(0), schema, keyed.num_rows)
            yield rows.add_column(0, "key", keyed.column(0).cast(pa.binary()))

    def _selected_schema(self, columns: Sequence[int] | None) -> pa.Schema:
        return (
            self.layout.rows if columns is None else pa.schema([self.layout.rows.field(column) for column in columns])
        )

    def _column_names(self, columns: Sequence[int] | None) -> list[str] | None:
        return None if columns is None else [self.layout.rows.field(column).name for column in columns]


def vnode_ranges(vnodes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Group vnodes, in any order, into ascending ranges [first, end) of maximum length."""
    ordered = np.unique(np.fromiter(vnodes, np.int64))
    if len(ordered):
        breaks = np.flatnonzero(np.diff(ordered) > 1)
        firsts, lasts = ordered[np.r_[0, breaks + 1]], ordered[np.r_[breaks, len(ordered) - 1]]
        yield from zip(firsts.tolist(), (lasts + 1).tolist(), strict=True)


def _conform_rows(rows: pa.Table, schema: pa.Schema, count: int) -> pa.Table:
    """Name the store's columns by the table's schema. A store without rows of the table may return no columns."""
    if rows.num_columns == 0 and len(schema):
        return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)
    return with_schema(rows, schema)
