"""Ordered state: the ordered rows of each group, for aggregates that need the first row, the last row or all rows.

State: `group key | order columns | upstream stream key -> other columns that are read`. If the query leaves the order
open, there are no order columns, and rows are ordered by the stream key, so that every run gives the same order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT
from tussock.jobs.executors.base import (
    key_ids,
    located_rows,
    net_chunk,
    no_columns,
    state_table,
    weights_of,
    write_changes,
)
from tussock.jobs.executors.group_segments import I64, Segments, segments_of
from tussock.jobs.executors.order import Order
from tussock.statestore.hummock.sorted_keys import differs_from_previous
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import null_mask, one_array

_WORTH_GROUPING = 1 << 12  # below this number of rows, a sort is not more expensive than a grouping


@dataclass(frozen=True, slots=True)
class OrderedLayout:
    """The layout of an ordered state: rows in `order` with the columns `values`.

    Rows with NULL in a column of `present`, or without true in the boolean column `filter_column`, are not stored.
    """

    name: str  # of the state table
    order: tuple[Order, ...]
    values: tuple[int, ...]
    present: tuple[int, ...] = ()
    filter_column: int | None = None

    def table_schema(self, input_types: Sequence[str], keys: Sequence[int], stream_key: Sequence[int]) -> TableSchema:
        """The state table with id 0, for rows grouped by `keys`."""
        places, width = self._column_places(keys, stream_key)
        types = [input_types[p] for p in places]
        by_column = {o.column: o for o in reversed(self.order)}
        key = [
            KeyColumn(i, o.descending, o.nulls_last) if (o := by_column.get(p)) else KeyColumn(i)
            for i, p in enumerate(places[:width])
        ]
        return state_table(self.name, types, key, range(len(keys)))

    def open_state(
        self, keys: Sequence[int], stream_key: Sequence[int], table: StateTable, ends: "Ends | None" = None
    ) -> "OrderedState":
        """The state in an actor.

        `table`: in the layout of `table_schema()`. `ends`: rows ever read, if rows are never deleted; None: all.
        """
        return OrderedState(self, *self._column_places(keys, stream_key), len(dict.fromkeys(keys)), table, ends)

    def _column_places(self, keys: Sequence[int], stream_key: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """The input columns of the state's columns, without repetition, and the number of key columns."""
        key = dict.fromkeys((*keys, *(o.column for o in self.order), *stream_key))
        return tuple(dict.fromkeys((*key, *self.values))), len(key)


@dataclass(frozen=True, slots=True)
class Ends:
    """How many rows are read from either end of a group's order."""

    first: int
    last: int

    def __or__(self, other: "Ends") -> "Ends":
        return Ends(max(self.first, other.first), max(self.last, other.last))


