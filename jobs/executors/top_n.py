"""TopN: the rows offset .. offset + limit in an order, or all but the first rows.

A singleton; the stream key breaks ties.

State: all rows of the input as `order | stream key`, so that the top rows come first, followed by the rows that can
move up. In insert-only input no row moves up, and the state has the first offset + limit rows only.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import chunk_of_difference, empty_chunk, rows_of
from tussock.jobs.executors.base import WithStored, net_chunk, no_columns, state_table, write_changes
from tussock.jobs.executors.operator import Actor, Executor, PlainNode
from tussock.jobs.executors.order import TIES, Order, leaves_ties, table_key
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import StateTable


class TopNNode(PlainNode, frozen=True, tag="TopN"):
    """The rows offset .. offset + limit of the input in `order`; without a limit, all rows from offset on.

    A singleton; the stream key breaks ties. State: `order | stream key -> row` for all rows, or for the first rows if
    the input is `append_only`.
    """

    order: tuple[Order, ...]
    limit: int | None
    offset: int
    stream_key: tuple[int, ...]
    types: tuple[str, ...]
    append_only: bool = False  # whether the input is

    @property
    def key(self) -> tuple[KeyColumn, ...]:
        """The state's key. If a column repeats, its first occurrence counts."""
        return table_key(self.order, self.stream_key)

    @property
    def first_count(self) -> int:
        """How many of the first rows determine the output."""
        return self.offset + (self.limit or 0)

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The rows in order."""
        return (state_table("top_n", self.types, self.key, ()),)

    def explain_text(self) -> str:
        order = ", ".join(o.explain_text() for o in self.order)
        limit = "none" if self.limit is None else self.limit
        notes = (f" offset={self.offset}" if self.offset else "") + (" append-only" if self.append_only else "")
        return f"TopN order=[{order}] limit={limit}{notes}"

    def describe_cost(self) -> str:
        ties = f"; {TIES}" if leaves_ties([o.column for o in self.order], self.stream_key) else ""
        return f"changed rows + {self.first_count} rows in order{ties}"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return TopNExecutor(self, tables[0])


class TopNExecutor:
    """Emits the difference between the top before and after the epoch.

    Without a limit, the output is all rows X except the first rows F. Since Δ(X − F) = ΔX − ΔF, this too
    reads only F.

    Invariant: the sum of all output chunks is the top of the sum of all input chunks.
    """

    def __init__(self, node: TopNNode, table: StateTable) -> None:
        self._node, self._table = node, table

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises ChangeError if a row is inserted or deleted twice.

        Cost: two scans of the first offset + limit rows.
        """
        changes = net_chunk(chunks[0])
        if changes.num_rows == 0:
            return empty_chunk(self._node.types)
        node, key = self._node, tuple(k.column for k in self._node.key)
        before = self._first_rows()
        if node.append_only:
            both = WithStored.from_rows(self._table, key, before, rows_of(changes))
            both.keep_rows(np.arange(both.rows.num_rows) < node.first_count)
            after = both.rows.slice(0, node.first_count)
        else:
            write_changes(changes, self._table, key)
            after = self._first_rows()
        if node.limit is None:
            return net_chunk(pa.concat_tables([changes, chunk_of_difference(after, before)]))
        return net_chunk(chunk_of_difference(before.slice(node.offset), after.slice(node.offset)))

    def _first_rows(self) -> pa.Table:
        return self._table.scan_prefix(no_columns(1), limit=self._node.first_count).rows
