"""Where to begin to read a touched partition: before its first changed row, as far back as calls look.

    partition begin … mark … looked back on … first row that may differ … first changed row … changed rows … end
                      └──────────────────────────── read and computed ─────────────────────────────────────┘
                                              └── written to the output where it differs ──────────────────┘

What may differ before the first changed row: rows whose frame reaches it, which are its peers, so many rows before it, or those whose
frame ends at a value that is not before it. From the first of these on frames look back, in rows or to a value. Then the last mark before
that says what calls carry over from all rows before it. Every step is one read for all partitions together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.base import Positions
from tussock.jobs.executors.window_call import Over
from tussock.jobs.executors.window_pieces import Changes, SortedChanges
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sorted_keys import differs_from_previous, sort_order, take_keys
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.table.schema import KeyedRows
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import one_array

_FIRST_LOOK = 64  # rows that a search for frames that reach a value begins with
_FURTHER = 8  # times as many each time that all of them reached it


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins in each touched partition, in the order in which the state's keys lie."""

    prefixes: pa.BinaryArray  # (partitions,) the first part of all keys of each
    firsts: pa.BinaryArray  # (partitions,) from where to read
    marks: KeyedRows | None  # at most one for each partition: what its row at `firsts` carries


@dataclass(frozen=True, slots=True)
class _Rows:
    """A row of each partition, and a key from which on rows are meant: the row's own or one before it."""

    keys: pa.BinaryArray
    rows: pa.Table

    def where(self, chosen: np.ndarray, others: "_Rows") -> "_Rows":
        """The others' where chosen."""
        places = np.arange(len(self.keys)) + np.where(chosen, len(self.keys), 0)
        keys, rows = pa.concat_arrays([self.keys, others.keys]), pa.concat_tables([self.rows, others.rows])
        return _Rows(keys.take(pa.array(places)), rows.take(pa.array(places)))


