"""Aggregates over windows, computed by the same entries as for groups (aggregates/): a frame's rows form a group.

slots without a side   summed columns: the difference of two prefix sums, to which the slot adds the carried values
slots with a side      the rows of all distinct frames in sequence: a pass over as many rows as the frames have in total
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.agg_result import Result, result_of_blocks
from tussock.jobs.executors.aggregates.bitmaps import Bitmap
from tussock.jobs.executors.aggregates.registry import aggregate_of
from tussock.jobs.executors.base import Positions
from tussock.jobs.executors.distinct_state import DistinctValues, NegativeFrequencyError
from tussock.jobs.executors.exact_sum import integer_values
from tussock.jobs.executors.group_segments import Segments
from tussock.jobs.executors.long_frames import LongFrames, of_long_frames
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.recomputed import CollectedDistinct, OfAllRows, OfValues
from tussock.jobs.executors.value_ranks import value_ranks
from tussock.jobs.executors.value_state import Deposit, Slot, State
from tussock.jobs.executors.window_call import Over
from tussock.jobs.executors.window_frame import OrderedRows
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import FrameEdge
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sorted_keys import sort_order
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.positions import expand_ranges
from tussock.statestore.vnode import null_mask, one_array

Carry = Callable[[Positions], State]

_LAID = 1 << 20  # rows of frames expanded at once
_LONG = 32  # frames with more than this many times the rows in total are expanded only if necessary


def aggregate_types(call: Over) -> tuple[str, ...]:
    """The types of the values that a row carries for a call. May be empty."""
    return tuple(t for slot in _slots_of(call) for t in slot.types) if call.is_running else ()


def aggregate_frames(call: Over, ordered: OrderedRows, carried: State, kernel: Kernel) -> tuple[Result, Carry]:
    """The aggregate of each row's frame, and the values that rows carry.

    Args:
        carried: with the types of `aggregate_types`, (partitions,) each; NULL if no rows precede the loaded ones.

    Cost: depends on the slots; see the module.
    """
    entry, slots = aggregate_of(call.agg), _slots_of(call)
    if isinstance(slots[0], OfValues | OfAllRows):
        values = _of_frames(slots[0], call, ordered)
        return entry.compute_result(call.agg, slots, [[values]], kernel), lambda rows: []
    heads = list(_by_slot(slots, carried)) if call.is_running and carried else None
    sums = _FrameSums(ordered, slots, [_Sums.from_rows(slot, ordered) for slot in slots], heads)
    first, end = _rows_of_frames(call, ordered)

    def compute_block(block: slice) -> Result:
        states = sums.states_between(first[block], end[block], ordered.partition[block])
        return entry.compute_result(call.agg, slots, states, kernel)

    return result_of_blocks(len(ordered), compute_block), sums.carried_by if call.is_running else lambda rows: []


def _slots_of(call: Over) -> tuple[Slot, ...]:
    return aggregate_of(call.agg).make_slots(call.agg, True)


def _by_slot(slots: Sequence[Slot], columns: State) -> Iterator[State]:
    rest = columns
    for slot in slots:
        yield rest[: len(slot.types)]
        rest = rest[len(slot.types) :]


def _rows_of_frames(call: Over, ordered: OrderedRows) -> tuple[Positions, Positions]:
    """(n,) the first loaded row of each row's frame, and the row after its last."""
    low, high = ordered.frame_bounds(call)
    first = np.maximum(low, ordered.first_place)
    return first - ordered.partition - 1, np.maximum(first, high) - ordered.partition - 1


@dataclass(frozen=True)
class _Sums:
    """The prefix sums of a slot's columns: (columns, n + 1). They wrap around, which is harmless for differences."""

    deposit: Deposit
    sums: npt.NDArray[np.int64]

    @staticmethod
    def from_rows(slot: Slot, ordered: OrderedRows) -> "_Sums":
        deposit = slot.make_deposit(ordered.rows, np.ones(len(ordered), np.int64))
        sums = np.zeros((len(deposit.columns), len(ordered) + 1), np.int64)
        for i, (column, function) in enumerate(deposit.columns):
            assert function == "sum", function
            np.cumsum(integer_values(column), out=sums[i, 1:])
        return _Sums(deposit, sums)

    def sums_between(self, first: Positions, end: Positions) -> State:
        return self.deposit.collect([pa.array(column[end] - column[first]) for column in self.sums])


