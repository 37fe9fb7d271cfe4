"""TopN: the rows offset .. offset + limit of the input in an order, ties broken by the stream key. A singleton.

State: all rows of the input under `order | stream key`, so that the top lies first and the rows that move up follow it.
"""

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from jobs.executors.base import halves, net, no_columns, state_table
from jobs.executors.operator import Actor, Executor, Origin, Passed
from jobs.flow.chunk import difference, empty_chunk
from jobs.sql.logical import Expr
from statestore.meta.catalog import KeyColumn, TableSchema
from statestore.table.state_table import StateTable


class Order(msgspec.Struct, frozen=True):
    """One ORDER BY column."""

    column: int
    descending: bool
    nulls_last: bool

    def text(self) -> str:
        """As EXPLAIN shows it: `c3 desc nulls last`."""
        return f"c{self.column}{' desc' if self.descending else ''} nulls {'last' if self.nulls_last else 'first'}"


class TopN(msgspec.Struct, frozen=True, tag=True):
    """Rows offset .. offset+limit of the input in `order`, ties broken by the stream key. Singleton. State: `order | stream key -> row`."""

    order: tuple[Order, ...]
    limit: int
    offset: int
    stream_key: tuple[int, ...]
    types: tuple[str, ...]

    @property
    def keeps_relation(self) -> bool:
        return False

    @property
    def emits_without_input(self) -> bool:
        return False

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The rows in order. A column named twice counts where it is first."""
        return (state_table("top_n", self.types, tuple(_key(self).values()), ()),)

    def lineage(self) -> tuple[Origin, ...]:
        return tuple(Passed(i) for i in range(len(self.types)))

    def expressions(self) -> tuple[Expr, ...]:
        return ()

    def text(self) -> str:
        order = ", ".join(o.text() for o in self.order)
        return f"TopN order=[{order}] limit={self.limit}" + (f" offset={self.offset}" if self.offset else "")

    def cost(self) -> str:
        return f"changed rows + {self.offset + self.limit} rows in order"

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
    """Emits the difference between the top before and after the epoch.

    Invariant: the sum of all output chunks is the top of the sum of all input chunks.
    """

    def __init__(self, node: TopN, table: StateTable) -> None:
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
