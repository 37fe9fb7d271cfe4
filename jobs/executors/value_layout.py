"""The slots of one aggregation, and the grouping that reduces rows or states to one state per group."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain, islice
from operator import or_

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.by_identity import by_identity
from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import Result
from tussock.jobs.executors.aggregates.registry import aggregate_of
from tussock.jobs.executors.base import Positions, key_ids
from tussock.jobs.executors.distinct_state import DistinctValues
from tussock.jobs.executors.frequency_index import Frequencies
from tussock.jobs.executors.integer_groups import sums_by_integer
from tussock.jobs.executors.ordered_state import Ends
from tussock.jobs.executors.value_state import I64, Deposit, RowCount, Side, Slot, State
from tussock.jobs.kernels.kernel import Kernel
from tussock.statestore.nested import is_nested
from tussock.statestore.stacked import group_stacks, stack_columns, unstack_columns
from tussock.statestore.types import is_span
from tussock.statestore.vnode import one_array


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call, and the places of its slots in the layout. Calls of the same `kind` differ only in columns."""

    call: Agg
    slots: tuple[Slot, ...]
    places: tuple[int, ...]
    kind: Hashable


@dataclass(frozen=True)
class ValueLayout:
    """The slots of one aggregation, the row count first.

    `distinct[i]`: the distinct values whose appearance and disappearance slot i counts. None: it counts all rows.
    """

    slots: tuple[Slot, ...]
    distinct: tuple[DistinctValues | None, ...]
    calls: tuple[PlacedCall, ...]

    @cached_property
    def sides(self) -> tuple[Side, ...]:
        """The side states without repetition, in order of first use. One that follows another comes after it."""
        used = (side for slot, values in zip(self.slots, self.distinct, strict=True) for side in (slot.side, values))
        wanted = (
            (side.values, side) if isinstance(side, Frequencies) else (side,) for side in used if side is not None
        )
        return tuple(dict.fromkeys(chain.from_iterable(wanted)))

    def ends_of_side(self, side: Side) -> Ends | None:
        """How many rows of a side all slots together read from either end of a group. None: all rows."""
        asked = [slot.ends for slot in self.slots if slot.side == side]
        return None if not asked or None in asked else reduce(or_, [ends for ends in asked if ends is not None])

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The types of all state columns, in order."""
        return tuple(t for slot in self.slots for t in slot.types)

    @cached_property
    def _kinds(self) -> list[Hashable]:
        """Slots of equal kinds can be stacked."""
        alike = (slot.over_first() for slot in self.slots)
        return [
            place if slot is None else (slot, values)
            for place, (slot, values) in enumerate(zip(alike, self.distinct, strict=True))
        ]

    def split_by_slot(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[State]:
        """Split the state columns, in order, by slot."""
        rest = (one_array(c) for c in columns)
        return [list(islice(rest, len(slot.types))) for slot in self.slots]

    def group_rows(
        self, keys: Sequence[pa.Array], rows: pa.Table, weights: I64, counted: Mapping[Side, I64]
    ) -> tuple[list[pa.Array], list[State]]:
        """Group raw rows by `keys`; see `_group_stacks`.

        Args:
            counted: the weights with which rows count as distinct values.
        """
        stacks: list[_Stack] = []
        columns = {c: one_array(rows.column(c)) for slot in self.slots for c in slot.columns_read}
        read = [[columns[c] for c in slot.columns_read] for slot in self.slots]
        kinds = [
            (kind, *(c.type for c in columns_of_stack))
            for kind, columns_of_stack in zip(self._kinds, read, strict=True)
        ]
        for places in group_stacks(kinds, rows.num_rows, *_transpose_states(read)):
            of = self.distinct[places[0]]
            weight = weights if of is None else counted[of]
            if (alike := self.slots[places[0]].over_first()) is None or len(places) == 1:
                deposit = self.slots[places[0]].make_deposit(rows, weight)
            else:
                columns_of_stack = [stack_columns(parts) for parts in zip(*(read[i] for i in places), strict=True)]
                stacked = pa.table(columns_of_stack, names=[f"c{i}" for i in range(len(columns_of_stack))])
                deposit = alike.make_deposit(stacked, np.tile(weight, len(places)))
            stacks.append(_Stack(places, deposit))
        return self._group_stacks(keys, stacks)

    def group_states(self, keys: Sequence[pa.Array], states: Sequence[State]) -> tuple[list[pa.Array], list[State]]:
        """Group states by `keys`; see `_group_stacks`. Requires: no slot has a side."""
        stacks = [
            _Stack(places, self.slots[places[0]].deposit_of_state(stacked))
            for places, stacked in self._stack_states(states, len(states[0][0]))
        ]
        return self._group_stacks(keys, stacks)

    def add_changes(self, before: Sequence[State], change: Sequence[State]) -> list[State]:
        """The states after a change, for the slots without a side. Slots with one keep `before`."""
        after = list(before)
        both = [
            [*old, *new] if slot.side is None else [] for slot, old, new in zip(self.slots, before, change, strict=True)
        ]
        for places, stacked in self._stack_states(both, len(before[0][0])):
            if stacked:
                half = len(stacked) // 2
                _unstack_into(self.slots[places[0]].add_change(stacked[:half], stacked[half:]), places, after)
        return after

    def compute_results(self, states: Sequence[State], rows: int, kernel: Kernel) -> Iterator[tuple[list[int], Result]]:
        """The results of calls of one kind, stacked, and which calls they are."""
        columns = [[column for i in placed.places for column in states[i]] for placed in self.calls]
        for numbers in group_stacks([placed.kind for placed in self.calls], rows, *_transpose_states(columns)):
            first = self.calls[numbers[0]]
            stacked = iter([stack_columns(parts) for parts in zip(*(columns[n] for n in numbers), strict=True)])
            states_of_call = [list(islice(stacked, len(states[i]))) for i in first.places]
            yield numbers, aggregate_of(first.call).compute_result(first.call, first.slots, states_of_call, kernel)

    def _stack_states(self, states: Sequence[State], rows: int) -> Iterator[tuple[list[int], State]]:
        """The states of slots of one kind, stacked, and the places of these slots."""
        for places in group_stacks(self._kinds, rows, *_transpose_states(states)):
            yield places, [stack_columns(parts) for parts in zip(*(states[i] for i in places), strict=True)]

    def _group_stacks(self, keys: Sequence[pa.Array], stacks: "Sequence[_Stack]") -> tuple[list[pa.Array], list[State]]:
        """Group by `keys` (normalised; if empty, there is one group) and compute one state per group and slot.

        Returns: the distinct keys, in an order that depends on the rows alone, and the collected columns per slot.
        Cost: one grouping for all slots. A column that several slots need is summed once.
        """
        wanted: dict[tuple[Hashable, str], tuple[pa.Array, str]] = {}
        asked = [[(_identity_of(column), function) for column, function in stack.deposit.columns] for stack in stacks]
        for stack, names in zip(stacks, asked, strict=True):
            wanted |= zip(names, stack.deposit.columns, strict=True)
        distinct, values = _aggregate_groups(keys, list(wanted.values()))
        value_by_name = dict(zip(wanted, values, strict=True))
        states: list[State] = [[]] * len(self.slots)
        for stack, names in zip(stacks, asked, strict=True):
            _unstack_into(stack.deposit.collect([value_by_name[name] for name in names]), stack.places, states)
        return distinct, states


@dataclass(frozen=True, slots=True)
class _Stack:
    """The deposit of slots of one kind, whose columns are stacked, and the places of these slots."""

    places: list[int]
    deposit: Deposit


def _unstack_into(stacked: State, places: Sequence[int], into: list[State]) -> None:
    """Put the columns of a stack at the places of its slots."""
    for place, *state in zip(places, *(unstack_columns(column, len(places)) for column in stacked), strict=True):
        into[place] = state


def _transpose_states(states: Sequence[State]) -> list[list[pa.Array]]:
    """The i-th column of each state, for each i. States with fewer columns have their last one again."""
    most, nothing = max(map(len, states), default=0), pa.nulls(0)
    return [[state[min(i, len(state) - 1)] if state else nothing for state in states] for i in range(most)]


def _identity_of(column: pa.Array) -> Hashable:
    """Equal for two views of the same memory, such as the weights of rows without NULLs."""
    return column.type.id, column.offset, len(column), *(None if b is None else b.address for b in column.buffers())


@by_identity
def value_layout(calls: Sequence[Agg], append_only: bool) -> ValueLayout:
    """The slots that these calls need, without repetition, in order of first use. Raises UnsupportedTypeError.

    Cost: paid by the first call with the same object; a node keeps its calls from epoch to epoch.
    """
    slots: dict[tuple[Slot, DistinctValues | None], int] = {(RowCount(), None): 0}
    placed = []
    for call in calls:
        own = slots_of(call, append_only)
        places = tuple(slots.setdefault(slot, len(slots)) for slot in own)
        alike = tuple(slot.over_first() or place for (slot, _), place in zip(own, places, strict=True))
        kind = msgspec.structs.replace(call, arg=None, more=(), order=()), alike
        placed.append(PlacedCall(call, tuple(slot for slot, _ in own), places, kind))
    return ValueLayout(tuple(slot for slot, _ in slots), tuple(values for _, values in slots), tuple(placed))


def slots_of(call: Agg, append_only: bool) -> tuple[tuple[Slot, DistinctValues | None], ...]:
    """The slots of one call, in the order of its result's arguments, each with the distinct values that it counts.

    Slots that hold a result handle DISTINCT themselves.
    """
    slots = aggregate_of(call).make_slots(call, append_only)
    values = DistinctValues(call.args, call.arg_types) if call.distinct else None
    return tuple((slot, values if slot.side is None else None) for slot in slots)


def _aggregate_groups(
    keys: Sequence[pa.Array], wanted: Sequence[tuple[pa.Array, str]]
) -> tuple[list[pa.Array], list[pa.Array]]:
    """The distinct keys, and each column aggregated to one value per key by its function.

    A stack of columns becomes a stack of as many columns.
    """
    rows = len(keys[0]) if keys else min(len(column) for column, _ in wanted)
    stacked = any(len(column) > rows for column, _ in wanted)
    if stacked or any(is_nested(key.type) for key in keys):  # Arrow cannot group by nested keys: numbers replace them
        ids, first = key_ids(keys, rows)
        return [key.take(pa.array(first)) for key in keys], [_by_number(ids, len(first), *one) for one in wanted]
    only_sums = len(keys) == 1 and all(function == "sum" for _, function in wanted)
    if only_sums and (summed := sums_by_integer(keys[0], [column for column, _ in wanted])) is not None:
        return [summed[0]], summed[1]
    names = [f"k{i}" for i in range(len(keys))]
    # Arrow can compare integers, but not intervals.
    columns = [column.view(pa.int64()) if is_span(column.type) else column for column, _ in wanted]
    table = pa.table([*keys, *columns], names=[*names, *(f"a{i}" for i in range(len(wanted)))])
    grouped = table.group_by(names, use_threads=False).aggregate(
        [(f"a{i}", function) for i, (_, function) in enumerate(wanted)]
    )
    # Take the columns by name: their order differs between versions of Arrow.
    aggregates = [one_array(grouped[f"a{i}_{function}"]) for i, (_, function) in enumerate(wanted)]
    values = [
        v.view(column.type) if is_span(column.type) else v for v, (column, _) in zip(aggregates, wanted, strict=True)
    ]
    return [one_array(grouped[name]) for name in names], values


def _by_number(ids: Positions, groups: int, column: pa.Array, function: str) -> pa.Array:
    """A stack of columns aggregated by the numbers of its rows' groups: the values of group 0, 1, … for each column."""
    count = len(column) // len(ids)
    numbers = (np.arange(count)[:, None] * groups + ids).ravel()
    (group_numbers,), (values,) = _aggregate_groups([pa.array(numbers)], [(column, function)])
    return values.take(pc.sort_indices(group_numbers))