@dataclass(frozen=True)
class _FrameSums:
    """The states of all slots, over the rows of frames.

    Args:
        heads: the carried values of each slot, (partitions,) each; None: no rows precede the loaded ones.
    """

    ordered: OrderedRows
    slots: Sequence[Slot]
    sums: Sequence[_Sums]
    heads: Sequence[State] | None

    def states_between(self, first: Positions, end: Positions, partition: Positions) -> list[State]:
        """The states over the loaded rows first[i] … end[i] - 1 of a partition, and over the rows before them."""
        states = [s.sums_between(first, end) for s in self.sums]
        if self.heads is None:
            return states
        earlier = [[c.take(pa.array(partition)) for c in head] for head in self.heads]
        return [s.add_change(before, change) for s, before, change in zip(self.slots, earlier, states, strict=True)]

    def carried_by(self, rows: Positions) -> State:
        """The values that rows carry: the states of the rows before them in their partitions."""
        partition = self.ordered.partition[rows]
        states = self.states_between(self.ordered.first_place[rows] - partition - 1, rows, partition)
        return [column for state in states for column in state]


def _of_frames(slot: OfValues | OfAllRows, call: Over, ordered: OrderedRows) -> pa.Array:
    """(n,) the slot's state for each frame."""
    first, end = _rows_of_frames(call, ordered)
    distinct, which = np.unique(first * (len(ordered) + 1) + end, return_inverse=True)
    first, end = distinct // (len(ordered) + 1), distinct % (len(ordered) + 1)
    laid = _Values.from_rows(slot.values, ordered) if isinstance(slot, OfValues) else _Rows.from_rows(slot, ordered)
    first, end = laid.before[first], laid.before[end]
    if int((end - first).sum()) > _LONG * len(laid.partition) and laid.ranks is not None:
        forth, back = (edge.edge is FrameEdge.UNBOUNDED for edge in (call.lower, call.upper))
        frames = LongFrames(laid.ranks, laid.size, laid.partition, first, end)
        frames = frames if forth or not back else frames.reverse_frames()
        if (states := of_long_frames(slot, laid.by_rank, frames, forth or back)) is not None:
            return states.take(pa.array(which))
        if isinstance(slot, CollectedDistinct | Bitmap) and (forth or back):
            assert isinstance(laid, _Values)
            frames = frames.of_each_the_first()
            frames = frames if forth else frames.reverse_frames()
            laid, first, end = laid.with_ranks(frames.ranks), frames.first, frames.end
    upto = np.cumsum(end - first)
    cuts = [*np.searchsorted(upto, np.arange(_LAID, int(upto[-1]) if len(upto) else 0, _LAID)), len(distinct)]
    parts, start = [], 0
    for cut in dict.fromkeys(cuts):
        segments = laid.make_segments(*_expand_frames(first[start:cut], end[start:cut]))
        parts.append(slot.compute_states(segments) if isinstance(slot, OfValues) else slot.states_of_rows(segments))
        start = int(cut)
    return pa.concat_arrays(parts).take(pa.array(which))


