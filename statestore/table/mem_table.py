"""MemTable: what an epoch has changed in one table so far, typed and columnar. The last operation on a key wins.

Writes are appended as they come and sorted when somebody reads: an executor that writes in batches and reads in batches pays one sort
per turn from writing to reading, O(changes so far), never one per row.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.hummock.key import prefix_ends
from statestore.hummock.sorted_keys import differs_from_previous, sort_order

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MemRun:
    """The changes in key order, one per key."""

    keys: pa.BinaryArray  # (n,) strictly ascending
    puts: npt.NDArray[np.bool_]  # (n,) True: the row is there; False: the key is deleted
    rows: pa.Table  # (n,) whole rows; of a deleted key the row that was deleted

    def __len__(self) -> int:
        return len(self.puts)

    def find(self, keys: pa.BinaryArray) -> Positions:
        """For each key its place here, or -1. Cost: one binary search a key."""
        if not len(self):
            return np.full(len(keys), -1, np.int64)
        places = _search(self.keys, keys)
        near = np.minimum(places, len(self) - 1)
        return np.where(np.asarray(pc.equal(self.keys.take(pa.array(near)), keys)), near, -1)

    def ranges(self, prefixes: pa.BinaryArray) -> tuple[Positions, Positions]:
        """For each prefix the places [first, end) of the keys that start with it."""
        return _search(self.keys, prefixes), _search(self.keys, prefix_ends(prefixes))

    def between(self, first: bytes, end: bytes) -> tuple[int, int]:
        """The places [first, end) of the keys from `first` up to, not with, `end`."""
        low, high = _search(self.keys, pa.array([first, end], pa.binary()))
        return int(low), int(high)


class MemTable:
    """The changes of one table in one epoch; see the module."""

    def __init__(self, rows: pa.Schema) -> None:
        """`rows`: the schema of the table's rows."""
        self._rows = rows
        self._settled = MemRun(pa.array([], pa.binary()), np.empty(0, np.bool_), rows.empty_table())
        self._pending: list[MemRun] = []  # in order of writing; keys unsorted, repeats allowed

    def put(self, keys: pa.BinaryArray, rows: pa.Table) -> None:
        """Each row is there from now on, under its key; within a batch the last of a key wins."""
        self._append(keys, rows, True)

    def delete(self, keys: pa.BinaryArray, rows: pa.Table) -> None:
        """No row has one of these keys from now on; `rows` are the rows that go."""
        self._append(keys, rows, False)

    def settle(self) -> MemRun:
        """All changes so far, sorted. Cost: nothing if there was no write since the last call, else a sort."""
        if self._pending:
            runs = [self._settled, *self._pending] if len(self._settled) else self._pending
            self._settled = _last_of_each_key(runs)
            self._pending = []
        return self._settled

    def take_all(self) -> MemRun:
        """All changes so far, sorted; the MemTable is empty afterwards."""
        taken = self.settle()
        self._settled = MemRun(pa.array([], pa.binary()), np.empty(0, np.bool_), self._rows.empty_table())
        return taken

    def _append(self, keys: pa.BinaryArray, rows: pa.Table, put: bool) -> None:
        if len(keys):
            self._pending.append(MemRun(keys, np.full(len(keys), put), rows))


def _last_of_each_key(runs: list[MemRun]) -> MemRun:
    keys = pa.concat_arrays([run.keys for run in runs]) if len(runs) > 1 else runs[0].keys
    puts = np.concatenate([run.puts for run in runs])
    rows = pa.concat_tables([run.rows for run in runs])
    order = pa.array(sort_order(keys))  # stable: operations on one key stay in order
    in_order = keys.take(order)
    last = np.ones(len(keys), np.bool_)
    last[:-1] = differs_from_previous(in_order)[1:]
    if not last.all():
        kept = pa.array(last)
        order, in_order = order.filter(kept), in_order.filter(kept)
    return MemRun(in_order, puts[order.to_numpy()], rows.combine_chunks().take(order))


def _search(keys: pa.BinaryArray, needles: pa.BinaryArray) -> Positions:
    return np.asarray(pc.search_sorted(keys, needles)).astype(np.int64)
