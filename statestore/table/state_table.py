"""StateTable: an actor's read-write access to one table within an epoch.

Writes stay in the MemTable until the barrier seals them. Reads see them at once, merged over the rows committed before.
Reads by key can use rows that this process remembers from the epoch before (row_cache.py); sealing updates these rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.sorted_keys import Positions, probe_order, successors, take_keys
from tussock.statestore.hummock.sst_format import DELETE, PUT
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.positions import expand_ranges
from tussock.statestore.stacked import no_rows, take_rows
from tussock.statestore.table.mem_table import MemRun, MemTable, strictly_ascending
from tussock.statestore.table.merge import Entries, concat_entries, merge_live, stored_entries
from tussock.statestore.table.row_cache import UnitRows
from tussock.statestore.table.schema import FoundRows, KeyedRows, PrefixRows
from tussock.statestore.table.storage_table import StorageTable, vnode_ranges

_Rows = TypeVar("_Rows", pa.Array, pa.ChunkedArray, pa.Table)
SCAN_BATCH_ROWS = 64 * 1024
_READ_AHEAD = 4_096  # rows in all that a limited scan may read beyond its limits, if this epoch has deleted some
_DEEPER = 8  # factor for further rows if deletes hid rows of a limited scan


@dataclass(frozen=True, slots=True)
class LocatedKeys:
    """Distinct primary keys in the table's storage order, which is the cheapest order for reads and writes."""

    order: Positions  # (n,) the input position of each key
    keys: pa.BinaryArray  # (n,) storage keys, ascending
    as_given: bool = False  # True: the input was in this order

    def reorder_rows(self, rows: _Rows) -> _Rows:
        """Bring a column or rows from the input order of the keys into this order."""
        if self.as_given:
            return rows
        return take_rows(rows, self.order) if isinstance(rows, pa.Table) else rows.take(pa.array(self.order))


