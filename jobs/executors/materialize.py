"""Materialize: keeps a view's rows where readers find them, and passes the changes on.

State: `stream key -> row`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from jobs.chunk import difference, empty_chunk, inserts
from jobs.executors.base import NO_ROW, TWO_ROWS, Halves, change_error, halves, no_columns, same_rows, state_table
from jobs.plan import nodes
from statestore.meta.catalog import KeyColumn, TableSchema
from statestore.table.state_table import StateTable


def state_tables(node: nodes.Materialize) -> tuple[TableSchema, ...]:
    """The view's rows."""
    return (state_table("rows", node.types, [KeyColumn(k) for k in node.stream_key], node.distribution),)


class MaterializeExecutor:
    """Keeps the sum of all input chunks, of which no two rows have one key.

    An update's row is replaced unseen: reading what it replaces would cost as much as the rest of an epoch, and neither loses nor doubles
    a row. A row that only comes or only goes is checked.
    """

    def __init__(self, node: nodes.Materialize, table: StateTable) -> None:
        self._node, self._table = node, table

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """The netted changes.

        Raises: ChangeError for a row that comes where one stays, and for one that goes but is not there.
        Cost: one `get_rows` of the keys that appear and disappear.
        """
        if chunks[0].num_rows == 0:
            return empty_chunk(self._node.types)
        parts = halves(chunks[0], self._table.name, self._node.stream_key)
        self._check(parts)
        parts.write(self._table)
        return difference(parts.gone, parts.come)

    def snapshot(self, vnodes: Sequence[int]) -> Iterator[pa.Table]:
        """The view's rows on these vnodes as chunks of inserts, in key order."""
        for rows in self._table.scan(vnodes):
            yield inserts(rows)

    def _check(self, changes: Halves) -> None:
        """Where a row only comes, none may be; a row that only goes must be there as it is."""
        key = list(self._node.stream_key)
        gone = changes.gone.filter(pa.array(~changes.replaced))
        come = changes.come.filter(pa.array(~changes.replacing))
        count = gone.num_rows + come.num_rows
        if count == 0:
            return
        keys = pa.concat_tables([gone.select(key), come.select(key)]) if key else no_columns(count)
        found = self._table.get_rows(keys, again=False)
        there = found.found.to_numpy(zero_copy_only=False)
        absent = ~(there[: gone.num_rows] & same_rows(found.rows.slice(0, gone.num_rows), gone))
        if absent.any():
            raise change_error(self._table.name, NO_ROW, gone.select(key), int(np.flatnonzero(absent)[0]))
        if (taken := there[gone.num_rows :]).any():
            raise change_error(self._table.name, TWO_ROWS, come.select(key), int(np.flatnonzero(taken)[0]))
