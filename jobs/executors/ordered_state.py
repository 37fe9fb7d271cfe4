"""Ordered state: the rows of each group in an order, for aggregates that take the first row, the last or all of them in turn.

State: `group key | order columns | upstream stream key -> what else is read of a row`. Where a query leaves the order open, there are no
order columns: the order is that of the stream key, the same on every run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.executors.base import net, state_table, weights_of, write_changes
from jobs.executors.group_segments import I64, Segments, segments_of
from jobs.executors.order import Order
from jobs.flow.chunk import WEIGHT
from statestore.meta.catalog import KeyColumn, TableSchema
from statestore.table.state_table import StateTable
from statestore.vnode import one_array


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """What is kept: rows in `order` with the columns `values`; not those with a NULL in one of `present`, nor those where the boolean
    column `kept` is not true."""

    name: str  # of the table
    order: tuple[Order, ...]
    values: tuple[int, ...]
    present: tuple[int, ...] = ()
    kept: int | None = None

    def table(self, input_types: Sequence[str], keys: Sequence[int], stream_key: Sequence[int]) -> TableSchema:
        """Its layout, id 0, over rows that are grouped by `keys`."""
        places, width = self._places(keys, stream_key)
        types = [input_types[p] for p in places]
        by_column = {o.column: o for o in reversed(self.order)}
        key = [KeyColumn(i, o.descending, o.nulls_last) if (o := by_column.get(p)) else KeyColumn(i) for i, p in enumerate(places[:width])]
        return state_table(self.name, types, key, range(len(keys)))

    def open(self, keys: Sequence[int], stream_key: Sequence[int], table: StateTable) -> "OrderedState":
        """It in an actor's hands; `table` as `table()` lays it out."""
        return OrderedState(self, *self._places(keys, stream_key), table)

    def _places(self, keys: Sequence[int], stream_key: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """The input columns that the state's columns are, each once, and how many of them are its key."""
        key = dict.fromkeys((*keys, *(o.column for o in self.order), *stream_key))
        return tuple(dict.fromkeys((*key, *self.values))), len(key)


class OrderedState:
    """The rows of one actor's groups."""

    def __init__(self, rows: OrderedRows, places: tuple[int, ...], width: int, table: StateTable) -> None:
        self._rows, self._places, self._width, self._table = rows, places, width, table

    def write(self, chunk: pa.Table) -> I64:
        """Store what a chunk of raw rows changes; returns its weights. Raises ChangeError for a row that comes or goes twice."""
        names = [f"c{i}" for i in range(len(self._places))]
        rows = pa.table([*(chunk.column(p) for p in self._places), chunk[WEIGHT]], names=[*names, WEIGHT])
        if (wanted := self._wanted(chunk)) is not None:
            rows = rows.filter(wanted)
        write_changes(net(rows), self._table, range(self._width))
        return weights_of(chunk)

    def first(self, groups: pa.Table, columns: Sequence[int], reverse: bool = False) -> list[pa.Array]:
        """Of each group's first row (or last one) the columns that are the input's `columns`; NULL where it has none. One limited scan."""
        read = self._table.scan_prefix(groups, limit=1, reverse=reverse)
        places = np.full(groups.num_rows, -1, np.int64)
        places[read.index.to_numpy()] = np.arange(len(read.index))
        taken = pa.array(places, mask=places < 0)
        return [one_array(read.rows.column(self._places.index(c))).take(taken) for c in columns]

    def firsts(self, groups: pa.Table, column: int, count: int) -> Segments:
        """A column of the input in each group's first rows, `count` at most. One limited scan."""
        return segments_of(self._table.scan_prefix(groups, limit=count), groups.num_rows, [self._places.index(column)])

    def all(self, groups: pa.Table, columns: Sequence[int]) -> Segments:
        """All rows of the groups, in order. Memory: all of them."""
        return segments_of(self._table.scan_prefix(groups), groups.num_rows, [self._places.index(c) for c in columns])

    def _wanted(self, chunk: pa.Table) -> pa.Array | None:
        conditions = [pc.is_valid(one_array(chunk.column(p))) for p in self._rows.present]
        if self._rows.kept is not None:
            conditions.append(pc.fill_null(one_array(chunk.column(self._rows.kept)), False))
        if not conditions:
            return None
        wanted = conditions[0]
        for condition in conditions[1:]:
            wanted = pc.and_(wanted, condition)
        return wanted
