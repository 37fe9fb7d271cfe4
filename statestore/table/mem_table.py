"""MemTable: an epoch's changes to one table, typed and columnar. The last operation on a key wins.

Writes are appended and sorted at the next read. An executor that alternates batches of writes and reads pays one sort
per batch, never one per row. Sorted batches are kept as runs, newest first, each more than twice as long as the one
before it. n small batches therefore cost O(n log n) in total; a single run would be sorted n times.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.sorted_keys import (
    Probes,
    SortedKeys,
    above_previous,
    differs_from_previous,
    probe_order,
    take_keys,
)
from tussock.statestore.stacked import no_rows
from tussock.statestore.table.columns import take_columns

Positions = npt.NDArray[np.int64]

_NO_KEYS, _NO_PUTS = pa.array([], pa.binary()), np.empty(0, np.bool_)
_SAMPLE = 256  # keys; enough to detect most unsorted arrays


@dataclass(frozen=True)
class MemRun:
    """Changes in key order, one per key; while pending, in write order."""

    keys: pa.BinaryArray  # (n,) strictly ascending
    puts: npt.NDArray[np.bool_]  # (n,) True: the row exists; False: the key is deleted
    rows: pa.Table  # (n,) whole rows; for a deleted key, the deleted row
    ordered: bool = False  # True: the keys are known to be distinct and ascending; False: unknown

    def __len__(self) -> int:
        return len(self.puts)

    @cached_property
    def sorted_keys(self) -> SortedKeys:
        """The keys, prepared for searching."""
        return SortedKeys(self.keys)

    def find_keys(self, keys: pa.BinaryArray) -> Positions:
        """The position of each key here, or -1. Cost: one binary search per key; cheapest if `keys` ascend."""
        if not len(self) or not len(keys):
            return np.full(len(keys), -1, np.int64)
        places, exists = self.sorted_keys.find_probes(Probes(keys), slice(None))
        return np.where(exists, places, -1)

    def positions_between(self, firsts: pa.BinaryArray, ends: pa.BinaryArray) -> tuple[Positions, Positions]:
        """For each i, the positions [first, end) of the keys from `firsts[i]` up to (excluding) `ends[i]`."""
        low = _search_keys(self.keys, firsts)
        return low, np.maximum(low, _search_keys(self.keys, ends))

    def position_range(self, first: bytes, end: bytes) -> tuple[int, int]:
        """The positions [first, end) of the keys from `first` (inclusive) to `end` (exclusive)."""
        low, high = _search_keys(self.keys, pa.array([first, end], pa.binary()))
        return int(low), int(high)


class MemTable:
    """The changes of one table in one epoch; see the module docstring."""

    def __init__(self, rows: pa.Schema) -> None:
        """`rows`: the schema of the table's rows."""
        self._rows = rows
        self._runs: list[MemRun] = []  # newest first; for equal keys the newer run wins
        self._pending: list[MemRun] = []  # in write order; keys unsorted, repeats allowed

    def __len__(self) -> int:
        """The number of changes, before those of equal keys in different batches are merged."""
        return sum(map(len, self._runs)) + sum(map(len, self._pending))

    def put(self, keys: pa.BinaryArray, rows: pa.Table) -> None:
        """Insert or replace rows by key. In a batch, the last row of a key wins."""
        self._append_changes(keys, rows, True)

    def delete(self, keys: pa.BinaryArray, rows: pa.Table) -> None:
        """Delete keys. `rows` are the deleted rows."""
        self._append_changes(keys, rows, False)

    def write_touched(
        self, keys: pa.BinaryArray, puts: npt.NDArray[np.bool_], rows: pa.Table, touched: npt.NDArray[np.bool_]
    ) -> None:
        """Put or delete the touched keys. All arguments are aligned with `keys`.

        Requires: `keys` are distinct and ascending.
        """
        if touched.all():
            self._add_pending(MemRun(keys, puts, rows, ordered=True))
        else:
            chosen = pa.array(touched)
            self._add_pending(MemRun(keys.filter(chosen), puts[touched], rows.filter(chosen), ordered=True))

    def sorted_runs(self) -> list[MemRun]:
        """All changes so far as a few sorted runs, newest first.

        Cost: none without a write since the last call. Otherwise a sort of the new changes, and merges of runs that are
        no longer twice as long as their predecessors.
        """
        if self._pending:
            pending, self._pending = self._pending, []
            self._runs.insert(0, _last_of_each_key(pending))
            while len(self._runs) > 1 and 2 * len(self._runs[0]) >= len(self._runs[1]):
                self._merge_newest(2)
        return self._runs

    def merge_all(self) -> MemRun:
        """All changes so far as one run. Cost: as `sorted_runs`, and a merge."""
        if len(self.sorted_runs()) > 1:
            self._merge_newest(len(self._runs))
        return self._runs[0] if self._runs else MemRun(_NO_KEYS, _NO_PUTS, no_rows(self._rows))

    def _merge_newest(self, count: int) -> None:
        """Merge the newest `count` runs into one."""
        newest_last = self._runs[:count][::-1]
        del self._runs[:count]
        self._runs.insert(0, _last_of_each_key(newest_last))

    def take_all(self) -> MemRun:
        """Return all changes, sorted, and empty the MemTable."""
        taken, self._runs = self.merge_all(), []
        return taken

    def _append_changes(self, keys: pa.BinaryArray, rows: pa.Table, put: bool) -> None:
        self._add_pending(MemRun(keys, np.full(len(keys), put), rows))

    def _add_pending(self, run: MemRun) -> None:
        if len(run):
            self._pending.append(run)


def _last_of_each_key(runs: list[MemRun]) -> MemRun:
    """Merge runs, oldest first, into key order, and keep the last operation per key.

    Empties the list, so that its runs can be released early.
    """
    if len(runs) == 1 and runs[0].ordered:
        return replace(runs[0], rows=runs[0].rows.combine_chunks())
    keys = pa.concat_arrays([run.keys for run in runs]) if len(runs) > 1 else runs[0].keys
    puts = np.concatenate([run.puts for run in runs])
    tables = [run.rows for run in runs]
    runs.clear()
    if strictly_ascending(keys):
        return MemRun(keys, puts, pa.concat_tables(tables).combine_chunks(), ordered=True)
    order = probe_order(keys)
    in_order = take_keys(keys, order)
    first = differs_from_previous(in_order)
    if not first.all():  # keep the last write of each key
        order = np.maximum.reduceat(order, np.flatnonzero(first))
        in_order = in_order.filter(pa.array(first))
    del keys
    return MemRun(in_order, puts[order], take_columns(tables, pa.array(order)), ordered=True)


def strictly_ascending(keys: pa.BinaryArray) -> bool:
    """Whether storage keys are sorted and distinct. Checking takes a tenth of the time of sorting.

    Executors that work in key order also write in key order.
    """
    if len(keys) > 2 * _SAMPLE and not strictly_ascending(keys[:_SAMPLE]):
        return False
    return bool(above_previous(keys).all())


def _search_keys(keys: pa.BinaryArray, needles: pa.BinaryArray) -> Positions:
    return np.asarray(pc.search_sorted(keys, needles)).astype(np.int64)
