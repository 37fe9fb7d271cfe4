"""HashAgg: groups and their aggregates (aggregates/), maintained under inserts and deletes.

State: `agg_values`, group key -> (row count, slots of the calls; see value_state). The side states that slots read
(ordered_state, distinct_state, frequency_index) each have their own table.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import chunk_of_difference, empty_chunk, some_rows
from tussock.jobs.executors.agg_call import Agg, calls_text
from tussock.jobs.executors.aggregates.registry import aggregate_of
from tussock.jobs.executors.base import NO_ROW, change_error, no_columns, state_table
from tussock.jobs.executors.distinct_state import DistinctState
from tussock.jobs.executors.frequency_index import Frequencies
from tussock.jobs.executors.operator import (
    Actor,
    ComputedColumn,
    Executor,
    Origin,
    PassedColumn,
    PlainNode,
    TakesPieces,
    column_list,
    show_row,
)
from tussock.jobs.executors.ordered_state import OrderedLayout
from tussock.jobs.executors.partial_agg import group_partials, group_rows, sum_pieces
from tussock.jobs.executors.unbounded import UnboundedCost
from tussock.jobs.executors.value_layout import value_layout
from tussock.jobs.executors.value_state import Side, SideState, State
from tussock.jobs.kernels.kernel import Kernel
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.stacked import arrays_of, take_from, unstack_columns
from tussock.statestore.table.state_table import StateTable


class HashAgg(PlainNode, frozen=True):
    """Group rows. The output has the keys, then one column per call; the stream key is the keys.

    With `partial`, the input is PartialAgg's output, otherwise raw rows. Without keys, the node is a singleton that
    emits its row from its first epoch on, even without input.
    """

    input_types: tuple[str, ...]  # of the raw rows, even if `partial`
    keys: tuple[int, ...]  # in the raw rows; if `partial`, the key columns come first in the input
    calls: tuple[Agg, ...]
    input_stream_key: tuple[int, ...]  # in the raw rows
    append_only: bool  # whether the input is
    partial: bool
    types: tuple[str, ...]

    @property
    def emits_without_input(self) -> bool:
        return not self.keys

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The value states, then the side states in slot order. Raises UnsupportedTypeError."""
        layout = value_layout(self.calls, self.append_only)
        keys = range(len(self.keys))
        types = (*(self.input_types[k] for k in self.keys), *layout.types)
        values = state_table("agg_values", types, [KeyColumn(k) for k in keys], keys)
        return (
            values,
            *(side.table_schema(self.input_types, self.keys, self.input_stream_key) for side in layout.sides),
        )

    def column_origins(self) -> tuple[Origin, ...]:
        keys = range(len(self.keys)) if self.partial else self.keys
        calls = (
            ComputedColumn(f"{c.function.sql}(…)" if self.partial and c.arg is not None else c.explain_text())
            for c in self.calls
        )
        return (*(PassedColumn(k) for k in keys), *calls)

    def explain_text(self) -> str:
        notes = " append-only" if self.append_only else ""
        return f"HashAgg keys=[{column_list(self.keys)}] calls=[{calls_text(self.calls)}]{notes}"

    def describe_cost(self) -> str:
        notes = [
            f"{call.function.sql}: {note}" for call in self.calls if (note := aggregate_of(call).explain_note(call))
        ]
        return "; ".join(["changed rows + touched groups", *dict.fromkeys(notes)])

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        costs = (aggregate_of(call).unbounded_cost(call) for call in self.calls)
        return tuple(dict.fromkeys(cost for cost in costs if cost is not None))

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return HashAggExecutor(self, tables, actor.kernel)


