"""LateChanges: the number of changes that a keyed source has dropped, because a newer one of the key came before.

late    vnode -> changes so far (one row per vnode, so that it moves with the vnode)
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.base import state_table
from tussock.jobs.executors.broadcast_row import place_of_each_vnode
from tussock.jobs.executors.operator import Actor
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import one_array, vnodes_of

LATE_CHANGES = "late"


def late_changes_table() -> TableSchema:
    """The state table of the counts."""
    return state_table(LATE_CHANGES, ("bigint", "bigint"), [KeyColumn(0)], (0,))


class LateChanges:
    """The counts of one actor."""

    def __init__(self, table: StateTable, actor: Actor) -> None:
        self._table, self._vnode_count = table, actor.vnode_count

    def add_changes(self, keys: Sequence[pa.ChunkedArray]) -> None:
        """Count dropped changes, given the columns of their keys. Cost: one batched read of the touched vnodes."""
        vnodes = np.asarray(vnodes_of(list(keys), self._vnode_count))
        counts = np.bincount(vnodes, minlength=self._vnode_count)
        touched = np.flatnonzero(counts)
        places = pa.array(place_of_each_vnode(self._vnode_count)[touched])
        was = self._table.get_rows(pa.table([places], names=["c0"]))
        sums = pc.add(pc.fill_null(one_array(was.rows.column(1)), 0), pa.array(counts[touched]))
        self._table.insert_rows(pa.table([places, sums], names=["c0", "c1"]))