class Starts:
    """Finds the starts of one OverWindow."""

    def __init__(
        self,
        partition: Sequence[int],
        ordering: Sequence[KeyColumn],
        calls: Sequence[Over],
        everything: bool,
        rows: StateTable,
        marks: StateTable | None,
    ) -> None:
        """`everything`: some call needs the partition from its beginning."""
        self._partition, self._ordering, self._everything = tuple(dict.fromkeys(partition)), ordering, everything
        self._table, self._marks = rows, marks
        self._after, self._before = (max(n) for n in zip(*((c.rows_after, c.rows_before) for c in calls), strict=True))
        self._peers = any(c.reads_peers for c in calls)
        self._reached = tuple(dict.fromkeys(c.upper.column for c in calls if c.upper.column is not None))
        lower = (c.lower.column for c in calls if c.lower.column is not None)
        self._looked_at = tuple(dict.fromkeys((*lower, *self._reached)))

    def of(self, changes: Changes) -> Start:
        """The starts of the partitions of the changed rows. Reads the state as it was."""
        prefixes, first = self._first_of_each(changes.come)
        if len(changes.gone.keys):
            others, gone = self._first_of_each(changes.gone)
            both = SortedChanges(pa.concat_arrays([first.keys, gone.keys]), pa.concat_tables([first.rows, gone.rows]))
            order = sort_order(both.keys)
            prefixes = take_keys(pa.concat_arrays([prefixes, others]), order)
            new = differs_from_previous(prefixes)
            places = pa.array(order[new])
            prefixes, first = (
                prefixes.filter(pa.array(new)),
                SortedChanges(both.keys.take(places), both.rows.take(places)),
            )
        if self._everything:
            return Start(prefixes, prefixes, None)
        firsts = self._looking_back(prefixes, self._affected(prefixes, _Rows(first.keys, first.rows)))
        return Start(prefixes, *self._marked(prefixes, firsts))

    def _first_of_each(self, changed: SortedChanges) -> tuple[pa.BinaryArray, SortedChanges]:
        """The first of the changed rows of each partition, and what its keys begin with."""
        prefixes = self._table.layout.prefixes_of(changed.rows.select(list(self._partition)))
        new = differs_from_previous(prefixes)
        return prefixes.filter(pa.array(new)), changed.take(np.flatnonzero(new))

    def _affected(self, prefixes: pa.BinaryArray, first: _Rows) -> _Rows:
        """From which row on results may differ, where `first` changed."""
        found = first
        if self._after:
            found = self._back(prefixes, found, self._after)
        for column in self._reached:
            reaching = self._reaching(prefixes, first, column)
            found = found.where(_less(reaching.keys, found.keys), reaching)
        if self._peers:
            own = self._peers_of(first.rows)
            found = found.where(_less(own, found.keys), _Rows(own, first.rows))
        return found

    def _looking_back(self, prefixes: pa.BinaryArray, affected: _Rows) -> pa.BinaryArray:
        """From which key on frames read, where the results from `affected` on are wanted."""
        firsts = [affected.keys]
        if self._peers:
            firsts.append(self._peers_of(affected.rows))
        firsts += [self._at_value(affected.rows, column) for column in self._looked_at]
        if self._before:
            firsts.append(self._back(prefixes, affected, self._before).keys)
        return pc.min_element_wise(*firsts)

    def _marked(self, prefixes: pa.BinaryArray, firsts: pa.BinaryArray) -> tuple[pa.BinaryArray, KeyedRows | None]:
        """The last mark before each key, which is where to read from; without one it is the partition's beginning."""
        if self._marks is None:
            return firsts, None
        marks = self._marks.scan_between(self._of(self._marks, prefixes), self._of(self._marks, firsts), 1, True)
        places = np.arange(len(prefixes))
        places[marks.index.to_numpy()] = len(prefixes) + np.arange(len(marks.keys))
        return pa.concat_arrays([prefixes, self._of(self._table, marks.keys)]).take(pa.array(places)), marks

    def _back(self, prefixes: pa.BinaryArray, found: _Rows, count: int) -> _Rows:
        """The row so many rows before; where there are fewer, the partition's first one, or what was found."""
        read = self._table.scan_between(prefixes, found.keys, count, True)
        return self._last_of(read, np.bincount(read.index.to_numpy(), minlength=len(prefixes)), found)

    def _reaching(self, prefixes: pa.BinaryArray, first: _Rows, column: int) -> _Rows:
        """The earliest row whose frame reaches the first changed one: whose `column` is not before its order."""
        (key,) = self._ordering
        found, asked, wanted = first, _FIRST_LOOK, np.arange(len(prefixes))
        value = _ordered(first.rows, key, key.column)
        while len(wanted):
            chosen = pa.array(wanted)
            read = self._table.scan_between(prefixes.take(chosen), first.keys.take(chosen), asked, True)
            index = read.index.to_numpy()
            reaches = _less(_ordered(read.rows, key, column), value.take(chosen).take(pa.array(index)))
            counts = np.bincount(
                index[~reaches], minlength=len(wanted)
            )  # they come first, since frames' ends ascend with the order
            some = _Rows(first.keys.take(chosen), first.rows.take(chosen))
            last = self._last_of(read, counts, some)
            places = np.arange(len(prefixes))
            places[wanted] = len(prefixes) + np.arange(len(wanted))
            keys, rows = pa.concat_arrays([found.keys, last.keys]), pa.concat_tables([found.rows, last.rows])
            found = _Rows(keys.take(pa.array(places)), rows.take(pa.array(places)))
            wanted = wanted[counts == asked]
            asked *= _FURTHER
        return found

    def _last_of(self, read: KeyedRows, counts: Positions, otherwise: _Rows) -> _Rows:
        """Of each partition the row number counts[i], from 1, of those read; what it is otherwise where that is 0."""
        begin = np.searchsorted(read.index.to_numpy(), np.arange(len(counts)))
        size = len(otherwise.keys)
        places = np.where(counts > 0, size + begin + counts - 1, np.arange(size))
        keys, rows = pa.concat_arrays([otherwise.keys, read.keys]), pa.concat_tables([otherwise.rows, read.rows])
        return _Rows(keys.take(pa.array(places)), rows.take(pa.array(places)))

    def _peers_of(self, rows: pa.Table) -> pa.BinaryArray:
        """What all keys of each row's peers begin with."""
        return self._table.layout.prefixes_of(rows.select([*self._partition, *(k.column for k in self._ordering)]))

    def _at_value(self, rows: pa.Table, column: int) -> pa.BinaryArray:
        """The least key whose order is not before the value in `column`."""
        return self._table.layout.prefixes_of(rows.select([*self._partition, column]))

    def _of(self, table: StateTable, keys: pa.BinaryArray) -> pa.BinaryArray:
        """The same keys in the rows' or the marks' table: these differ in the table's id alone."""
        number = table.layout.schema.table_id.to_bytes(4, "big")
        return pc.binary_replace_slice(keys, 0, 4, number)


def _less(left: pa.Array, right: pa.Array) -> np.ndarray:
    return np.asarray(pc.less(left, right))


def _ordered(rows: pa.Table, key: KeyColumn, column: int) -> pa.BinaryArray:
    """A column's values as bytes that compare as the order does."""
    by = [KeyColumn(0, key.descending, key.nulls_last)]
    return encode_keys(0, np.zeros(rows.num_rows, np.uint16), [one_array(rows.column(column))], by)
