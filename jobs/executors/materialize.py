"""Materialize: keeps a view's rows where readers find them, and passes the changes on.

State: `stream key -> row`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from jobs.chunk import empty_chunk, inserts
from jobs.executors.base import NO_ROW, TWO_ROWS, change_error, halves, key_ids, net, same_rows, state_table
from jobs.plan import nodes
from statestore.meta.catalog import KeyColumn, TableSchema
from statestore.table.state_table import StateTable


def state_tables(node: nodes.Materialize) -> tuple[TableSchema, ...]:
    """The view's rows."""
    return (state_table("rows", node.types, [KeyColumn(k) for k in node.stream_key], node.distribution),)


class MaterializeExecutor:
    """Deletes before inserts, and nothing that does not fit the rows that are there.

    Invariant: the table is the sum of all input chunks, and no two of its rows have one key.
    """

    def __init__(self, node: nodes.Materialize, table: StateTable) -> None:
        self._node, self._table = node, table

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """The netted changes.

        Raises: ChangeError for a row that comes where one stays, and for one that goes but is not there.
        Cost: one `get_rows` of the keys that change.
        """
        changes = net(chunks[0])
        if changes.num_rows == 0:
            return empty_chunk(self._node.types)
        key = self._node.stream_key
        gone, come = halves(changes, self._table.name, key)
        self._check(gone, come)
        self._table.delete_rows(gone)
        self._table.insert_rows(come)
        return changes

    def snapshot(self, vnodes: Sequence[int]) -> Iterator[pa.Table]:
        """The view's rows on these vnodes as chunks of inserts, in key order."""
        for rows in self._table.scan(vnodes):
            yield inserts(rows)

    def _check(self, gone: pa.Table, come: pa.Table) -> None:
        """Every row that goes must be there as it is; where a row comes, none may stay."""
        key = list(self._node.stream_key)
        both = pa.concat_tables([gone.select(key), come.select(key)])
        ids, first = key_ids(both.columns, both.num_rows)
        found = self._table.get_rows(both.take(pa.array(first)) if key else both.slice(0, 1))
        there = found.found.to_numpy(zero_copy_only=False)
        leaving = ids[: gone.num_rows]
        stored = found.rows.take(pa.array(leaving))
        absent = ~(there[leaving] & same_rows(stored, gone))
        if absent.any():
            raise change_error(self._table.name, NO_ROW, gone.select(key), int(np.flatnonzero(absent)[0]))
        staying = there.copy()
        staying[leaving] = False
        if (taken := staying[ids[gone.num_rows :]]).any():
            raise change_error(self._table.name, TWO_ROWS, come.select(key), int(np.flatnonzero(taken)[0]))
