"""BroadcastRow: one row that all actors of a fragment know, as of the previous epoch.

All actors receive its changes (dispatch `broadcast`). It is stored once per vnode, so that it moves with the vnode to
another actor. It is written only when it changes.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import rows_of
from tussock.jobs.executors.base import Positions, state_table, take_rows, weights_of
from tussock.jobs.executors.operator import Actor
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import vnodes_of


def broadcast_row_table(name: str, types: Sequence[str]) -> TableSchema:
    """The state table for a row of these types: a number that hashes to the vnode, then the row."""
    return state_table(name, ("bigint", *types), [KeyColumn(0)], (0,))


class BroadcastRow:
    """The row's state in one actor."""

    def __init__(self, table: StateTable, actor: Actor) -> None:
        self._table = table
        self._places = place_of_each_vnode(actor.vnode_count)[list(actor.vnodes)]

    def read_row(self) -> pa.Table | None:
        """(1, …) the row as of the previous epoch; None before its first change.

        Cost: one batched read of the actor's vnodes.
        """
        stored_rows = self._table.get_rows(pa.table([pa.array(self._places)], names=["c0"]))
        there = np.flatnonzero(stored_rows.found.to_numpy(zero_copy_only=False))
        return _rename_columns(stored_rows.rows.slice(int(there[0]), 1).remove_column(0)) if len(there) else None

    def write_row(self, row: pa.Table) -> None:
        """Store the row, (1, …), for all vnodes of the actor."""
        copies = take_rows(row, np.zeros(len(self._places), np.int64))
        columns = [pa.array(self._places), *copies.columns]
        self._table.insert_rows(pa.table(columns, names=[f"c{i}" for i in range(len(columns))]))


def row_in(chunk: pa.Table) -> pa.Table | None:
    """(1, …) the new row in a chunk of the row's changes; None if it did not change."""
    come = np.flatnonzero(weights_of(chunk) > 0)
    return take_rows(_rename_columns(rows_of(chunk)), come[:1]) if len(come) else None


def _rename_columns(row: pa.Table) -> pa.Table:
    return row.rename_columns([f"c{i}" for i in range(row.num_columns)])


@lru_cache(maxsize=4)
def place_of_each_vnode(vnode_count: int) -> Positions:
    """(vnode_count,) the least number that hashes to each vnode, used as the key of the row's copy for that vnode."""
    places, numbers = np.full(vnode_count, -1, np.int64), 0
    while (places < 0).any():
        more = np.arange(numbers, numbers + 16 * vnode_count)
        vnodes = np.asarray(vnodes_of([pa.array(more)], vnode_count))[::-1]
        numbers_by_vnode = np.full(vnode_count, -1, np.int64)
        numbers_by_vnode[vnodes] = more[::-1]
        places, numbers = np.where(places < 0, numbers_by_vnode, places), numbers + len(more)
    return places
