"""Extreme states: what min and max keep when rows may go.

State: `group key | argument | upstream stream key`, the argument descending for max and ascending for min, so that a group's extreme is its
first row. NULL arguments are not stored. The extreme itself is a slot of the group's value row, so a group is read from here only when its
extreme (or a row equal to it) went.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.executors.base import halves, net, state_table, take_rows
from jobs.executors.value_state import Extreme, State
from jobs.flow.chunk import WEIGHT
from statestore.meta.catalog import KeyColumn, TableSchema
from statestore.table.state_table import StateTable


def extreme_table(input_types: Sequence[str], keys: Sequence[int], stream_key: Sequence[int], slot: Extreme) -> TableSchema:
    """The layout of one call's extreme state, id 0, over rows that are grouped by `keys`."""
    places = _places(keys, stream_key, slot)
    types = [input_types[p] for p in places]
    key = [KeyColumn(i, descending=slot.largest and p == slot.arg) for i, p in enumerate(places)]
    return state_table(f"agg_{slot.function}_c{slot.arg}", types, key, range(len(keys)))


class ExtremeState:
    """The values of one argument by group, the extreme first."""

    def __init__(self, keys: Sequence[int], stream_key: Sequence[int], slot: Extreme, table: StateTable) -> None:
        self._slot, self._table = slot, table
        self._places = _places(keys, stream_key, slot)
        self._argument = self._places.index(slot.arg)

    def write(self, chunk: pa.Table) -> None:
        """Store what a chunk of raw rows changes. Raises ChangeError for a row that comes or goes twice."""
        names = [f"c{i}" for i in range(len(self._places))]
        rows = pa.table([*(chunk.column(p) for p in self._places), chunk[WEIGHT]], names=[*names, WEIGHT])
        rows = net(rows.filter(pc.is_valid(rows.column(self._argument))))
        halves(rows, self._table.name, range(len(self._places))).write(self._table)

    def advance(self, groups: pa.Table, before: State, change: State) -> State:
        """The groups' extremes after `write`.

        Args:
            groups: (n,) the group keys.
            before: their extremes until now.
            change: the extreme of the rows that came, and of those that went.

        A row that came and went within the epoch does no harm: if it beat `before`, so does what went, and the group is read.

        Cost: one scan of the first row of those groups whose extreme may have gone; none if there are none.
        """
        slot = self._slot
        came, went = change
        unsure = pc.and_(pc.is_valid(went), pc.invert(slot.beats(before[0], went))).to_numpy(zero_copy_only=False)
        known = slot.better(before[0], came)
        asked = np.flatnonzero(unsure)
        if len(asked) == 0:
            return [known]
        first = self._table.scan_prefix(take_rows(groups, asked), limit=1)
        places = np.full(groups.num_rows, -1, np.int64)
        places[asked[first.index.to_numpy()]] = np.arange(len(first.index))
        read = pc.take(first.rows.column(self._argument).combine_chunks(), pa.array(places, mask=places < 0))
        return [pc.if_else(pa.array(unsure), read, known)]


def _places(keys: Sequence[int], stream_key: Sequence[int], slot: Extreme) -> tuple[int, ...]:
    """Input columns that the state's columns are, each once."""
    return tuple(dict.fromkeys((*keys, slot.arg, *stream_key)))