class HashAggExecutor(TakesPieces):
    """One row per live group. Without keys, there is one row from the first epoch on, even for empty input.

    Invariant: the sum of all output chunks is the batch answer over the sum of all input chunks. Group keys are
    normalised, as Spark does. Sums over the same column share their state.
    """

    def __init__(self, node: HashAgg, tables: Sequence[StateTable], kernel: Kernel) -> None:
        """`tables`: in the layout of `state_tables(node)`."""
        self._node, self._kernel = node, kernel
        self._layout = value_layout(node.calls, node.append_only)
        self._values = tables[0]
        self._sides: dict[Side, SideState] = {}
        for side, table in zip(self._layout.sides, tables[1:], strict=True):
            self._sides[side] = self._open_side(side, table)

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Process one chunk: raw rows, or PartialAgg's output if the node is `partial`.

        Raises:
            ChangeError: more rows of a group are deleted than it has.
            AggregateOverflowError, AggregateDivisionError: Spark raises on a group's final rows.

        Cost: one grouping of the input, one `get_rows` of the touched groups, and the slots' reads of their side
            states.
        """
        (chunk,) = chunks
        node = self._node
        if chunk.num_rows == 0 and node.keys:
            return empty_chunk(node.types)
        counted = {side: state.apply_chunk(chunk) for side, state in self._sides.items()}
        if node.partial:
            return self._apply_and_diff(*group_partials(self._layout, chunk, len(node.keys)))
        return self._apply_and_diff(*group_rows(self._layout, chunk, node.keys, counted))

    def process_pieces(self, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The change for all pieces.

        Pieces are summed separately, unless side states need all rows. Raises the errors of `apply`.
        """
        if self._node.partial or self._sides:
            yield self.apply(pa.concat_tables([empty_chunk(self._node.input_types), *pieces]))
        elif (summed := sum_pieces(self._layout, pieces, self._node.keys)) is None:
            yield self.apply(empty_chunk(self._node.input_types))
        else:
            yield self._apply_and_diff(*group_partials(self._layout, summed, len(self._node.keys)))

    def _open_side(self, side: Side, table: StateTable) -> SideState:
        node = self._node
        if isinstance(side, Frequencies):
            values = self._sides[side.values]
            assert isinstance(values, DistinctState)
            return side.open_state(values, table)
        if isinstance(side, OrderedLayout) and node.append_only:
            return side.open_state(node.keys, node.input_stream_key, table, self._layout.ends_of_side(side))
        return side.open_state(node.keys, node.input_stream_key, table)

    def _apply_and_diff(self, keys: Sequence[pa.Array], change: Sequence[State]) -> pa.Table:
        """Apply the groups' changes to the state and return the output change."""
        located = self._values.locate_keys(
            _groups_of(keys)
        )  # from here on, rows are in the state's order, even in the output
        if not located.as_given:
            moved = iter(take_from([*keys, *(column for state in change for column in state)], located.order))
            keys = [*islice(moved, len(keys))]
            change = [[*islice(moved, len(state))] for state in change]
        groups = _groups_of(keys)
        stored_groups = self._values.get_located(located)
        before = self._layout.split_by_slot(stored_groups.rows.columns[len(keys) :])
        after = self._advance_states(groups, before, change)
        rows = after[0][0].to_numpy(zero_copy_only=False)
        if rows.min(initial=0) < 0:
            raise change_error(self._values.name, NO_ROW, groups, int(np.flatnonzero(rows < 0)[0]))
        existed = stored_groups.found.to_numpy(zero_copy_only=False)
        live = (rows > 0) | (not keys)
        states = pa.table(
            [*keys, *(column for state in after for column in state)], names=stored_groups.rows.column_names
        )
        # Changes of several senders may cancel out, or have cancelled out before if one unit sent them all. Neither
        # writes the group. Its key is the same, so only the other columns are compared.
        changed = ~(
            existed
            & live
            & same_rows(_columns_after_key(stored_groups.rows, len(keys)), _columns_after_key(states, len(keys)))
        )
        self._values.replace_located(located, states, existed & changed, live & changed)
        old, new = self._output_rows(groups, before, existed), self._output_rows(groups, after, live)
        same = existed & live & same_rows(_columns_after_key(old, len(keys)), _columns_after_key(new, len(keys)))
        return chunk_of_difference(some_rows(old, existed & ~same), some_rows(new, live & ~same))

    def _advance_states(self, groups: pa.Table, before: Sequence[State], change: Sequence[State]) -> list[State]:
        after = self._layout.add_changes(before, change)
        for place, slot in enumerate(self._layout.slots):
            if slot.side is not None:
                after[place] = slot.read_state(self._sides[slot.side], groups, before[place], change[place])
        return after

    def _output_rows(self, groups: pa.Table, states: Sequence[State], there: np.ndarray) -> pa.Table:
        """(n,) the output rows of existing groups; rows of others are undefined. Raises the errors of `apply`."""
        calls = self._layout.calls
        if not calls and not groups.num_columns:  # DISTINCT of no columns
            return no_columns(groups.num_rows)
        values: dict[int, pa.Array] = {}
        for numbers, result in self._layout.compute_results(states, groups.num_rows, self._kernel):
            call = calls[numbers[0]].call
            if result.bad is not None and call.mode != "TRY":
                bad = result.bad.reshape(len(numbers), -1) & there
                if (groups_of_bad := np.flatnonzero(bad.any(axis=0))).size:
                    raise result.error(call.function, call.type, show_row(groups, int(groups_of_bad[0])))
            values |= zip(numbers, unstack_columns(result.values, len(numbers)), strict=True)
        columns = [*arrays_of(groups), *(values[i] for i in range(len(calls)))]
        return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])


def _columns_after_key(rows: pa.Table, keys: int) -> pa.Table:
    """The columns after the key. Cost: none."""
    return rows.select(range(keys, rows.num_columns))


def _groups_of(keys: Sequence[pa.Array]) -> pa.Table:
    """The groups' keys as a table. Without keys, the only group is a row without columns."""
    return pa.table(keys, names=[f"c{i}" for i in range(len(keys))]) if keys else no_columns(1)