class StateTable:
    """Rows of one table: those at the version's epoch, overlaid with this epoch's changes.

    A put is an upsert and replaces an existing row of its key. A caller that must know whether a row exists reads
    first.
    """

    def __init__(
        self, schema: TableSchema, store: HummockStore, epoch: int, vnode_count: int, remembered: UnitRows | None = None
    ) -> None:
        """Open a table for an actor.

        Args:
            epoch: the version's epoch, which is read below the MemTable.
            remembered: rows of this table, as of `epoch`, that the process remembers for the actor's unit, or None.

        Raises: TableSchemaError, UnsupportedTypeError.
        """
        self.stored = StorageTable(schema, store, epoch, vnode_count)
        self.layout = self.stored.layout
        self._mem = MemTable(self.layout.rows)
        self._remembered = remembered

    @property
    def name(self) -> str:
        return self.layout.schema.name

    # -- reads --------------------------------------------------------------------------------------------------------

    def get_rows(self, keys: pa.Table, again: bool = True) -> FoundRows:
        """Look up rows by primary key.

        Args:
            keys: (n,) the key's columns in key order; repeats allowed.
            again: whether the next epochs will probably request the same keys. If not, the rows are not remembered.

        Returns: rows, and whether they were found, aligned with `keys`.
        Raises: WrongColumnsError, and errors of store reads.
        Cost: a search in the MemTable and the remembered rows; one batched read from the store for the remaining keys.
        """
        return self._read_rows(self.layout.keys_of(keys), again)

    def locate_keys(self, keys: pa.Table) -> LocatedKeys:
        """Encode and sort primary keys, for `get_located` and `replace_located`.

        Args:
            keys: (n,) the key's columns in key order. Requires: distinct keys, or a caller that checks; equal keys
                become neighbours.

        Raises: WrongColumnsError. Cost: one encoding and one sort.
        """
        encoded = self.layout.keys_of(keys)
        if strictly_ascending(encoded):
            return LocatedKeys(np.arange(len(encoded)), encoded, as_given=True)
        order = probe_order(encoded)
        return LocatedKeys(order, take_keys(encoded, order))

    def locate_ordered(self, keys: pa.Table) -> LocatedKeys | None:
        """`locate_keys` for keys that are already distinct and ascending; None if they are not."""
        encoded = self.layout.keys_of(keys)
        return LocatedKeys(np.arange(len(encoded)), encoded, as_given=True) if strictly_ascending(encoded) else None

    def get_located(self, located: LocatedKeys, again: bool = True) -> FoundRows:
        """`get_rows`, aligned with the located keys."""
        return self._read_rows(located.keys, again)

    def replace_located(
        self, located: LocatedKeys, rows: pa.Table, before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]
    ) -> None:
        """Put the row of each located key that exists `after`, and delete keys that existed only `before`.

        Requires: `rows` (whole, aligned with the keys) contain exactly these keys, also for deleted rows.
        Raises: WrongColumnsError.
        Cost: none if all keys have rows; otherwise a copy of the rows to write.
        """
        self._mem.write_touched(located.keys, after, self.layout.as_rows(rows), before | after)

    def _read_rows(self, encoded: pa.BinaryArray, again: bool) -> FoundRows:
        runs = self._mem.sorted_runs()
        if not runs:
            return self._read_stored(encoded, again)
        row, exists = np.empty(len(encoded), np.int64), np.zeros(len(encoded), np.bool_)
        rest, parts, base = np.arange(len(encoded)), list[pa.Table](), 0
        for run in runs:
            places = run.find_keys(encoded if len(rest) == len(encoded) else encoded.take(pa.array(rest)))
            hit = places >= 0
            if not hit.any():
                continue
            at, here, rest = places[hit], rest[hit], rest[~hit]
            exists[here], row[here] = run.puts[at], base + np.arange(len(at))
            parts.append(take_rows(run.rows, at))
            base += len(at)
        if not parts:
            return self._read_stored(encoded, again)
        if len(rest):
            below = self._read_stored(encoded.take(pa.array(rest)), again)
            exists[rest], row[rest] = np.asarray(below.found), base + np.arange(len(rest))
            parts.append(below.rows)
        rows = pa.concat_tables(parts).combine_chunks()
        if exists.all():
            return FoundRows(take_rows(rows, row), pa.array(exists))
        return FoundRows(take_rows(rows, pa.array(row, mask=~exists)), pa.array(exists))

    def scan_prefix(self, prefixes: pa.Table, limit: int | None = None, reverse: bool = False) -> PrefixRows:
        """Rows whose keys start with each prefix; see StorageTable.scan_prefix. Exact even if changes hide stored rows.

        Cost: one batched read from the store. With a limit, deeper reads for prefixes whose first rows this epoch
            deleted.
        """
        encoded = self.layout.prefixes_of(prefixes)
        scanned_rows = self.scan_between(encoded, successors(encoded), limit, reverse)
        return PrefixRows(scanned_rows.index, scanned_rows.rows)

    def scan_between(
        self, firsts: pa.BinaryArray, ends: pa.BinaryArray, limit: int | None = None, reverse: bool = False
    ) -> KeyedRows:
        """Rows between storage keys, from `firsts[i]` (inclusive) to `ends[i]` (exclusive).

        Args:
            firsts, ends: whole keys, prefixes as encoded by the layout, or successors of either (`successors`).
            limit: maximum of rows per pair.
            reverse: greatest key first; the limit counts from there.

        Cost: like `scan_prefix`: the blocks between the keys, up to the limit.
        """
        changed = self._mem.merge_all()
        first, end = changed.positions_between(firsts, ends)
        if not (end > first).any():
            return KeyedRows(*self.stored.read_between(firsts, ends, limit, reverse))
        # Without deletes, no more than `limit` changes of a pair can be among its first rows.
        if limit is not None and changed.puts.all():
            first, end = (np.maximum(first, end - limit), end) if reverse else (first, np.minimum(end, first + limit))
        changes = _in_ranges(changed, first, end)
        deletes = np.bincount(changes.index[~changes.live], minlength=len(firsts))
        if limit is None or not deletes.any():
            stored = stored_entries(*_with_numpy_index(self.stored.read_between(firsts, ends, limit, reverse)))
        else:
            stored = self._read_past_deletes(firsts, ends, changed, deletes, limit, reverse)
        merged = merge_live(changes, stored, limit, reverse)
        return KeyedRows(pa.array(merged.index), merged.keys, merged.rows)

    def scan(self, vnodes: Iterable[int] | None = None, batch_rows: int = SCAN_BATCH_ROWS) -> Iterator[pa.Table]:
        """All rows, or the rows of `vnodes`, in key order (vnode, then primary key), in tables of up to `batch_rows`
        rows.

        Does not see rows that are written during the scan.
        """
        changed = self._mem.merge_all()
        for first, end in vnode_ranges(range(self.layout.vnode_count) if vnodes is None else vnodes):
            for rows in self._scan_range(changed, *self.layout.range_of(first, end), batch_rows):
                for start in range(0, rows.num_rows, batch_rows):
                    yield rows.slice(start, batch_rows)

    def is_empty(self) -> bool:
        """Whether the table is certainly empty, as before a first load. Cost: no read."""
        return not len(self._mem.merge_all()) and not self.stored.holds_rows()

    # -- writes -------------------------------------------------------------------------------------------------------

    def insert_rows(self, rows: pa.Table) -> None:
        """Put whole rows with columns in schema order. For equal keys, the last row wins. Raises WrongColumnsError."""
        named = self.layout.as_rows(rows)
        self._mem.put(self.layout.keys_of_rows(named), named)

    def delete_rows(self, rows: pa.Table) -> None:
        """Delete the rows' keys. Keys without a row are accepted. Raises WrongColumnsError."""
        named = self.layout.as_rows(rows)
        self._mem.delete(self.layout.keys_of_rows(named), named)

    def update_rows(self, old: pa.Table, new: pa.Table) -> None:
        """Replace old[i] by new[i]; the key may change. All deletes precede all puts, so rows can swap keys.

        Requires: `old` are the current rows. Pairs of bit-identical rows are not written. Raises WrongColumnsError.
        """
        before, after = self.layout.as_rows(old, "old rows"), self.layout.as_rows(new, "new rows")
        if before.num_rows != after.num_rows:
            raise ValueError(
                f"update of {self.name!r}: {before.num_rows} old rows, but {after.num_rows} new ones; they must pair up"
            )
        differs = pa.array(~same_rows(before, after))
        before, after = before.filter(differs), after.filter(differs)
        left, reached = self.layout.keys_of_rows(before), self.layout.keys_of_rows(after)
        moved = pc.not_equal(left, reached)
        self._mem.delete(left.filter(moved), before.filter(moved))
        self._mem.put(reached, after)

    def seal_changes(self) -> SealedBatch | None:
        """Return the epoch's changes, sorted by key, and empty the MemTable; None if nothing was written.

        A deleted row keeps its key columns; its other columns are NULL. Publishes the remembered rows as of the epoch's
        end.
        """
        changed = self._mem.take_all()
        if self._remembered is not None:
            self._remembered.publish_rows(changed)
            self._remembered = None
        return self._sealed_batch(changed)

    @property
    def written_rows(self) -> int:
        """The number of writes that are not sealed. Repeated writes of a key may count."""
        return len(self._mem)

    def seal_part(self) -> SealedBatch | None:
        """Return the changes so far, sorted by key, and empty the MemTable, so that it does not grow further.

        Requires: nothing reads or writes the changed keys again in this epoch, and the table has forgotten its rows.
        """
        assert self._remembered is None
        return self._sealed_batch(self._mem.take_all())

    def forget_rows(self) -> None:
        """Remember no rows of this epoch for the next one."""
        self._remembered = None

    def sealed_so_far(self) -> SealedBatch | None:
        """Return what `seal_changes` would return, and keep the changes, so that further ones can follow."""
        return self._sealed_batch(self._mem.merge_all())

    def with_store(self, store: HummockStore) -> "StateTable":
        """Return the table with this epoch's changes over another store.

        Requires: both stores have the same rows at the version's epoch. Afterwards use only the returned table.
        """
        moved = StateTable(self.layout.schema, store, self.stored.epoch, self.layout.vnode_count)
        moved._mem = self._mem
        return moved

    def _sealed_batch(self, changed: MemRun) -> SealedBatch | None:
        if not len(changed):
            return None
        deleted = pa.array(~changed.puts)
        columns = [
            column if place in self.layout.key_columns or not deleted.true_count else pc.if_else(deleted, None, column)
            for place, column in enumerate(changed.rows.columns)
        ]
        ops = pa.array(np.where(changed.puts, PUT, DELETE).astype(np.uint8))
        rows = pa.table([changed.keys, ops, *columns], names=["key", "op", *self.layout.rows.names])
        return SealedBatch(self.layout.schema.table_id, rows)

    def _read_stored(self, keys: pa.BinaryArray, again: bool) -> FoundRows:
        """Rows as of the epoch before."""
        if self._remembered is None or not (again or self._remembered.runs):
            return self.stored.read_keys(keys)
        return self._remembered.read_rows(keys, self.stored.read_keys, again)

    # -- merging ------------------------------------------------------------------------------------------------------

    def _read_past_deletes(
        self,
        firsts: pa.BinaryArray,
        ends: pa.BinaryArray,
        changed: MemRun,
        deletes: npt.NDArray[np.int64],
        limit: int,
        reverse: bool,
    ) -> Entries:
        """Read stored rows between each pair of keys until `limit` of them survive this epoch's deletes."""
        parts: list[Entries] = []
        # A read costs more than some rows, so the first one returns those that deletes probably need.
        asked = min(limit + int(deletes.max()), max(2 * limit, _READ_AHEAD // len(firsts)))
        wanted = np.arange(len(firsts))
        while len(wanted):
            chosen = pa.array(wanted)
            index, keys, rows = _with_numpy_index(
                self.stored.read_between(firsts.take(chosen), ends.take(chosen), asked, reverse)
            )
            places = changed.find_keys(keys)
            hidden = (places >= 0) & ~changed.puts[np.maximum(places, 0)]
            read_counts = np.bincount(index, minlength=len(wanted))
            surviving = np.bincount(index[~hidden], minlength=len(wanted))
            short = (read_counts == asked) & (surviving < limit)  # more rows may exist and are needed
            needed = np.flatnonzero(~short[index])
            parts.append(stored_entries(wanted[index], keys, rows).take(needed))
            wanted = wanted[short]
            if len(wanted):  # `limit` plus the number of deletes always suffices
                asked = min(asked * _DEEPER, limit + int(deletes[wanted].max()))
        return concat_entries(parts)

    def _scan_range(self, changed: MemRun, first: bytes, end: bytes, batch_rows: int) -> Iterator[pa.Table]:
        low, high = changed.position_range(first, end)
        for keyed in _gather_batches(self.stored.read_range(first, end), batch_rows):
            keys = keyed.column(0).combine_chunks()
            upto = changed.position_range(keys[-1].as_py() + b"\0", end)[
                0
            ]  # changes up to and including the last stored key
            yield _merge_changed(changed, low, upto, keys, keyed.remove_column(0))
            low = upto
        if low < high:
            nothing = no_rows(self.layout.rows)
            yield _merge_changed(changed, low, high, pa.array([], pa.binary()), nothing)


def _merge_changed(changed: MemRun, low: int, high: int, keys: pa.BinaryArray, rows: pa.Table) -> pa.Table:
    if low == high:
        return rows
    count, index = high - low, np.zeros(high - low, np.int64)
    changes = Entries(index, changed.keys.slice(low, count), changed.puts[low:high], changed.rows.slice(low, count))
    return merge_live(changes, stored_entries(np.zeros(len(keys), np.int64), keys, rows)).rows


def _in_ranges(changed: MemRun, first: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> Entries:
    """The changes at the positions [first[i], end[i]) for each i, with index i."""
    counts = end - first
    index = np.repeat(np.arange(len(counts)), counts)
    places = expand_ranges(first, counts)
    chosen = pa.array(places)
    return Entries(index, changed.keys.take(chosen), changed.puts[places], changed.rows.take(chosen))


def _with_numpy_index(
    read: tuple[pa.Int64Array, pa.BinaryArray, pa.Table],
) -> tuple[npt.NDArray[np.int64], pa.BinaryArray, pa.Table]:
    index, keys, rows = read
    return np.asarray(index), keys, rows


def _gather_batches(batches: Iterator[pa.Table], least_rows: int) -> Iterator[pa.Table]:
    """Combine batches until they have `least_rows` rows. Yields no empty table."""
    gathered: list[pa.Table] = []
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
        if sum(part.num_rows for part in gathered) >= least_rows:
            yield pa.concat_tables(gathered)
            gathered = []
    if gathered:
        yield pa.concat_tables(gathered)
