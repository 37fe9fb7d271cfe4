"""StateTable: an actor's read-write face of one table within an epoch.

Writes stay in the MemTable until the barrier seals them; reads see them at once, merged over the rows committed before. What reads by key
find may come from the rows that this process remembers of the epoch before (row_cache.py); sealing adds what this epoch made of them.
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
from tussock.statestore.table.mem_table import MemRun, MemTable, strictly_ascending
from tussock.statestore.table.merge import Entries, concat_entries, merge_live, stored_entries
from tussock.statestore.table.row_cache import UnitRows
from tussock.statestore.table.schema import Found, KeyedRows, PrefixRows
from tussock.statestore.table.storage_table import StorageTable, vnode_ranges

_Rows = TypeVar("_Rows", pa.Array, pa.ChunkedArray, pa.Table)
SCAN_BATCH_ROWS = 64 * 1024
_DEEPER = 8  # a limited scan that met deletes asks again for this many times more rows


@dataclass(frozen=True, slots=True)
class Located:
    """Distinct primary keys in the order in which their table stores rows: reading and writing in it costs least."""

    order: Positions  # (n,) the place of each among the keys that were given
    keys: pa.BinaryArray  # (n,) storage keys, ascending
    as_given: bool = False  # they were given in this order

    def take(self, rows: _Rows) -> _Rows:
        """A column, or rows, aligned with the keys that were given, in this order."""
        return rows if self.as_given else rows.take(pa.array(self.order))


class StateTable:
    """Rows of one table: those at the version's epoch, and over them what this epoch has changed.

    A put is an upsert: it replaces the row of its key if there is one. A caller that must know whether there is one reads first.
    """

    def __init__(
        self, schema: TableSchema, store: HummockStore, epoch: int, vnode_count: int, remembered: UnitRows | None = None
    ) -> None:
        """A table in an actor's hands.

        Args:
            epoch: the version's, what is read below the MemTable.
            remembered: the rows of this table, as of `epoch`, that the process remembers of the actor's unit. None: it remembers nothing.

        Raises: TableSchemaError, UnsupportedTypeError.
        """
        self.stored = StorageTable(schema, store, epoch, vnode_count)
        self.layout = self.stored.layout
        self._mem = MemTable(self.layout.rows)
        self._remembered = remembered

    @property
    def name(self) -> str:
        return self.layout.schema.name

    # -- reads ----------------------------------------------------------------------------------------------------------------

    def get_rows(self, keys: pa.Table, again: bool = True) -> Found:
        """Rows by primary key.

        Args:
            keys: (n,) the key's columns in key order; repeats allowed.
            again: whether the next epochs are likely to ask for the same keys. If not, they are not worth remembering.

        Returns: rows and whether they were found, aligned with `keys`.
        Raises: WrongColumnsError, and what a read of the store raises.
        Cost: a search in the MemTable and in what is remembered, one batched read of the store for the keys that are in neither.
        """
        return self._read(self.layout.keys_of(keys), again)

    def locate(self, keys: pa.Table) -> Located:
        """Encode and sort primary keys, for `get_located` and `replace_located`.

        Args:
            keys: (n,) the key's columns in key order. Requires: no key twice, or that the caller looks: they are neighbours then.

        Raises: WrongColumnsError. Cost: one encoding and one sort.
        """
        encoded = self.layout.keys_of(keys)
        if strictly_ascending(encoded):
            return Located(np.arange(len(encoded)), encoded, as_given=True)
        order = probe_order(encoded)
        return Located(order, take_keys(encoded, order))

    def locate_ordered(self, keys: pa.Table) -> Located | None:
        """As `locate`, for keys that ascend, each once, as they are; None if they do not."""
        encoded = self.layout.keys_of(keys)
        return Located(np.arange(len(encoded)), encoded, as_given=True) if strictly_ascending(encoded) else None

    def get_located(self, located: Located, again: bool = True) -> Found:
        """As `get_rows`, aligned with the located keys."""
        return self._read(located.keys, again)

    def replace_located(
        self, located: Located, rows: pa.Table, before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]
    ) -> None:
        """Put the row of each located key where there is one `after`, delete it where there was one `before` only.

        Requires: `rows` (whole, aligned with the keys) have these very keys, also where they are deleted. Raises WrongColumnsError.
        Cost: none where all have rows; else a copy of those that do.
        """
        self._mem.write(located.keys, after, self.layout.as_rows(rows), before | after)

    def _read(self, encoded: pa.BinaryArray, again: bool) -> Found:
        runs = self._mem.runs()
        if not runs:
            return self._below(encoded, again)
        row, found = np.empty(len(encoded), np.int64), np.zeros(len(encoded), np.bool_)
        rest, parts, base = np.arange(len(encoded)), list[pa.Table](), 0
        for run in runs:
            places = run.find(encoded if len(rest) == len(encoded) else encoded.take(pa.array(rest)))
            hit = places >= 0
            if not hit.any():
                continue
            at, here, rest = places[hit], rest[hit], rest[~hit]
            found[here], row[here] = run.puts[at], base + np.arange(len(at))
            parts.append(run.rows.take(pa.array(at)))
            base += len(at)
        if not parts:
            return self._below(encoded, again)
        below = self._below(encoded.take(pa.array(rest)), again)
        found[rest], row[rest] = np.asarray(below.found), base + np.arange(len(rest))
        rows = pa.concat_tables([*parts, below.rows]).combine_chunks()
        return Found(rows.take(pa.array(row, mask=~found)), pa.array(found))

    def scan_prefix(self, prefixes: pa.Table, limit: int | None = None, reverse: bool = False) -> PrefixRows:
        """Rows whose key starts with each prefix; see StorageTable.scan_prefix. Exact also when changes hide stored rows.

        Cost: one batched read of the store; with a limit, another one deeper for prefixes whose first rows this epoch deleted.
        """
        encoded = self.layout.prefixes_of(prefixes)
        found = self.scan_between(encoded, successors(encoded), limit, reverse)
        return PrefixRows(found.index, found.rows)

    def scan_between(
        self, firsts: pa.BinaryArray, ends: pa.BinaryArray, limit: int | None = None, reverse: bool = False
    ) -> KeyedRows:
        """Rows between storage keys: from `firsts[i]` up to, not with, `ends[i]`.

        Args:
            firsts, ends: whole keys, prefixes as the layout encodes them, or what follows such (`successors`).
            limit: rows per pair at most.
            reverse: from the largest key down, the limit counted from there.

        Cost: as `scan_prefix`: blocks between the keys, up to the limit.
        """
        changed = self._mem.settle()
        first, end = changed.places(firsts, ends)
        if not (end > first).any():
            return KeyedRows(*self.stored.read_between(firsts, ends, limit, reverse))
        if (
            limit is not None and changed.puts.all()
        ):  # of rows that only come no more than these can be among the first ones
            first, end = (np.maximum(first, end - limit), end) if reverse else (first, np.minimum(end, first + limit))
        changes = _in_ranges(changed, first, end)
        deletes = np.bincount(changes.index[~changes.live], minlength=len(firsts))
        if limit is None or not deletes.any():
            stored = stored_entries(*_numbered(self.stored.read_between(firsts, ends, limit, reverse)))
        else:
            stored = self._read_past_deletes(firsts, ends, changed, deletes, limit, reverse)
        merged = merge_live(changes, stored, limit, reverse)
        return KeyedRows(pa.array(merged.index), merged.keys, merged.rows)

    def scan(self, vnodes: Iterable[int] | None = None, batch_rows: int = SCAN_BATCH_ROWS) -> Iterator[pa.Table]:
        """All rows, or those of `vnodes`, in key order (vnode, then primary key), as tables of at most `batch_rows` rows.

        What is written while the scan runs is not seen by it.
        """
        changed = self._mem.settle()
        for first, end in vnode_ranges(range(self.layout.vnode_count) if vnodes is None else vnodes):
            for rows in self._scan_range(changed, *self.layout.range_of(first, end), batch_rows):
                for start in range(0, rows.num_rows, batch_rows):
                    yield rows.slice(start, batch_rows)

    def is_empty(self) -> bool:
        """Whether there is certainly no row, as before a first load. Cost: no read."""
        return not len(self._mem.settle()) and not self.stored.holds_rows()

    # -- writes ---------------------------------------------------------------------------------------------------------------

    def insert_rows(self, rows: pa.Table) -> None:
        """Puts whole rows, columns in schema order; of rows with the same key the last one stays. Raises WrongColumnsError."""
        named = self.layout.as_rows(rows)
        self._mem.put(self.layout.keys_of_rows(named), named)

    def delete_rows(self, rows: pa.Table) -> None:
        """Deletes the rows' keys; a key that has no row is deleted without complaint. Raises WrongColumnsError."""
        named = self.layout.as_rows(rows)
        self._mem.delete(self.layout.keys_of_rows(named), named)

    def update_rows(self, old: pa.Table, new: pa.Table) -> None:
        """Replaces old[i] by new[i]; the key may change. All deletes come before all puts, so that rows may swap keys.

        Requires: `old` are the current rows: where new[i] is old[i] to the bit, nothing is written. Raises WrongColumnsError.
        """
        before, after = self.layout.as_rows(old, "old rows"), self.layout.as_rows(new, "new rows")
        if before.num_rows != after.num_rows:
            raise ValueError(
                f"update of {self.name!r}: {before.num_rows} old rows, {after.num_rows} new ones; they must pair up"
            )
        differs = pa.array(~same_rows(before, after))
        before, after = before.filter(differs), after.filter(differs)
        left, reached = self.layout.keys_of_rows(before), self.layout.keys_of_rows(after)
        moved = pc.not_equal(left, reached)
        self._mem.delete(left.filter(moved), before.filter(moved))
        self._mem.put(reached, after)

    def seal(self) -> SealedBatch | None:
        """The epoch's changes, sorted by key, ready for the store, and an empty MemTable; None when nothing was written.

        A deleted row keeps its key columns; its others are NULL. What is remembered of the table is from here on as of the epoch's end.
        """
        changed = self._mem.take_all()
        if self._remembered is not None:
            self._remembered.publish(changed)
            self._remembered = None
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

    def _below(self, keys: pa.BinaryArray, again: bool) -> Found:
        """Rows as of the epoch before."""
        if self._remembered is None or not (again or self._remembered.runs):
            return self.stored.read_keys(keys)
        return self._remembered.read(keys, self.stored.read_keys, again)

    # -- merging --------------------------------------------------------------------------------------------------------------

    def _read_past_deletes(
        self,
        firsts: pa.BinaryArray,
        ends: pa.BinaryArray,
        changed: MemRun,
        deletes: npt.NDArray[np.int64],
        limit: int,
        reverse: bool,
    ) -> Entries:
        """Stored rows between each pair of keys, as many as it takes for `limit` of them to survive this epoch's deletes."""
        parts: list[Entries] = []
        asked, wanted = limit, np.arange(len(firsts))
        while len(wanted):
            chosen = pa.array(wanted)
            index, keys, rows = _numbered(
                self.stored.read_between(firsts.take(chosen), ends.take(chosen), asked, reverse)
            )
            places = changed.find(keys)
            hidden = (places >= 0) & ~changed.puts[np.maximum(places, 0)]
            got = np.bincount(index, minlength=len(wanted))
            surviving = np.bincount(index[~hidden], minlength=len(wanted))
            short = (got == asked) & (surviving < limit)  # there may be more, and they are needed
            kept = np.flatnonzero(~short[index])
            parts.append(stored_entries(wanted[index], keys, rows).take(kept))
            wanted = wanted[short]
            if len(wanted):  # limit + deletes rows always suffice
                asked = min(asked * _DEEPER, limit + int(deletes[wanted].max()))
        return concat_entries(parts)

    def _scan_range(self, changed: MemRun, first: bytes, end: bytes, batch_rows: int) -> Iterator[pa.Table]:
        low, high = changed.between(first, end)
        for keyed in _gathered(self.stored.read_range(first, end), batch_rows):
            keys = keyed.column(0).combine_chunks()
            upto = changed.between(keys[-1].as_py() + b"\0", end)[0]  # changes up to and with the last stored key
            yield _merged(changed, low, upto, keys, keyed.remove_column(0))
            low = upto
        if low < high:
            nothing = self.layout.rows.empty_table()
            yield _merged(changed, low, high, pa.array([], pa.binary()), nothing)


def _merged(changed: MemRun, low: int, high: int, keys: pa.BinaryArray, rows: pa.Table) -> pa.Table:
    if low == high:
        return rows
    count, index = high - low, np.zeros(high - low, np.int64)
    changes = Entries(index, changed.keys.slice(low, count), changed.puts[low:high], changed.rows.slice(low, count))
    return merge_live(changes, stored_entries(np.zeros(len(keys), np.int64), keys, rows)).rows


def _in_ranges(changed: MemRun, first: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> Entries:
    """The changes at the places [first[i], end[i]) for each i, under index i."""
    counts = end - first
    index = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(index)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    chosen = pa.array(places)
    return Entries(index, changed.keys.take(chosen), changed.puts[places], changed.rows.take(chosen))


def _numbered(
    read: tuple[pa.Int64Array, pa.BinaryArray, pa.Table],
) -> tuple[npt.NDArray[np.int64], pa.BinaryArray, pa.Table]:
    index, keys, rows = read
    return np.asarray(index), keys, rows


def _gathered(batches: Iterator[pa.Table], least_rows: int) -> Iterator[pa.Table]:
    """The batches put together until they have `least_rows` rows; none is empty."""
    held: list[pa.Table] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(part.num_rows for part in held) >= least_rows:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)