@dataclass(frozen=True)
class _Rows:
    """The m rows that a slot counts.

    Args:
        column: (m,) the values that the slot reads.
        partition: (m,) the partition of each row.
        before: (n + 1,) the number of these rows before each loaded row.
        ranks: (m,) the index of each row in the slot's order; None if it has no order.
    """

    column: pa.Array
    partition: Positions
    before: Positions
    ranks: Positions | None

    @staticmethod
    def from_rows(slot: OfAllRows, ordered: OrderedRows) -> "_Rows":
        there = _all_there(ordered, slot.rows.present)
        if slot.rows.filter_column is not None:
            there &= pc.fill_null(one_array(ordered.rows.column(slot.rows.filter_column)), False).to_numpy(
                zero_copy_only=False
            )
        rows = ordered.rows.filter(pa.array(there))
        ranks = _order_ranks(rows, slot.rows.order) if slot.rows.order else None
        return _Rows(one_array(rows.column(slot.column)), ordered.partition[there], _count_before(there), ranks)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.column)

    @property
    def by_rank(self) -> pa.Array:
        """(size,) the value of each rank."""
        return self.column.take(pa.array(np.argsort(self.ranks))) if self.ranks is not None else self.column

    def make_segments(self, rows: Positions, starts: Positions) -> Segments:
        """The segments for frames whose rows are concatenated."""
        if self.ranks is not None:
            frame = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            rows = rows[np.lexsort((self.ranks[rows], frame))]
        return Segments(starts, [self.column.take(pa.array(rows))])


@dataclass(frozen=True)
class _Values:
    """The rows that a slot counts, as ranks of values, with the frequency of each row."""

    by_rank: pa.Array
    partition: Positions
    ranks: Positions
    times: Positions
    before: Positions

    @staticmethod
    def from_rows(values: DistinctValues, ordered: OrderedRows) -> "_Values":
        there = _all_there(ordered, (*values.args, *(() if values.times is None else (values.times,))))
        rows = ordered.rows.filter(pa.array(there))
        (column,) = values.values_of_chunk(rows)
        ranks, sample = value_ranks(column)
        times = np.ones(rows.num_rows, np.int64)
        if values.times is not None:
            times = one_array(rows.column(values.times)).cast(pa.int64()).to_numpy()
            if times.min(initial=0) < 0:
                raise NegativeFrequencyError(int(times.min()))
        return _Values(column.take(pa.array(sample)), ordered.partition[there], ranks, times, _count_before(there))

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.by_rank)

    def with_ranks(self, ranks: Positions) -> "_Values":
        """Other rows with the same values."""
        return replace(self, ranks=ranks, times=np.ones(len(ranks), np.int64))

    def make_segments(self, rows: Positions, starts: Positions) -> Segments:
        """Each frame's distinct values in ascending order, with their frequencies."""
        size, frame = max(self.size, 1), np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        codes, which = np.unique(frame * size + self.ranks[rows], return_inverse=True)
        times = np.zeros(len(codes), np.int64)
        np.add.at(times, which, self.times[rows])
        codes, times = codes[times > 0], times[times > 0]
        begins = np.searchsorted(codes, np.arange(len(starts)) * size)
        return Segments(begins, [self.by_rank.take(pa.array(codes % size)), pa.array(times)])


def _order_ranks(rows: pa.Table, order: Sequence[Order]) -> Positions:
    """(n,) the index of each row in an order. Ties keep their sequence."""
    columns = [one_array(rows.column(o.column)) for o in order]
    by = [KeyColumn(o.column, o.descending, o.nulls_last) for o in order]
    ranks = np.empty(rows.num_rows, np.int64)
    ranks[sort_order(encode_keys(0, np.zeros(rows.num_rows, np.uint16), columns, by))] = np.arange(rows.num_rows)
    return ranks


def _all_there(ordered: OrderedRows, columns: Sequence[int]) -> npt.NDArray[np.bool_]:
    """(n,) whether a row has a value in all the columns."""
    there = np.ones(len(ordered), np.bool_)
    for column in columns:
        there &= ~null_mask(one_array(ordered.rows.column(column)))
    return there


def _count_before(there: npt.NDArray[np.bool_]) -> Positions:
    return np.concatenate([[0], np.cumsum(there)])


def _expand_frames(first: Positions, end: Positions) -> tuple[Positions, Positions]:
    """The rows of all frames, concatenated, and (frames + 1,) the start of each frame."""
    counts = end - first
    starts = np.concatenate([[0], np.cumsum(counts)])
    return expand_ranges(first, counts), starts