class OrderedState:
    """The ordered rows of one actor's groups."""

    def __init__(
        self,
        rows: OrderedLayout,
        places: tuple[int, ...],
        width: int,
        grouped: int,
        table: StateTable,
        ends: Ends | None,
    ) -> None:
        """`places`: the input columns of the table.

        The first `width` are its key, the first `grouped` the group's key.
        """
        self._rows = rows
        self._places = places
        self._width = width
        self._grouped = grouped
        self._table = table
        self._ends = ends

    def apply_chunk(self, chunk: pa.Table) -> I64:
        """Apply a chunk of raw rows to the state and return its weights.

        ChangeError if a row is inserted or deleted twice.

        If rows are never deleted and only `ends` are read, rows that cannot be at an end are not stored.
        """
        names = [f"c{i}" for i in range(len(self._places))]
        rows = pa.table([*(chunk.column(p) for p in self._places), chunk[WEIGHT]], names=[*names, WEIGHT])
        if (wanted := self._wanted_mask(chunk)) is not None:
            rows = rows.filter(wanted)
        key, weights = range(self._width), weights_of(rows)
        if self._ends is not None and (weights == 1).all():
            rows = self._find_contenders(rows, self._ends)
            if (located_and_rows := located_rows(rows, self._table, key)) is not None:
                located, in_order = located_and_rows
                self._table.replace_located(
                    located, in_order, np.zeros(len(located.order), np.bool_), self._at_ends(in_order, self._ends)
                )
                return weights_of(chunk)
        write_changes(net_chunk(rows), self._table, key)
        return weights_of(chunk)

    def read_first(self, groups: pa.Table, columns: Sequence[int], reverse: bool = False) -> list[pa.Array]:
        """Input `columns` of each group's first (or last) row; NULL if the group is empty. Cost: one limited scan."""
        read = self._table.scan_prefix(groups, limit=1, reverse=reverse)
        places = np.full(groups.num_rows, -1, np.int64)
        places[read.index.to_numpy()] = np.arange(len(read.index))
        taken = pa.array(places, mask=places < 0)
        return [one_array(read.rows.column(self._places.index(c))).take(taken) for c in columns]

    def read_firsts(self, groups: pa.Table, column: int, count: int) -> Segments:
        """An input column of each group's first rows, at most `count`. Cost: one limited scan."""
        return segments_of(self._table.scan_prefix(groups, limit=count), groups.num_rows, [self._places.index(column)])

    def read_all(self, groups: pa.Table, columns: Sequence[int]) -> Segments:
        """All rows of the groups in order. Memory: all of them."""
        return segments_of(self._table.scan_prefix(groups), groups.num_rows, [self._places.index(c) for c in columns])

    def _find_contenders(self, rows: pa.Table, ends: Ends) -> pa.Table:
        """The rows that can be first or last in their group, decided by the first order column, without a sort.

        Returns all rows if more than one row per end is read, or if the column is not numeric.
        """
        if rows.num_rows < _WORTH_GROUPING or max(ends.first, ends.last) > 1 or self._grouped == self._width:
            return rows
        column = self._table.layout.schema.key[self._grouped]
        if (ranks := _numeric_ranks(one_array(rows.column(self._grouped)), column)) is None:
            return rows
        groups, firsts = key_ids([rows.column(c) for c in range(self._grouped)], rows.num_rows)
        among = np.zeros(rows.num_rows, np.bool_)
        for asked, best in ((ends.first, np.minimum), (ends.last, np.maximum)):
            if asked:
                extreme = ranks[firsts]
                best.at(extreme, groups, ranks)
                among |= ranks == extreme[groups]
        return rows.filter(pa.array(among))

    def _at_ends(self, in_order: pa.Table, ends: Ends) -> npt.NDArray[np.bool_]:
        """(n,) whether each row of a chunk in the table's order is among the first or last rows of its group."""
        groups = in_order.select(range(self._grouped)) if self._grouped else no_columns(in_order.num_rows)
        new, places = differs_from_previous(self._table.layout.prefixes_of(groups)), np.arange(in_order.num_rows)
        starts = np.append(np.flatnonzero(new), in_order.num_rows)
        group = np.cumsum(new) - 1
        from_start, from_end = places - starts[group], starts[group + 1] - 1 - places
        among: npt.NDArray[np.bool_] = (from_start < ends.first) | (from_end < ends.last)
        return among

    def _wanted_mask(self, chunk: pa.Table) -> pa.Array | None:
        conditions = [pc.is_valid(one_array(chunk.column(p))) for p in self._rows.present]
        if self._rows.filter_column is not None:
            conditions.append(pc.fill_null(one_array(chunk.column(self._rows.filter_column)), False))
        if not conditions:
            return None
        wanted = conditions[0]
        for condition in conditions[1:]:
            wanted = pc.and_(wanted, condition)
        return wanted


def _numeric_ranks(values: pa.Array, column: KeyColumn) -> npt.NDArray[np.int64] | npt.NDArray[np.float64] | None:
    """(n,) numbers that ascend with a column's values in its order, not always strictly.

    None if they are not numeric.
    """
    kind = values.type
    if pa.types.is_floating(kind):
        floats = pc.fill_null(values, 0).cast(pa.float64()).to_numpy(zero_copy_only=False)
        ranks = np.where(np.isnan(floats), np.inf, floats)
        ranks, least, greatest = (-ranks if column.descending else ranks), -np.inf, np.inf
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        if pa.types.is_date32(kind):
            values = values.view(pa.int32())
        numbers = pc.fill_null(values.cast(pa.int64(), safe=False), 0).to_numpy(zero_copy_only=False)
        ranks = ~numbers if column.descending else numbers
        least = np.iinfo(np.int64).min
        greatest = np.iinfo(np.int64).max
    else:
        return None
    return np.where(null_mask(values), greatest if column.nulls_last else least, ranks) if values.null_count else ranks
