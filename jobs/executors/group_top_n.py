"""GroupTopN: the first rows of each group in an order, with their numbers, for a window function with `number <= k`.

State: all rows of the input as `group | order | stream key`, so that a group's first rows come first, followed by the
rows that can move up. In insert-only input no row moves up, and the state has each group's first rows only.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, chunk_of_difference, empty_chunk, rows_of
from tussock.jobs.executors.base import (
    Positions,
    WithStored,
    net_chunk,
    no_columns,
    state_table,
    take_rows,
    weights_of,
    write_changes,
)
from tussock.jobs.executors.operator import (
    Actor,
    ComputedColumn,
    Executor,
    Origin,
    PassedColumn,
    PlainNode,
    column_list,
)
from tussock.jobs.executors.order import TIES, Order, leaves_ties
from tussock.jobs.executors.unbounded import TIES_OF_RANKS, UnboundedCost
from tussock.jobs.executors.window_call import FrameEnd, Over
from tussock.jobs.executors.window_frame import Before, OrderedRows, ordered_key
from tussock.jobs.executors.window_values import values_of
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import FrameEdge, WindowFunction
from tussock.statestore.hummock.sorted_keys import differs_from_previous, probe_order, successors, take_keys
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.table.state_table import StateTable

_FURTHER = 4  # factor by which the next read grows if ties continue


class GroupTopN(PlainNode, frozen=True):
    """Input rows with a number of at most `limit` in their group, and the number.

    `function` numbers the rows: row_number, rank or dense_rank.
    """

    group: tuple[int, ...]
    order: tuple[Order, ...]
    stream_key: tuple[int, ...]
    distribution: tuple[int, ...]  # a subset of the group's columns
    function: WindowFunction
    limit: int
    input_types: tuple[str, ...]
    types: tuple[str, ...]
    append_only: bool = False  # whether the input is

    @property
    def key(self) -> tuple[KeyColumn, ...]:
        """The state's key."""
        return ordered_key(self.group, self.order, self.stream_key)[0]

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The rows by group, in order."""
        return (state_table("group_top_n", self.input_types, self.key, self.distribution),)

    def column_origins(self) -> tuple[Origin, ...]:
        return (
            *(PassedColumn(i) for i in range(len(self.input_types))),
            ComputedColumn(self._window_call.explain_text()),
        )

    def explain_text(self) -> str:
        order = ", ".join(o.explain_text() for o in self.order)
        notes = " append-only" if self.append_only else ""
        limited = f"{self._window_call.explain_text()} <= {self.limit}"
        return f"GroupTopN group=[{column_list(self.group)}] order=[{order}] {limited}{notes}"

    def describe_cost(self) -> str:
        if self.function is not WindowFunction.ROW_NUMBER:
            return f"changed rows + {self.limit} per touched group and their ties"
        ties = f"; {TIES}" if leaves_ties((*self.group, *(o.column for o in self.order)), self.stream_key) else ""
        return f"changed rows + {self.limit} per touched group{ties}"

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        return () if self.function is WindowFunction.ROW_NUMBER else (TIES_OF_RANKS,)

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return GroupTopNExecutor(self, tables[0], actor.kernel)

    @property
    def _window_call(self) -> Over:
        return Over(self.function, (), None, "int", True, FrameEnd(FrameEdge.UNBOUNDED), FrameEnd(FrameEdge.CURRENT))

    def number_rows(self, rows: pa.Table, group: Positions, groups: int, kernel: Kernel) -> pa.Table:
        """Number rows that start at the beginning of their groups."""
        nothing = np.zeros(groups, np.int64)
        at = OrderedRows(
            rows, group, ordered_key(self.group, self.order, self.stream_key)[1], Before(nothing, nothing, nothing)
        )
        numbers = values_of(self._window_call, at, [], kernel).values
        return pa.table([*rows.columns, numbers], names=[f"c{i}" for i in range(rows.num_columns + 1)])


class GroupTopNExecutor:
    """Emits the difference between the touched groups' first rows before and after the epoch.

    Invariant: the sum of all output chunks is the first rows of each group in the sum of all input chunks.
    """

    def __init__(self, node: GroupTopN, table: StateTable, kernel: Kernel) -> None:
        self._node, self._table, self._kernel = node, table, kernel
        self._key = tuple(k.column for k in node.key)

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises ChangeError if a row is inserted or deleted twice.

        Cost: a scan of each touched group's first rows, up to the limit and its ties, and another if it loses a row.
        """
        changes = net_chunk(chunks[0])
        if changes.num_rows == 0:
            return empty_chunk(self._node.types)
        if self._node.append_only:
            return self._among_first(rows_of(changes))
        prefixes = self._group_prefixes(changes)
        before = self._first_rows(_sorted_prefixes(prefixes))
        inserted = write_changes(changes, self._table, self._key)
        if inserted is None:
            after = self._rows_after(changes, prefixes, before)
        else:
            after = self._rows_after_inserts(inserted, before)
        return net_chunk(chunk_of_difference(before, after))

    def _rows_after_inserts(self, inserted: pa.Table, before: pa.Table) -> pa.Table:
        """The first rows of the groups of inserted rows, which are in the table's order.

        Cost: no sort of all rows, of which a first load has millions: only the first ones of each group are compared
            with the stored ones.
        """
        numbered = self._number_rows(inserted)
        within = pa.array(self._is_within_limit(numbered))
        if not before.num_rows:
            return numbered.filter(within)
        first = before.select(range(inserted.num_columns))
        both = self._number_rows(WithStored.from_rows(self._table, self._key, first, inserted.filter(within)).rows)
        return both.filter(pa.array(self._is_within_limit(both)))

    def _rows_after(self, changes: pa.Table, prefixes: pa.BinaryArray, before: pa.Table) -> pa.Table:
        """The first rows of the changed groups after the changes, which the state has already.

        Only groups that lose a row are read: in the others, no row moves up.

        Args:
            prefixes: of the changes' groups.
            before: the first rows before the changes.
        """
        goes = weights_of(changes) < 0
        read = _sorted_prefixes(prefixes.filter(pa.array(goes)))
        stays = pc.invert(pc.is_in(self._group_prefixes(before), value_set=read))
        comes = pc.and_(pc.invert(pc.is_in(prefixes, value_set=read)), pa.array(~goes))
        columns = range(before.num_columns - 1)
        first, coming = before.filter(stays).select(columns), rows_of(changes).filter(comes)
        both = self._number_rows(WithStored.from_rows(self._table, self._key, first, coming).rows)
        return pa.concat_tables([both.filter(pa.array(self._is_within_limit(both))), self._first_rows(read)])

    def _among_first(self, coming: pa.Table) -> pa.Table:
        """Process insert-only changes.

        A row beyond the limit among the new rows of its group needs no comparison with stored rows.
        """
        arriving = WithStored.from_rows(self._table, self._key, coming.slice(0, 0), coming).rows
        contenders = arriving.filter(pa.array(self._is_within_limit(self._number_rows(arriving))))
        before = self._first_rows(_distinct_prefixes(self._group_prefixes(contenders)))
        both = WithStored.from_rows(self._table, self._key, before.select(range(coming.num_columns)), contenders)
        after = self._number_rows(both.rows)
        within = self._is_within_limit(after)
        both.keep_rows(within)
        return net_chunk(chunk_of_difference(before, after.filter(pa.array(within))))

    def _number_rows(self, rows: pa.Table) -> pa.Table:
        """Number rows in the table's order that start at the beginning of their groups."""
        first = differs_from_previous(self._group_prefixes(rows))
        return self._node.number_rows(rows, np.cumsum(first) - 1, int(first.sum()), self._kernel)

    def _is_within_limit(self, numbered: pa.Table) -> npt.NDArray[np.bool_]:
        within: npt.NDArray[np.bool_] = numbered.column(numbered.num_columns - 1).to_numpy() <= self._node.limit
        return within

    def _group_prefixes(self, rows: pa.Table) -> pa.BinaryArray:
        """The key prefix of each row's group."""
        columns = list(dict.fromkeys(self._node.group))
        return self._table.layout.prefixes_of(rows.select(columns) if columns else no_columns(rows.num_rows))

    def _first_rows(self, groups: pa.BinaryArray) -> pa.Table:
        """All rows of the groups whose number is within the limit."""
        node, parts = self._node, []
        ties = node.function is not WindowFunction.ROW_NUMBER
        asked = node.limit + ties  # one row beyond the limit shows that no tie continues
        ends = successors(groups)
        while len(groups):
            read = self._table.scan_between(groups, ends, asked)
            group = read.index.to_numpy()
            rows = node.number_rows(read.rows, group, len(groups), self._kernel)
            within = self._is_within_limit(rows)
            more = np.zeros(len(groups), np.bool_)
            if ties:
                more = np.bincount(group[within], minlength=len(groups)) == asked
            parts.append(take_rows(rows, np.flatnonzero(within & ~more[group])))
            groups, ends, asked = groups.filter(pa.array(more)), ends.filter(pa.array(more)), asked * _FURTHER
        return pa.concat_tables(parts) if parts else empty_chunk(self._node.types).drop_columns([WEIGHT])


def _sorted_prefixes(prefixes: pa.BinaryArray) -> pa.BinaryArray:
    """The distinct prefixes, ascending."""
    return _distinct_prefixes(take_keys(prefixes, probe_order(prefixes))) if len(prefixes) else prefixes


def _distinct_prefixes(prefixes: pa.BinaryArray) -> pa.BinaryArray:
    """Remove repeated prefixes. Requires: they ascend."""
    return prefixes.filter(pa.array(differs_from_previous(prefixes)))
