"""Distinct state: each group's values of some columns, and how often each is there.

State: `group key | values -> count`. Values are normalised as keys are (one zero, one NaN), and those with a NULL are not stored: every
aggregate that asks for distinct values ignores them. From the counts it follows which values appear and disappear; a DISTINCT aggregate is
the plain one over the rows that made them do so.
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
from tussock.statestore.vnode import normalise, one_array, xxhash64

#: Rows whose values are looked up at once: 5 M distinct values in one group took 1.8 GB in one go.
PIECE_ROWS = 1 << 19


class NegativeFrequencyError(InputError):
    """A row that percentile is to count less than no times."""

    def __init__(self, found: int) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return f"percentile's third argument, how often a row counts, is {self.found}: it must not be negative. Correct the row."


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """What is kept: the values of the columns `args`. `times`: the column that says how often a row counts. `precision`: not the values,
    but the registers that their hashes set, with this many bits for a register's number (hyperloglog.py)."""

    args: tuple[int, ...]
    types: tuple[str, ...]
    times: int | None = None
    precision: int | None = None

    def of(self, chunk: pa.Table) -> list[pa.Array]:
        """The values of raw rows."""
        columns = [one_array(chunk.column(a)) for a in self.args]
        return (
            [registers_of(columns[0], self.precision)]
            if self.precision is not None
            else [normalise(c) for c in columns]
        )

    def table(self, input_types: Sequence[str], keys: Sequence[int], stream_key: Sequence[int]) -> TableSchema:
        """Its layout, id 0, over rows that are grouped by `keys`: group, values, count."""
        kinds = self.types if self.precision is None else ("int",)
        types = [*(input_types[k] for k in keys), *kinds, "bigint"]
        name = f"agg_{'distinct' if self.precision is None else 'registers'}_{'_'.join(f'c{a}' for a in self.args)}"
        return state_table(name, types, [KeyColumn(i) for i in range(len(types) - 1)], range(len(keys)))

    def open(self, keys: Sequence[int], stream_key: Sequence[int], table: StateTable) -> "DistinctState":
        """It in an actor's hands; `table` as `table()` lays it out."""
        return DistinctState(self, tuple(keys), table)


@dataclass(frozen=True, slots=True)
class _Move:
    """Values whose counts change, in the table's order."""

    located: Located
    rows: pa.Table  # of the table, with the count after
    before: I64
    after: I64
    first: I64  # of each value a row of the chunk


class DistinctState:
    """The values of one actor's groups."""

    def __init__(self, values: DistinctValues, keys: tuple[int, ...], table: StateTable) -> None:
        self._values, self._keys, self._table = values, keys, table

    def write(self, chunk: pa.Table) -> I64:
        """Store what a chunk of raw rows changes.

        Returns: (n,) weights under which the rows stand for distinct values: +1 for one row of each that appears, -1 for one row of each
            that disappears, 0 for all others.
        Raises: ChangeError when more of a value goes than there is; NegativeFrequencyError.
        Cost: one hash pass over the rows, one `get_rows` of the values touched; memory: the values touched, twice or so.
        """
        weights = np.zeros(chunk.num_rows, np.int64)
        moves = [
            self._moved(chunk, *piece) for piece in self._pieces(chunk)
        ]  # all are read before any is written: reads stay one search
        for move in moves:
            self._table.replace_located(move.located, move.rows, move.before > 0, move.after > 0)
            weights[move.first] = (move.after > 0).astype(np.int64) - (move.before > 0)
        return weights

    def all(self, groups: pa.Table) -> Segments:
        """The groups' values in ascending order, and how often each is there as the last column. Memory: all of them."""
        first = len(self._keys)
        return segments_of(
            self._table.scan_prefix(groups), groups.num_rows, range(first, first + len(self._values.args) + 1)
        )

    def _moved(self, chunk: pa.Table, rows: I64, change: I64) -> "_Move":
        """What some rows make of the counts of their values."""
        picked = chunk.take(pa.array(rows))
        columns = [*(normalise(one_array(picked.column(k))) for k in self._keys), *self._values.of(picked)]
        ids, first = key_ids(columns, len(rows))
        net = np.zeros(len(first), np.int64)
        np.add.at(net, ids, change)
        moved = np.flatnonzero(net)
        names = [f"c{i}" for i in range(len(columns))]
        keys = pa.table([c.take(pa.array(first[moved])) for c in columns], names=names)
        located = self._table.locate(keys)
        keys, moved = keys.take(pa.array(located.order)), moved[located.order]
        found = self._table.get_located(located)
        before = pc.fill_null(one_array(found.rows.column(len(columns))), 0).to_numpy(zero_copy_only=False)
        after = before + net[moved]
        if (after < 0).any():
            raise change_error(self._table.name, NO_ROW, keys, int(np.argmax(after < 0)))
        return _Move(
            located, keys.append_column(f"c{len(columns)}", pa.array(after)), before, after, rows[first[moved]]
        )

    def _pieces(self, chunk: pa.Table) -> Iterator[tuple[I64, I64]]:
        """The rows that have values and what each adds to a count, equal values in one piece, PIECE_ROWS in a piece or so."""
        rows, change = self._counted(chunk)
        if len(rows) <= PIECE_ROWS:
            yield from [(rows, change)] if len(rows) else []
            return
        hashes = xxhash64(self._values.of(chunk))[rows] % np.uint64(-(-len(rows) // PIECE_ROWS))
        for piece in range(int(hashes.max()) + 1):
            chosen = hashes == piece
            yield rows[chosen], change[chosen]

    def _counted(self, chunk: pa.Table) -> tuple[I64, I64]:
        """The rows that have values, and what each adds to a count."""
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
