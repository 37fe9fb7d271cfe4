"""TopN: the rows offset .. offset + limit of the input in an order, ties broken by the stream key. A singleton.

State: all rows of the input under `order | stream key`, so that the top lies first and the rows that move up are found behind it.
"""


import pyarrow as pa

from jobs.executors.base import halves, net, no_columns, state_table
from jobs.plan import nodes
from jobs.wire.chunk import difference, empty_chunk
from statestore.meta.catalog import KeyColumn, TableSchema
from statestore.table.state_table import StateTable


def state_tables(node: nodes.TopN) -> tuple[TableSchema, ...]:
    """The rows in order. A column named twice counts where it is first."""
    return (state_table("top_n", node.types, tuple(_key(node).values()), ()),)


def _key(node: nodes.TopN) -> dict[int, KeyColumn]:
    """The state's key: column -> its order."""
    key: dict[int, KeyColumn] = {}
    for order in node.order:
        key.setdefault(order.column, KeyColumn(order.column, order.descending, order.nulls_last))
    for column in node.stream_key:
        key.setdefault(column, KeyColumn(column))
    return key


class TopNExecutor:
    """Emits the difference between the top before and after the epoch.

    Invariant: the sum of all output chunks is the top of the sum of all input chunks.
    """

    def __init__(self, node: nodes.TopN, table: StateTable) -> None:
        self._node, self._table = node, table

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises ChangeError when a row came or went twice. Cost: two scans of the first offset + limit rows."""
        changes = net(chunks[0])
        if changes.num_rows == 0:
            return empty_chunk(self._node.types)
        before = self._top()
        halves(changes, self._table.name, tuple(_key(self._node))).write(self._table)
        return net(difference(before, self._top()))

    def _top(self) -> pa.Table:
        node = self._node
        first = self._table.scan_prefix(no_columns(1), limit=node.offset + node.limit)
        return first.rows.slice(node.offset)
