"""Which slots the calls of one aggregation keep, and the grouping that brings rows or states down to one state per group."""

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
    """The slots of one aggregation, the row count first. `distinct[i]`: the values whose coming and going slot i counts; None: all rows."""

    slots: tuple[Slot, ...]
    distinct: tuple[DistinctValues | None, ...]

    @property
    def sides(self) -> tuple[Side, ...]:
        """The states beside the groups' rows, each once, in order of first need."""
        wanted = (side for slot, values in zip(self.slots, self.distinct, strict=True) for side in (slot.side, values))
        return tuple(dict.fromkeys(side for side in wanted if side is not None))

    def ends(self, side: Side) -> Ends | None:
        """Of the rows in a side, how many all slots together read from either end of a group; None: all."""
        asked = [slot.ends for slot in self.slots if slot.side == side]
        return None if not asked or None in asked else reduce(or_, [ends for ends in asked if ends is not None])

    @property
    def types(self) -> tuple[str, ...]:
        """Of all state columns, in order."""
        return tuple(t for slot in self.slots for t in slot.types)

    def split(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[State]:
        """State columns, in order, by slot."""
        rest = [one_array(c) for c in columns]
        states: list[State] = []
        for slot in self.slots:
            states.append(rest[: len(slot.types)])
            rest = rest[len(slot.types) :]
        return states

    def group(self, keys: Sequence[pa.Array], deposits: Sequence[Deposit]) -> tuple[list[pa.Array], list[State]]:
        """Group by `keys` (normalised; none: everything is one group) and bring every slot down to a state per group.

        Returns: the distinct keys, in an order that the rows decide, and per slot its collected columns.
        Cost: one grouping for all slots; a column that several of them want is summed once.
        """
        wanted: list[tuple[pa.Array, str]] = []
        places: list[int] = []  # of each deposit's columns, in order, in `wanted`
        for column, function in (item for deposit in deposits for item in deposit.columns):
            same = (i for i, (other, done) in enumerate(wanted) if done == function and other.equals(column))
            if (place := next(same, len(wanted))) == len(wanted):
                wanted.append((column, function))
            places.append(place)
        distinct, values = _grouped(keys, wanted)
        found = iter([values[place] for place in places])
        return distinct, [deposit.collect([next(found) for _ in deposit.columns]) for deposit in deposits]


def value_layout(calls: Sequence[Agg], append_only: bool) -> ValueLayout:
    """The slots these calls need, each once, in order of first need. Raises UnsupportedTypeError."""
    slots: dict[tuple[Slot, DistinctValues | None], None] = {(RowCount(), None): None}
    for call in calls:
        for kept in slots_of(call, append_only):
            slots.setdefault(kept)
    return ValueLayout(tuple(slot for slot, _ in slots), tuple(values for _, values in slots))


def slots_of(call: Agg, append_only: bool) -> tuple[tuple[Slot, DistinctValues | None], ...]:
    """The slots of one call in the order in which its result takes them, each with the distinct values it counts; those that hold a result
    see to DISTINCT themselves."""
    slots = aggregate_of(call).slots(call, append_only)
    values = DistinctValues(call.args, call.arg_types) if call.distinct else None
    return tuple((slot, values if slot.side is None else None) for slot in slots)


def _grouped(keys: Sequence[pa.Array], wanted: Sequence[tuple[pa.Array, str]]) -> tuple[list[pa.Array], list[pa.Array]]:
    """The distinct keys, and each column brought to one value per key by its function."""
    if any(is_nested(key.type) for key in keys):  # Arrow does not group by them: their numbers stand for them
        ids, first = key_ids(keys, len(keys[0]))
        (numbers,), values = _grouped([pa.array(ids)], wanted)
        return [key.take(pa.array(first[numbers.to_numpy()])) for key in keys], values
    only_sums = len(keys) == 1 and all(function == "sum" for _, function in wanted)
    if only_sums and (summed := sums_by_integer(keys[0], [column for column, _ in wanted])) is not None:
        return [summed[0]], summed[1]
    names = [f"k{i}" for i in range(len(keys))]
    columns = [
        column.view(pa.int64()) if is_span(column.type) else column for column, _ in wanted
    ]  # which Arrow compares
    table = pa.table([*keys, *columns], names=[*names, *(f"a{i}" for i in range(len(wanted)))])
    grouped = table.group_by(names, use_threads=False).aggregate(
        [(f"a{i}", function) for i, (_, function) in enumerate(wanted)]
    )
    # Another version's order of columns must not matter: take them by name.
    found = [one_array(grouped[f"a{i}_{function}"]) for i, (_, function) in enumerate(wanted)]
    values = [v.view(column.type) if is_span(column.type) else v for v, (column, _) in zip(found, wanted, strict=True)]
    return [one_array(grouped[name]) for name in names], values
