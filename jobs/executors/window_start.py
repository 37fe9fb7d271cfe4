"""Find the start of reading in a touched partition: before its first changed row, as far back as calls look.

    partition begin … mark … looked back on … first row that may differ … first changed row … changed rows … end
                      └──────────────────────────── read and computed ─────────────────────────────────────┘
                                              └── written to the output if different ──────────────────────┘

Rows before the first changed row may differ if their frames reach it. These are its peers, a number of rows before it,
or rows whose frames end at a value not before it. From the first of these rows, frames look back by rows or to a value.
The last mark before that contains the carried values of all earlier rows. Each step is one read for all partitions
together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.base import Positions
from tussock.jobs.executors.window_call import Over
from tussock.jobs.executors.window_frame import move_back
from tussock.jobs.executors.window_pieces import Changes, SortedChanges
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sorted_keys import differs_from_previous, sort_order, take_keys
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.table.schema import KeyedRows
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import one_array

_FIRST_LOOK = 64  # rows of the first read in the search for frames that reach a value
_FURTHER = 8  # factor by which the next read grows if all of these frames reached it


@dataclass(frozen=True, slots=True)
class Start:
    """The start of reading in each touched partition, in the order of the state's keys."""

    prefixes: pa.BinaryArray  # (partitions,) the common prefix of each partition's keys
    firsts: pa.BinaryArray  # (partitions,) the first key to read
    marks: KeyedRows | None  # at most one per partition: the values that the row at `firsts` carries


@dataclass(frozen=True, slots=True)
class _Rows:
    """A row of each partition, and the key of that row or of an earlier position."""

    keys: pa.BinaryArray
    rows: pa.Table

    def choose_from(self, chosen: np.ndarray, others: "_Rows") -> "_Rows":
        """These rows, replaced by the others where `chosen` is true."""
        places = np.arange(len(self.keys)) + np.where(chosen, len(self.keys), 0)
        keys, rows = pa.concat_arrays([self.keys, others.keys]), pa.concat_tables([self.rows, others.rows])
        return _Rows(keys.take(pa.array(places)), rows.take(pa.array(places)))


