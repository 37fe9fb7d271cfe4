"""The slots of one aggregation, and the grouping that reduces rows or states to one state per group."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import pyarrow as pa

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.aggregates.registry import aggregate_of
from tussock.jobs.executors.base import key_ids
from tussock.jobs.executors.distinct_state import DistinctValues
from tussock.jobs.executors.integer_groups import sums_by_integer
from tussock.jobs.executors.ordered_state import Ends
from tussock.jobs.executors.value_state import Deposit, RowCount, Side, Slot, State
from tussock.statestore.nested import is_nested
from tussock.statestore.types import is_span
from tussock.statestore.vnode import one_array


@dataclass(frozen=True, slots=True)
class ValueLayout:
    """The slots of one aggregation, the row count first.

    `distinct[i]`: the distinct values whose appearance and disappearance slot i counts. None: it counts all rows.
    """

    slots: tuple[Slot, ...]
    distinct: tuple[DistinctValues | None, ...]

    @property
    def sides(self) -> tuple[Side, ...]:
        """The side states without repetition, in order of first use."""
        wanted = (side for slot, values in zip(self.slots, self.distinct, strict=True) for side in (slot.side, values))
        return tuple(dict.fromkeys(side for side in wanted if side is not None))

    def ends(self, side: Side) -> Ends | None:
        """How many rows of a side all slots together read from either end of a group. None: all rows."""
        asked = [slot.ends for slot in self.slots if slot.side == side]
        return None if not asked or None in asked else reduce(or_, [ends for ends in asked if ends is not None])

    @property
    def types(self) -> tuple[str, ...]:
        """The types of all state columns, in order."""
        return tuple(t for slot in self.slots for t in slot.types)

    def split(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[State]:
        """Split the state columns, in order, by slot."""
        rest = [one_array(c) for c in columns]
        states: list[State] = []
        for slot in self.slots:
            states.append(rest[: len(slot.types)])
            rest = rest[len(slot.types) :]
        return states

    def group(self, keys: Sequence[pa.Array], deposits: Sequence[Deposit]) -> tuple[list[pa.Array], list[State]]:
        """Group by `keys` (normalised; if empty, there is one group) and compute one state per group and slot.

        Returns: the distinct keys, in an order that depends on the rows alone, and the collected columns per slot.
        Cost: one grouping for all slots. A column that several slots need is summed once.
        """
        wanted: list[tuple[pa.Array, str]] = []
        places: list[int] = []  # the index in `wanted` of each deposit column, in order
        for column, function in (item for deposit in deposits for item in deposit.columns):
            same = (i for i, (other, done) in enumerate(wanted) if done == function and other.equals(column))
            if (place := next(same, len(wanted))) == len(wanted):
                wanted.append((column, function))
            places.append(place)
        distinct, values = _grouped(keys, wanted)
        found = iter([values[place] for place in places])
        return distinct, [deposit.collect([next(found) for _ in deposit.columns]) for deposit in deposits]


def value_layout(calls: Sequence[Agg], append_only: bool) -> ValueLayout:
    """The slots that these calls need, without repetition, in order of first use. Raises UnsupportedTypeError."""
    slots: dict[tuple[Slot, DistinctValues | None], None] = {(RowCount(), None): None}
    for call in calls:
        for kept in slots_of(call, append_only):
            slots.setdefault(kept)
    return ValueLayout(tuple(slot for slot, _ in slots), tuple(values for _, values in slots))


def slots_of(call: Agg, append_only: bool) -> tuple[tuple[Slot, DistinctValues | None], ...]:
    """The slots of one call, in the order of its result's arguments, each with the distinct values that it counts.

    Slots that hold a result handle DISTINCT themselves.
    """
    slots = aggregate_of(call).slots(call, append_only)
    values = DistinctValues(call.args, call.arg_types) if call.distinct else None
    return tuple((slot, values if slot.side is None else None) for slot in slots)


def _grouped(keys: Sequence[pa.Array], wanted: Sequence[tuple[pa.Array, str]]) -> tuple[list[pa.Array], list[pa.Array]]:
    """The distinct keys, and each column aggregated to one value per key by its function."""
    if any(is_nested(key.type) for key in keys):  # Arrow cannot group by them, so their numbers replace them
        ids, first = key_ids(keys, len(keys[0]))
        (numbers,), values = _grouped([pa.array(ids)], wanted)
        return [key.take(pa.array(first[numbers.to_numpy()])) for key in keys], values
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
    found = [one_array(grouped[f"a{i}_{function}"]) for i, (_, function) in enumerate(wanted)]
    values = [v.view(column.type) if is_span(column.type) else v for v, (column, _) in zip(found, wanted, strict=True)]
    return [one_array(grouped[name]) for name in names], values
