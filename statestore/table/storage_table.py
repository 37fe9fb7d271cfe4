"""StorageTable: the read-only face of a state table at a committed epoch, for batch reads.

A table is partitioned by vnode: its key order is vnode first, then primary key. Reads of several vnodes go down as few ranges of
neighbouring vnodes; `scan_ordered` merges them into primary key order.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.hummock.key import HEADER_BYTES
from statestore.hummock.store import HummockStore
from statestore.meta.catalog import TableSchema
from statestore.table.schema import Found, PrefixRows, TableLayout


class StorageTable:
    """Rows of one table as they stood at `epoch`."""

    def __init__(self, schema: TableSchema, store: HummockStore, epoch: int, vnode_count: int) -> None:
        """`store`: a version in which `epoch` is readable. Raises TableSchemaError, UnsupportedTypeError."""
        self.layout = TableLayout(schema, vnode_count)
        self.epoch = epoch
        self._store = store

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

    def scan_ordered(self, columns: Sequence[int] | None = None, vnodes: Iterable[int] | None = None) -> Iterator[pa.Table]:
        """As `scan`, but in primary key order: the vnodes merged. Cost: a batch per vnode in memory, one sort of each row."""
        wanted = range(self.layout.vnode_count) if vnodes is None else sorted(set(vnodes))
        runs = [_Run(self.read_range(*self.layout.range_of(vnode, vnode + 1), columns)) for vnode in wanted]
        runs = [run for run in runs if run.fill()]
        while runs:
            # Up to the smallest last key in memory no run can bring anything more.
            end = min(run.last for run in runs)
            yield _sorted([run.cut(end) for run in runs]).remove_column(0)
            runs = [run for run in runs if run.fill()]

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

    def read_range(self, first: bytes, end: bytes, columns: Sequence[int] | None = None) -> Iterator[pa.Table]:
        """Rows with a storage key from `first` up to, not with, `end`, in key order: a column `key`, then the row's columns."""
        schema = self._selected(columns)
        for keyed in self._store.iter(self.layout.schema.table_id, first, end, self.epoch, self._names(columns)):
            rows = _conform(keyed.remove_column(0), schema, keyed.num_rows)
            yield rows.add_column(0, "key", keyed.column(0).cast(pa.binary()))

    def _selected(self, columns: Sequence[int] | None) -> pa.Schema:
        return self.layout.rows if columns is None else pa.schema([self.layout.rows.field(column) for column in columns])

    def _names(self, columns: Sequence[int] | None) -> list[str] | None:
        return None if columns is None else [self.layout.rows.field(column).name for column in columns]


def vnode_ranges(vnodes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The vnodes, in any order, as ascending ranges [first, end) that are as long as possible."""
    ordered = np.unique(np.fromiter(vnodes, np.int64))
    if len(ordered):
        breaks = np.flatnonzero(np.diff(ordered) > 1)
        firsts, lasts = ordered[np.r_[0, breaks + 1]], ordered[np.r_[breaks, len(ordered) - 1]]
        yield from zip(firsts.tolist(), (lasts + 1).tolist(), strict=True)


class _Run:
    """One vnode's rows on their way through `scan_ordered`: what is in memory, keyed by primary key alone."""

    def __init__(self, batches: Iterator[pa.Table]) -> None:
        self._batches = batches
        self._held: pa.Table | None = None
        self.last = b""

    def fill(self) -> bool:
        """Has rows in memory, or gets some; False when there are none left."""
        while self._held is None or self._held.num_rows == 0:
            batch = next(self._batches, None)
            if batch is None:
                return False
            self._held = batch.set_column(0, "key", pc.binary_replace_slice(batch.column(0), 0, HEADER_BYTES, b""))
        self.last = self._held.column(0)[-1].as_py()
        return True

    def cut(self, end: bytes) -> pa.Table:
        """Takes out the rows up to and with key `end`."""
        assert self._held is not None  # fill() came before
        keys = self._held.column(0).combine_chunks()
        count = int(pc.search_sorted(keys, pa.scalar(end, keys.type), side="right").as_py())
        taken, self._held = self._held.slice(0, count), self._held.slice(count)
        return taken


def _sorted(parts: list[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(parts).combine_chunks()
    return rows.take(pc.sort_indices(rows.column(0)))


def _conform(rows: pa.Table, schema: pa.Schema, count: int) -> pa.Table:
    """Rows as the store gave them under the table's names; a store that has never seen the table knows no columns."""
    if rows.num_columns == 0 and len(schema):
        return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)
    return pa.table(rows.columns, schema=schema)
