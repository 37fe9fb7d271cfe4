"""MemTable: what an epoch has changed in one table so far, typed and columnar. The last operation on a key wins.

Writes are appended as they come and sorted when somebody reads: an executor that writes in batches and reads in batches pays one sort of
a batch per turn from writing to reading, never one per row. Sorted batches are kept as runs, newest first, each more than twice as long
as the one before it. So n turns of few rows each cost O(n log n) together, where one run of all changes would be sorted n times.
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
from tussock.statestore.table.columns import take_columns

Positions = npt.NDArray[np.int64]

_NO_KEYS, _NO_PUTS = pa.array([], pa.binary()), np.empty(0, np.bool_)
_SAMPLE = 256  # keys, enough to show nearly always that the others are not sorted


@dataclass(frozen=True)
class MemRun:
    """The changes in key order, one per key; or, while they are pending, in order of writing."""

    keys: pa.BinaryArray  # (n,) strictly ascending
    puts: npt.NDArray[np.bool_]  # (n,) True: the row is there; False: the key is deleted
    rows: pa.Table  # (n,) whole rows; of a deleted key the row that was deleted
    ordered: bool = False  # the keys are known to ascend, each once; if not, they may do so or not

    def __len__(self) -> int:
        return len(self.puts)

    @cached_property
    def sorted_keys(self) -> SortedKeys:
        """The keys, ready to be searched."""
        return SortedKeys(self.keys)

    def find(self, keys: pa.BinaryArray) -> Positions:
        """For each key its place here, or -1. Cost: one binary search a key; cheapest where `keys` ascend."""
        if not len(self) or not len(keys):
            return np.full(len(keys), -1, np.int64)
        places, found = self.sorted_keys.find(Probes(keys), slice(None))
        return np.where(found, places, -1)

    def places(self, firsts: pa.BinaryArray, ends: pa.BinaryArray) -> tuple[Positions, Positions]:
        """For each pair of keys the places [first, end) of the keys from the one up to, not with, the other."""
        low = _search(self.keys, firsts)
        return low, np.maximum(low, _search(self.keys, ends))

    def between(self, first: bytes, end: bytes) -> tuple[int, int]:
        """The places [first, end) of the keys from `first` up to, not with, `end`."""
        low, high = _search(self.keys, pa.array([first, end], pa.binary()))
        return int(low), int(high)


class MemTable:
    """The changes of one table in one epoch; see the module."""

    def __init__(self, rows: pa.Schema) -> None:
        """`rows`: the schema of the table's rows."""
        self._rows = rows
        self._runs: list[MemRun] = []  # newest first: what a newer one holds of a key counts
        self._pending: list[MemRun] = []  # in order of writing; keys unsorted, repeats allowed

    def put(self, keys: pa.BinaryArray, rows: pa.Table) -> None:
        """Each row is there from now on, under its key; within a batch the last of a key wins."""
        self._append(keys, rows, True)

    def delete(self, keys: pa.BinaryArray, rows: pa.Table) -> None:
        """No row has one of these keys from now on; `rows` are the rows that go."""
        self._append(keys, rows, False)

    def write(
        self, keys: pa.BinaryArray, puts: npt.NDArray[np.bool_], rows: pa.Table, touched: npt.NDArray[np.bool_]
    ) -> None:
        """Of the keys that are touched, put the rows of some and delete the others: all arguments are aligned with `keys`.

        Requires: `keys` ascend, each once.
        """
        if touched.all():
            self._pend(MemRun(keys, puts, rows, ordered=True))
        else:
            chosen = pa.array(touched)
            self._pend(MemRun(keys.filter(chosen), puts[touched], rows.filter(chosen), ordered=True))

    def runs(self) -> list[MemRun]:
        """All changes so far as few sorted runs, newest first. Cost: nothing if there was no write since the last call, else a sort of
        what is new, and merges of runs that are no longer twice as long."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._runs.insert(0, _last_of_each_key(pending))
            while len(self._runs) > 1 and 2 * len(self._runs[0]) >= len(self._runs[1]):
                self._merge(2)
        return self._runs

    def settle(self) -> MemRun:
        """All changes so far, as one run. Cost: that of `runs`, then a merge of these."""
        if len(self.runs()) > 1:
            self._merge(len(self._runs))
        return self._runs[0] if self._runs else MemRun(_NO_KEYS, _NO_PUTS, self._rows.empty_table())

    def _merge(self, count: int) -> None:
        """Make one of the newest runs."""
        newest_last = self._runs[:count][::-1]
        del self._runs[:count]
        self._runs.insert(0, _last_of_each_key(newest_last))

    def take_all(self) -> MemRun:
        """All changes so far, sorted; the MemTable is empty afterwards."""
        taken, self._runs = self.settle(), []
        return taken

    def _append(self, keys: pa.BinaryArray, rows: pa.Table, put: bool) -> None:
        self._pend(MemRun(keys, np.full(len(keys), put), rows))

    def _pend(self, run: MemRun) -> None:
        if len(run):
            self._pending.append(run)


def _last_of_each_key(runs: list[MemRun]) -> MemRun:
    """The runs, oldest first, in key order, the last operation on each key. Takes them out of the list, so that not all of them is held to
    the end."""
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
    if not first.all():  # of operations on one key the one written last
        order = np.maximum.reduceat(order, np.flatnonzero(first))
        in_order = in_order.filter(pa.array(first))
    del keys
    return MemRun(in_order, puts[order], take_columns(tables, pa.array(order)), ordered=True)


def strictly_ascending(keys: pa.BinaryArray) -> bool:
    """Whether storage keys are sorted, each once. Executors that work in key order write in it: noticing costs a tenth of sorting."""
    if len(keys) > 2 * _SAMPLE and not strictly_ascending(keys[:_SAMPLE]):
        return False
    return bool(above_previous(keys).all())


def _search(keys: pa.BinaryArray, needles: pa.BinaryArray) -> Positions:
    return np.asarray(pc.search_sorted(keys, needles)).astype(np.int64)
