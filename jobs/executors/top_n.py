"""TopN: the rows offset .. offset + limit of the input in an order, ties broken by the stream key; or all but the first. A singleton.

State: all rows of the input under `order | stream key`, so that the top lies first and the rows that move up follow it.
"""

from collections.abc import Sequence

import pyarrow as pa

from jobs.executors.base import net, no_columns, state_table, write_changes
from jobs.executors.operator import Actor, Executor, Origin, Passed, PlainNode
from jobs.executors.order import Order
from jobs.flow.chunk import difference, empty_chunk
from statestore.meta.catalog import KeyColumn, TableSchema
from statestore.table.state_table import StateTable


class TopN(PlainNode, frozen=True):
    """Rows offset .. offset+limit of the input in `order`, ties broken by the stream key; without a limit all from offset on.

    Singleton. State: `order | stream key -> row`.
    """

    order: tuple[Order, ...]
    limit: int | None
    offset: int
    stream_key: tuple[int, ...]
    types: tuple[str, ...]

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The rows in order. A column named twice counts where it is first."""
        return (state_table("top_n", self.types, tuple(_key(self).values()), ()),)

    def lineage(self) -> tuple[Origin, ...]:
        return tuple(Passed(i) for i in range(len(self.types)))

    def text(self) -> str:
        order = ", ".join(o.text() for o in self.order)
        limit = "none" if self.limit is None else self.limit
        return f"TopN order=[{order}] limit={limit}" + (f" offset={self.offset}" if self.offset else "")

    def cost(self) -> str:
        return f"changed rows + {self.offset + (self.limit or 0)} rows in order"

    def executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return TopNExecutor(self, tables[0])


def _key(node: TopN) -> dict[int, KeyColumn]:
    """The state's key: column -> its order."""
    key: dict[int, KeyColumn] = {}
    for order in node.order:
        key.setdefault(order.column, KeyColumn(order.column, order.descending, order.nulls_last))
    for column in node.stream_key:
        key.setdefault(column, KeyColumn(column))
    return key


class TopNExecutor:
    """Emits the difference between the top before and after the epoch; of all rows but the first, what changed and did not become or
    stay one of these: with F the first rows, Δ(X − F) = ΔX − ΔF, which reads no more than F.

    Invariant: the sum of all output chunks is the top of the sum of all input chunks.
    """

    def __init__(self, node: TopN, table: StateTable) -> None:
        self._node, self._table = node, table

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises ChangeError when a row came or went twice. Cost: two scans of the first offset + limit rows."""
        changes = net(chunks[0])
        if changes.num_rows == 0:
            return empty_chunk(self._node.types)
        node = self._node
        first, count = (0, node.offset) if node.limit is None else (node.offset, node.limit)
        before = self._rows(first, count)
        write_changes(changes, self._table, tuple(_key(node)))
        after = self._rows(first, count)
        if node.limit is None:
            return net(pa.concat_tables([changes, difference(after, before)]))
        return net(difference(before, after))

    def _rows(self, first: int, count: int) -> pa.Table:
        """`count` rows in order after the `first` ones."""
        return self._table.scan_prefix(no_columns(1), limit=first + count).rows.slice(first)
