"""GroupTopN: the first rows of each group in an order, with their numbers: what remains of a window function under `number <= k`.

State: all rows of the input under `group | order | stream key`, so that a group's first rows lie first and those that move up follow them.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from jobs.executors.base import Positions, net, no_columns, state_table, take_rows, write_changes
from jobs.executors.operator import Actor, Computed, Executor, Origin, Passed, PlainNode, column_list
from jobs.executors.order import Order
from jobs.executors.window_call import Edge, Over
from jobs.executors.window_frame import Before, OrderedRows, ordered_key
from jobs.executors.window_values import values_of
from jobs.flow.chunk import difference, empty_chunk
from jobs.kernels.kernel import Kernel
from jobs.sql.logical import FrameEdge, WindowFunction
from statestore.hummock.sorted_keys import differs_from_previous, probe_order, successors, take_keys
from statestore.meta.catalog import KeyColumn, TableSchema
from statestore.table.state_table import StateTable

_FURTHER = 4  # times as many rows of a group where ties hold those read below the limit


class GroupTopN(PlainNode, frozen=True):
    """Input rows whose number in their group (`function`: row_number, rank or dense_rank) is at most `limit`, and the number."""

    group: tuple[int, ...]
    order: tuple[Order, ...]
    stream_key: tuple[int, ...]
    distribution: tuple[int, ...]  # some of the group's columns
    function: WindowFunction
    limit: int
    input_types: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def key(self) -> tuple[KeyColumn, ...]:
        """The state's key."""
        return ordered_key(self.group, self.order, self.stream_key)[0]

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The rows, by group in order."""
        return (state_table("group_top_n", self.input_types, self.key, self.distribution),)

    def lineage(self) -> tuple[Origin, ...]:
        return (*(Passed(i) for i in range(len(self.input_types))), Computed(self._call.text()))

    def text(self) -> str:
        order = ", ".join(o.text() for o in self.order)
        return f"GroupTopN group=[{column_list(self.group)}] order=[{order}] {self._call.text()} <= {self.limit}"

    def cost(self) -> str:
        ties = "" if self.function is WindowFunction.ROW_NUMBER else " and their ties"
        return f"changed rows + {self.limit} per group touched{ties}"

    def executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return GroupTopNExecutor(self, tables[0], actor.kernel)

    @property
    def _call(self) -> Over:
        return Over(self.function, (), None, "int", True, Edge(FrameEdge.UNBOUNDED), Edge(FrameEdge.CURRENT))

    def numbered(self, rows: pa.Table, group: Positions, groups: int, kernel: Kernel) -> pa.Table:
        """Rows from the beginning of their groups on, and their numbers."""
        nothing = np.zeros(groups, np.int64)
        at = OrderedRows(rows, group, ordered_key(self.group, self.order, self.stream_key)[1], Before(nothing, nothing, nothing))
        numbers = values_of(self._call, at, [], kernel).values
        return pa.table([*rows.columns, numbers], names=[f"c{i}" for i in range(rows.num_columns + 1)])


class GroupTopNExecutor:
    """Emits the difference between the touched groups' first rows before and after the epoch.

    Invariant: the sum of all output chunks is the first rows of each group of the sum of all input chunks.
    """

    def __init__(self, node: GroupTopN, table: StateTable, kernel: Kernel) -> None:
        self._node, self._table, self._kernel = node, table, kernel

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises ChangeError when a row came or went twice.

        Cost: two scans of each touched group's first rows, to the limit and its ties.
        """
        changes = net(chunks[0])
        if changes.num_rows == 0:
            return empty_chunk(self._node.types)
        groups = self._groups(changes)
        before = self._first_rows(groups)
        write_changes(changes, self._table, tuple(k.column for k in self._node.key))
        return net(difference(before, self._first_rows(groups)))

    def _groups(self, changes: pa.Table) -> pa.BinaryArray:
        """What the keys of each touched group begin with."""
        columns = list(dict.fromkeys(self._node.group))
        prefixes = self._table.layout.prefixes_of(changes.select(columns) if columns else no_columns(changes.num_rows))
        ordered = take_keys(prefixes, probe_order(prefixes))
        return ordered.filter(pa.array(differs_from_previous(ordered)))

    def _first_rows(self, groups: pa.BinaryArray) -> pa.Table:
        """All rows of the groups whose number is within the limit."""
        node, found = self._node, []
        ties = node.function is not WindowFunction.ROW_NUMBER
        asked = node.limit + ties  # one row past the limit shows that no tie goes on
        ends = successors(groups)
        while len(groups):
            read = self._table.scan_between(groups, ends, asked)
            group = read.index.to_numpy()
            rows = node.numbered(read.rows, group, len(groups), self._kernel)
            within = rows.column(rows.num_columns - 1).to_numpy() <= node.limit
            more = np.zeros(len(groups), np.bool_)
            if ties:
                more = np.bincount(group[within], minlength=len(groups)) == asked
            found.append(take_rows(rows, np.flatnonzero(within & ~more[group])))
            groups, ends, asked = groups.filter(pa.array(more)), ends.filter(pa.array(more)), asked * _FURTHER
        return pa.concat_tables(found)