class Starts:
    """Finds the starts for one OverWindow."""

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
        self._setback = max(c.setback for c in calls)
        lower = (c.lower.column for c in calls if c.lower.column is not None)
        self._looked_at = tuple(dict.fromkeys((*lower, *self._reached)))

    def starts_of_changes(self, changes: Changes) -> Start:
        """The starts for the partitions of the changed rows. Reads the old state."""
        prefixes, first = self._first_of_each(changes.come)
        if len(changes.gone.keys):
            others, gone = self._first_of_each(changes.gone)
            both = SortedChanges(pa.concat_arrays([first.keys, gone.keys]), pa.concat_tables([first.rows, gone.rows]))
            order = sort_order(both.keys)
            prefixes = take_keys(pa.concat_arrays([prefixes, others]), order)
            new = differs_from_previous(prefixes)
            places = pa.array(order[new])
            prefixes = prefixes.filter(pa.array(new))
            first = SortedChanges(both.keys.take(places), both.rows.take(places))
        if self._everything:
            return Start(prefixes, prefixes, None)
        firsts = self._looking_back(prefixes, self._first_affected(prefixes, _Rows(first.keys, first.rows)))
        return Start(prefixes, *self._find_marks(prefixes, firsts))

    def _first_of_each(self, changed: SortedChanges) -> tuple[pa.BinaryArray, SortedChanges]:
        """The first changed row of each partition, and the partitions' key prefixes."""
        prefixes = self._table.layout.prefixes_of(changed.rows.select(list(self._partition)))
        new = differs_from_previous(prefixes)
        return prefixes.filter(pa.array(new)), changed.take_rows(np.flatnonzero(new))

    def _first_affected(self, prefixes: pa.BinaryArray, first: _Rows) -> _Rows:
        """The first row of each partition whose result may differ, if `first` changed."""
        affected_rows = first
        if self._after:
            affected_rows = self._rows_back(prefixes, affected_rows, self._after)
        for column in self._reached:
            reaching = self._first_reaching(prefixes, first, column)
            affected_rows = affected_rows.choose_from(_is_less(reaching.keys, affected_rows.keys), reaching)
        if self._peers:
            own = self._peers_of(first.rows)
            affected_rows = affected_rows.choose_from(_is_less(own, affected_rows.keys), _Rows(own, first.rows))
        return affected_rows

    def _looking_back(self, prefixes: pa.BinaryArray, affected: _Rows) -> pa.BinaryArray:
        """The first key that frames read for the results from `affected` on."""
        firsts = [affected.keys]
        if self._peers:
            firsts.append(self._peers_of(affected.rows))
        firsts += [self._at_value(affected.rows, column) for column in self._looked_at]
        if (
            self._setback
        ):  # the frames of so many rows may end after that of the affected row, whose frame then does too
            firsts.append(self._at_earlier_value(affected.rows))
        if self._before:
            firsts.append(self._rows_back(prefixes, affected, self._before).keys)
        return pc.min_element_wise(*firsts)

    def _find_marks(self, prefixes: pa.BinaryArray, firsts: pa.BinaryArray) -> tuple[pa.BinaryArray, KeyedRows | None]:
        """The last mark before each key, where reading begins. Without a mark it begins with the partition."""
        if self._marks is None:
            return firsts, None
        marks = self._marks.scan_between(
            self._keys_in_table(self._marks, prefixes), self._keys_in_table(self._marks, firsts), 1, True
        )
        places = np.arange(len(prefixes))
        places[marks.index.to_numpy()] = len(prefixes) + np.arange(len(marks.keys))
        return pa.concat_arrays([prefixes, self._keys_in_table(self._table, marks.keys)]).take(pa.array(places)), marks

    def _rows_back(self, prefixes: pa.BinaryArray, rows: _Rows, count: int) -> _Rows:
        """The row `count` rows earlier. If there are fewer rows: the partition's first row, or `rows` itself."""
        read = self._table.scan_between(prefixes, rows.keys, count, True)
        return self._last_of(read, np.bincount(read.index.to_numpy(), minlength=len(prefixes)), rows)

    def _first_reaching(self, prefixes: pa.BinaryArray, first: _Rows, column: int) -> _Rows:
        """The earliest row whose frame reaches the first changed row: its `column` is not before that row's value.

        With a setback, an earlier one: a frame may end as far after its row's `column`.
        """
        (key,) = self._ordering
        earliest_rows, asked, wanted = first, _FIRST_LOOK, np.arange(len(prefixes))
        value = _encode_values(self._move_back(first.rows), key)
        while len(wanted):
            chosen = pa.array(wanted)
            read = self._table.scan_between(prefixes.take(chosen), first.keys.take(chosen), asked, True)
            index = read.index.to_numpy()
            ends = _encode_values(one_array(read.rows.column(column)), key)
            reaches = ~_is_less(ends, value.take(chosen).take(pa.array(index)))
            # Rows that reach the value come first if the frames' ends ascend with the order. Otherwise, their number
            # leads to an earlier row.
            counts = np.bincount(index[reaches], minlength=len(wanted))
            some = _Rows(first.keys.take(chosen), first.rows.take(chosen))
            last = self._last_of(read, counts, some)
            places = np.arange(len(prefixes))
            places[wanted] = len(prefixes) + np.arange(len(wanted))
            keys = pa.concat_arrays([earliest_rows.keys, last.keys])
            rows = pa.concat_tables([earliest_rows.rows, last.rows])
            earliest_rows = _Rows(keys.take(pa.array(places)), rows.take(pa.array(places)))
            wanted = wanted[counts == asked]
            asked *= _FURTHER
        return earliest_rows

    def _last_of(self, read: KeyedRows, counts: Positions, otherwise: _Rows) -> _Rows:
        """Row number counts[i] (from 1) of the rows read for each partition; `otherwise` if counts[i] is 0."""
        begin = np.searchsorted(read.index.to_numpy(), np.arange(len(counts)))
        size = len(otherwise.keys)
        places = np.where(counts > 0, size + begin + counts - 1, np.arange(size))
        keys, rows = pa.concat_arrays([otherwise.keys, read.keys]), pa.concat_tables([otherwise.rows, read.rows])
        return _Rows(keys.take(pa.array(places)), rows.take(pa.array(places)))

    def _peers_of(self, rows: pa.Table) -> pa.BinaryArray:
        """The common key prefix of each row's peers."""
        return self._table.layout.prefixes_of(rows.select([*self._partition, *(k.column for k in self._ordering)]))

    def _at_value(self, rows: pa.Table, column: int) -> pa.BinaryArray:
        """The least key whose order value is not before the value in `column`.

        If that value is beyond the type, it is NULL: an upper end is among the NULLs of the order, if those come first,
        and no other frame needs a row before the row's peers.
        """
        (key,) = self._ordering
        at = rows.select(list(self._partition))
        value = rows.column(column)
        if column not in self._reached:
            value = pc.coalesce(value, rows.column(key.column))
        return self._table.layout.prefixes_of(at.append_column(rows.schema.field(column).with_name(" at"), value))

    def _at_earlier_value(self, rows: pa.Table) -> pa.BinaryArray:
        """The least key whose order value is not before a row's value minus the setback."""
        (key,) = self._ordering
        at = rows.select(list(self._partition))
        name = rows.schema.field(key.column).with_name(" at")
        return self._table.layout.prefixes_of(at.append_column(name, self._move_back(rows)))

    def _move_back(self, rows: pa.Table) -> pa.Array:
        """The rows' values of the order minus the setback."""
        (key,) = self._ordering
        return move_back(one_array(rows.column(key.column)), self._setback, key.descending)

    def _keys_in_table(self, table: StateTable, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Convert keys to the rows' or the marks' table. Only the table's id differs."""
        number = table.layout.schema.table_id.to_bytes(4, "big")
        return pc.binary_replace_slice(keys, 0, 4, number)


def _is_less(left: pa.Array, right: pa.Array) -> np.ndarray:
    return np.asarray(pc.less(left, right))


def _encode_values(values: pa.Array, key: KeyColumn) -> pa.BinaryArray:
    """Values as bytes that compare in the order's direction."""
    by = [KeyColumn(0, key.descending, key.nulls_last)]
    return encode_keys(0, np.zeros(len(values), np.uint16), [values], by)
