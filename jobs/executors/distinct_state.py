"""Distinct state: each group's distinct values of some columns, and the number of rows with each value.

State: `group key | values -> count`. Values are normalised like keys (one zero, one NaN). Values that contain NULL are
not stored, because every DISTINCT aggregate ignores them. The counts show which values appear and disappear. A DISTINCT
aggregate is the plain aggregate over the rows that caused this.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.base import NO_ROW, change_error, key_ids, state_table, weights_of
from tussock.jobs.executors.group_segments import I64, Segments, segments_of
from tussock.jobs.executors.hyperloglog import registers_of
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import Located, StateTable
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
class _Move:
    """Values whose counts change, in the table's order."""

    located: Located
    rows: pa.Table  # the table's new rows, with the new counts
    before: I64
    after: I64
    first: I64  # a row of the chunk for each value


class DistinctState:
    """The distinct values of one actor's groups."""

    def __init__(self, values: DistinctValues, keys: tuple[int, ...], table: StateTable) -> None:
        self._values, self._keys, self._table = values, keys, table

    def apply_chunk(self, chunk: pa.Table) -> I64:
        """Apply a chunk of raw rows to the state.

        Returns: (n,) the rows' weights for DISTINCT aggregates: +1 for one row of each value that appears, -1 for one
            row of each value that disappears, 0 for all others.
        Raises: ChangeError if more rows of a value are deleted than exist; NegativeFrequencyError.
        Cost: one hash pass over the rows, one `get_rows` of the touched values. Memory: about twice the touched values.
        """
        weights = np.zeros(chunk.num_rows, np.int64)
        # Read all pieces before writing any, so that reads need only one search.
        moves = [self._move_counts(chunk, *piece) for piece in self._split_pieces(chunk)]
        for move in moves:
            self._table.replace_located(move.located, move.rows, move.before > 0, move.after > 0)
            weights[move.first] = (move.after > 0).astype(np.int64) - (move.before > 0)
        return weights

    def read_all(self, groups: pa.Table) -> Segments:
        """The groups' values in ascending order, with their counts as the last column. Memory: all values."""
        first = len(self._keys)
        return segments_of(
            self._table.scan_prefix(groups), groups.num_rows, range(first, first + len(self._values.args) + 1)
        )

    def _move_counts(self, chunk: pa.Table, rows: I64, change: I64) -> "_Move":
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
        located = self._table.locate_keys(keys)
        keys, moved = keys.take(pa.array(located.order)), moved[located.order]
        found = self._table.get_located(located)
        before = pc.fill_null(one_array(found.rows.column(len(columns))), 0).to_numpy(zero_copy_only=False)
        after = before + net[moved]
        if (after < 0).any():
            raise change_error(self._table.name, NO_ROW, keys, int(np.argmax(after < 0)))
        return _Move(
            located, keys.append_column(f"c{len(columns)}", pa.array(after)), before, after, rows[first[moved]]
        )

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
