"""Distinct state: each group's distinct values of some columns, and the number of rows with each value.

State: `group key | values -> count`. Values are normalised like keys (one zero, one NaN). Values that contain NULL are
not stored, because every DISTINCT aggregate ignores them. The counts show which values appear and disappear. A DISTINCT
aggregate is the plain aggregate over the rows that caused this.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.base import NO_ROW, change_error, key_ids, state_table, take_rows, weights_of
from tussock.jobs.executors.exact_sum import integer_values
from tussock.jobs.executors.group_segments import I64, Segments, segments_of
from tussock.jobs.executors.hyperloglog import registers_of
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.sorted_keys import join_keys, left_positions, sort_order, take_keys
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.schema import PrefixRows
from tussock.statestore.table.state_table import LocatedKeys, StateTable
from tussock.statestore.vnode import normalise_floats, one_array, xxhash64

#: Rows whose values are looked up at once. 5 M distinct values of one group would use 1.8 GB in a single lookup.
PIECE_ROWS = 1 << 19


class NegativeFrequencyError(InputError):
    """A row has a negative frequency in percentile."""

    found: int

    def __str__(self) -> str:
        return (
            "percentile's third argument, the frequency of a row, must not be negative; "
            f"found {self.found}. Correct the row."
        )


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """The layout of a distinct state over the columns `args`.

    `times`: the column with each row's frequency. `precision`: store the registers that the values' hashes set instead
    of the values, with this many bits for a register's number (hyperloglog.py).
    """

    args: tuple[int, ...]
    types: tuple[str, ...]
    times: int | None = None
    precision: int | None = None

    def values_of_chunk(self, chunk: pa.Table) -> list[pa.Array]:
        """The values of raw rows."""
        columns = [one_array(chunk.column(a)) for a in self.args]
        return (
            [registers_of(columns[0], self.precision)]
            if self.precision is not None
            else [normalise_floats(c) for c in columns]
        )

    def table_schema(self, input_types: Sequence[str], keys: Sequence[int], stream_key: Sequence[int]) -> TableSchema:
        """The state table with id 0, for rows grouped by `keys`: group, values, count."""
        kinds = self.types if self.precision is None else ("int",)
        types = [*(input_types[k] for k in keys), *kinds, "bigint"]
        name = f"agg_{'distinct' if self.precision is None else 'registers'}_{'_'.join(f'c{a}' for a in self.args)}"
        return state_table(name, types, [KeyColumn(i) for i in range(len(types) - 1)], range(len(keys)))

    def open_state(self, keys: Sequence[int], stream_key: Sequence[int], table: StateTable) -> "DistinctState":
        """The state in an actor. `table`: in the layout of `table_schema()`."""
        return DistinctState(self, tuple(keys), table)


@dataclass(frozen=True, slots=True)
class CountChanges:
    """Values whose counts an epoch changes, in the table's order."""

    keys: pa.BinaryArray  # storage keys
    rows: pa.Table  # the table's new rows, with the new counts
    before: I64
    after: I64

    @staticmethod
    def merge_parts(parts: "Sequence[CountChanges]") -> "CountChanges":
        """The changes of all parts, which have no value in common. Cost: a sort if there are several parts."""
        if len(parts) == 1:
            return parts[0]
        keys = join_keys([part.keys for part in parts])
        order = sort_order(keys)
        before = np.concatenate([part.before for part in parts])[order]
        after = np.concatenate([part.after for part in parts])[order]
        rows = take_rows(pa.concat_tables([part.rows for part in parts]), order)
        return CountChanges(take_keys(keys, order), rows, before, after)


@dataclass(frozen=True, slots=True)
class _Move:
    """One piece of the changes, and where its values are in the table and in the chunk."""

    changes: CountChanges
    located: LocatedKeys
    first: I64  # a row of the chunk for each value


class DistinctState:
    """The distinct values of one actor's groups."""

    def __init__(self, values: DistinctValues, keys: tuple[int, ...], table: StateTable) -> None:
        self.table = table
        self._values, self._keys = values, keys
        self._followers: list[Callable[[CountChanges], None]] = []
        self._changed: list[CountChanges] = []

    def follow_changes(self, follower: Callable[[CountChanges], None]) -> None:
        """Call `follower` with every change of counts from now on."""
        self._followers.append(follower)

    def apply_chunk(self, chunk: pa.Table) -> I64:
        """Apply a chunk of raw rows to the state.

        Returns: (n,) the rows' weights for DISTINCT aggregates: +1 for one row of each value that appears, -1 for one
            row of each value that disappears, 0 for all others.
        Raises: ChangeError if more rows of a value are deleted than exist; NegativeFrequencyError.
        Cost: one hash pass over the rows, one `get_rows` of the touched values. Memory: about twice the touched values.
        """
        weights = np.zeros(chunk.num_rows, np.int64)
        is_first_load = self.table.is_empty()
        # Read all pieces before writing any, so that reads need only one search.
        moves = [self._move_counts(chunk, *piece) for piece in self._split_pieces(chunk)]
        for move in moves:
            before, after = move.changes.before > 0, move.changes.after > 0
            self.table.replace_located(move.located, move.changes.rows, before, after)
            weights[move.first] = after.astype(np.int64) - before
            for follower in self._followers:
                follower(move.changes)
        # In a first load all groups are new. Its changes are as large as the table, and are not needed again.
        self._changed = [] if is_first_load else [move.changes for move in moves if len(move.changes.keys)]
        return weights

    def read_all(self, groups: pa.Table) -> Segments:
        """The groups' values in ascending order, with their counts as the last column. Memory: all values."""
        first = len(self._keys)
        return segments_of(
            self.table.scan_prefix(groups), groups.num_rows, range(first, first + len(self._values.args) + 1)
        )

    def read_ends(self, groups: pa.Table, reverse: bool) -> PrefixRows:
        """The first (or last) value of each group, and its count, as the last two columns. Cost: one limited scan."""
        return self.table.scan_prefix(groups, limit=1, reverse=reverse)

    def find_changes(self) -> CountChanges | None:
        """The changes of the last chunk. None if it changed nothing, or if the table was empty before it."""
        if not self._changed:
            return None
        self._changed = [CountChanges.merge_parts(self._changed)]
        return self._changed[0]

    def keys_of_values(self, groups: pa.Table, values: pa.Array) -> pa.BinaryArray:
        """(n,) the storage key of one value per group. Requires: values have one column and are not NULL."""
        columns = [*groups.columns, values]
        return self.table.layout.keys_of(pa.table(columns, names=[f"c{i}" for i in range(len(columns))]))

    def sum_changes(self, firsts: pa.BinaryArray, ends: pa.BinaryArray, once: bool) -> I64:
        """(n,) by how much the last chunk changed the number of rows between pairs of storage keys.

        `once`: the number of values instead of rows. `ends` are exclusive.
        """
        if (changes := self.find_changes()) is None:
            return np.zeros(len(firsts), np.int64)
        change = changes.after - changes.before
        if once:
            change = (changes.after > 0).astype(np.int64) - (changes.before > 0)
        upto = np.concatenate([[0], np.cumsum(change)])
        first, end = (left_positions(changes.keys, keys) for keys in (firsts, ends))
        summed: I64 = upto[end] - upto[first]
        return summed

    def _move_counts(self, chunk: pa.Table, rows: I64, change: I64) -> _Move:
        """The new counts of the values in some rows."""
        picked = chunk.take(pa.array(rows))
        columns = [
            *(normalise_floats(one_array(picked.column(k))) for k in self._keys),
            *self._values.values_of_chunk(picked),
        ]
        ids, first = key_ids(columns, len(rows))
        net = np.zeros(len(first), np.int64)
        np.add.at(net, ids, change)
        moved = np.flatnonzero(net)
        names = [f"c{i}" for i in range(len(columns))]
        keys = pa.table([c.take(pa.array(first[moved])) for c in columns], names=names)
        located = self.table.locate_keys(keys)
        keys, moved = keys.take(pa.array(located.order)), moved[located.order]
        stored_counts = self.table.get_located(located)
        before = integer_values(stored_counts.rows.column(len(columns)))
        after = before + net[moved]
        if (after < 0).any():
            raise change_error(self.table.name, NO_ROW, keys, int(np.argmax(after < 0)))
        with_counts = keys.append_column(f"c{len(columns)}", pa.array(after))
        return _Move(CountChanges(located.keys, with_counts, before, after), located, rows[first[moved]])

    def _split_pieces(self, chunk: pa.Table) -> Iterator[tuple[I64, I64]]:
        """The rows with values and their changes of counts, in pieces of about PIECE_ROWS.

        Equal values are in one piece.
        """
        rows, change = self._count_changes(chunk)
        if len(rows) <= PIECE_ROWS:
            yield from [(rows, change)] if len(rows) else []
            return
        hashes = xxhash64(self._values.values_of_chunk(chunk))[rows] % np.uint64(-(-len(rows) // PIECE_ROWS))
        for piece in range(int(hashes.max()) + 1):
            chosen = hashes == piece
            yield rows[chosen], change[chosen]

    def _count_changes(self, chunk: pa.Table) -> tuple[I64, I64]:
        """The rows with values, and the change of the count by each."""
        there = np.ones(chunk.num_rows, np.bool_)
        weights = weights_of(chunk)
        for column in (*self._values.args, *(() if self._values.times is None else (self._values.times,))):
            if chunk.column(column).null_count:
                there &= pc.is_valid(one_array(chunk.column(column))).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(there)
        if self._values.times is None:
            return rows, weights[rows]
        times = one_array(chunk.column(self._values.times)).take(pa.array(rows)).cast(pa.int64()).to_numpy()
        if times.min(initial=0) < 0:
            raise NegativeFrequencyError(int(times.min()))
        return rows, weights[rows] * times
