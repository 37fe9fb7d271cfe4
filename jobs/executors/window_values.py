"""The results of calls for ordered rows, whole columns at a time, and the values that a row carries for later rows.

    family                        computation                                              carried values
    numbers, shares, tiles        from a row's place, its peers and the partition's size   in Before (window_frame)
    count, sum, avg               difference of two exact prefix sums, rounded once        the sum, as stored in a slot
    min, max                      greatest of a run of ranks                               the extreme
    first, last, nth, lag, lead   a row's value by its place                               the value
    session                       greatest end of the rows before, as a rank               greatest end, session start

Results equal Spark's in ANSI mode. Overflow is reported separately from the values, since it is no error in rows that
are not emitted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.agg_result import AggregateDivisionError, AggregateOverflowError, Result, result_of_blocks
from tussock.jobs.executors.aggregates.sums import Sum
from tussock.jobs.executors.base import Positions
from tussock.jobs.executors.exact_sum import (
    Limbs,
    decode_limbs,
    encode_limbs,
    float_values,
    integer_values,
    limbs_of_int128,
    special_values,
    with_specials,
)
from tussock.jobs.executors.float_limbs import limbs_of_products
from tussock.jobs.executors.int128 import Int128
from tussock.jobs.executors.value_ranks import value_ranks
from tussock.jobs.executors.value_state import ExactSum, Slot, State
from tussock.jobs.executors.window_aggregates import aggregate_frames, aggregate_types
from tussock.jobs.executors.window_call import Over
from tussock.jobs.executors.window_frame import OrderedRows
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import FrameEdge, WindowFunction
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import null_mask, one_array

Mask = npt.NDArray[np.bool_]
Carry = Callable[[Positions], State]

_SUM = Sum()  # also for avg
_NARROW_SUM = 2.0**62
_GREATEST_SECTION = 2**62


@dataclass(frozen=True, slots=True)
class WindowResult:
    """A call's value per row, the overflowing rows, and a function that returns carried values.

    Spark raises `error` on the overflowing rows; their value is NULL.
    """

    values: pa.Array
    carry: Carry
    overflow: Mask | None = None
    error: type[AggregateOverflowError] | type[AggregateDivisionError] = AggregateOverflowError

    def without_carry(self) -> "WindowResult":
        """The result without the data for carried values."""
        return replace(self, carry=_carry_nothing)

    def slice_rows(self, first: int, end: int) -> "WindowResult":
        """The results of adjacent rows, without carried values."""
        overflow = None if self.overflow is None else self.overflow[first:end]
        return WindowResult(self.values.slice(first, end - first), _carry_nothing, overflow, self.error)

    def select_rows(self, rows: Mask) -> "WindowResult":
        """The results of chosen rows, without carried values."""
        overflow = None if self.overflow is None else self.overflow[rows]
        return WindowResult(
            self.values if rows.all() else self.values.filter(pa.array(rows)), _carry_nothing, overflow, self.error
        )


def carried_types(call: Over) -> tuple[str, ...]:
    """The types of the values that a row carries for a call. May be empty."""
    if not call.is_running or call.function.numbers_rows:
        return ()
    match call.function:
        case WindowFunction.COUNT:
            return ("bigint",)
        case WindowFunction.SUM | WindowFunction.AVERAGE:
            return tuple(t for slot in _sum_slots(call) for t in slot.types)
        case WindowFunction.FIRST | WindowFunction.LAST if call.filter_column is not None:
            return (call.arg_type or "", "boolean")
        case WindowFunction.LAST:
            return (call.arg_type or "",) if call.ignore_nulls else ()
        case WindowFunction.SESSION:
            return (call.type, call.type)
        case WindowFunction.NTH:
            return (call.arg_type or "", "bigint")
        case WindowFunction.FIRST | WindowFunction.MIN | WindowFunction.MAX:
            return (call.arg_type or "",)
        case _:
            return aggregate_types(call)


def values_of(call: Over, ordered: OrderedRows, carried: State, kernel: Kernel) -> WindowResult:
    """The values of one call.

    Args:
        carried: the values that each partition's first loaded row carries, with the types of `carried_types`; NULL if
            no rows precede it.
        kernel: divides decimals.

    Returns: (n,) of exactly `arrow_type(call.type)`.
    Cost: some passes over the columns. For min and max a sort, and for frames bounded on both sides a pass per doubling
        of the longest frame.
    """
    match call.function:
        case WindowFunction.ROW_NUMBER:
            return _plain_result(ordered.number.astype(np.int32))
        case WindowFunction.RANK:
            return _plain_result(ordered.rank.astype(np.int32))
        case WindowFunction.DENSE_RANK:
            return _plain_result(ordered.dense_rank.astype(np.int32))
        case WindowFunction.PERCENT_RANK:
            return _plain_result((ordered.rank - 1) / np.maximum(ordered.end_place - ordered.first_place - 1, 1))
        case WindowFunction.CUME_DIST:
            return _plain_result(
                (ordered.after_peers - ordered.first_place) / (ordered.end_place - ordered.first_place)
            )
        case WindowFunction.NTILE:
            return _plain_result(_ntile_numbers(ordered, call.number))
        case WindowFunction.LAG | WindowFunction.LEAD:
            return _lag_or_lead(call, ordered)
        case WindowFunction.FIRST | WindowFunction.LAST | WindowFunction.NTH:
            return _pick_values(call, ordered, carried)
        case WindowFunction.MIN | WindowFunction.MAX:
            return _frame_extremes(call, ordered, carried)
        case WindowFunction.SESSION:
            return _session_starts(call, ordered, carried)
        case WindowFunction.COUNT:
            return _count_frames(call, ordered, carried)
        case WindowFunction.SUM | WindowFunction.AVERAGE:
            return _sum_frames(call, ordered, carried, kernel)
        case WindowFunction.MIN_BY | WindowFunction.MAX_BY if call.picks_by_rank:
            return _value_by_extreme(call, ordered)
        case _:
            result, carry = aggregate_frames(call, ordered, carried, kernel)
            return WindowResult(result.values, carry, result.bad, result.error)


def _carry_nothing(rows: Positions) -> State:
    return []


def _plain_result(values: npt.NDArray[np.generic]) -> WindowResult:
    return WindowResult(pa.array(values), _carry_nothing)


def _ntile_numbers(ordered: OrderedRows, buckets: int) -> npt.NDArray[np.int32]:
    """The first `size % buckets` tiles have one row more than the others."""
    size, number = ordered.end_place - ordered.first_place, ordered.number - 1
    least, larger = size // buckets, size % buckets
    border = larger * (least + 1)
    tile = np.where(number < border, number // (least + 1), larger + (number - border) // np.maximum(least, 1))
    return (tile + 1).astype(np.int32)


# --- values of other rows --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column of the rows, with the partitions' carried values at the places of their heads.

    `counted`: which rows and heads count; None: those with a value.
    """

    ordered: OrderedRows
    column: pa.Array
    heads: pa.Array
    counted: tuple[Mask, Mask] | None = None

    def take_values(self, places: Positions, there: Mask) -> pa.Array:
        """The values at some places; NULL unless `there`."""
        at, rows = self.ordered, len(self.column)
        sources = at.with_heads(np.arange(rows), np.arange(rows, rows + at.partition_count))
        chosen = sources[np.where(there, places, 0)] if len(sources) else places
        return pa.concat_arrays([self.column, self.heads]).take(pa.array(chosen, mask=~there))

    def counted_places(self) -> tuple[Positions, Positions]:
        """The places that count, and per place the number of such places before it."""
        known = self.ordered.with_heads(*(self.counted or (~null_mask(self.column), ~null_mask(self.heads))))
        return np.flatnonzero(known), np.concatenate([[0], np.cumsum(known)])


def _make_column(ordered: OrderedRows, call: Over, heads: pa.Array | None) -> _Column:
    column = one_array(ordered.rows.column(call.args[0]))
    return _Column(ordered, column, pa.nulls(ordered.partition_count, column.type) if heads is None else heads)


def _true_mask(column: pa.Array) -> Mask:
    return pc.fill_null(column, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _pick_known(known: Positions, which: Positions) -> Positions:
    """The place of the known value with each number. Undefined if there is no such value."""
    return known[np.clip(which, 0, len(known) - 1)] if len(known) else np.zeros(len(which), np.int64)


def _lag_or_lead(call: Over, ordered: OrderedRows) -> WindowResult:
    """Lag and lead. If the partition has no such row, another column of the row is the default."""
    column = _make_column(ordered, call, None)
    if not call.ignore_nulls or call.number == 0:
        places = ordered.places + call.shift
        there = (places >= ordered.first_place) & (places < ordered.end_place)
    else:
        known, before = column.counted_places()
        forth = call.shift > 0
        which = before[ordered.places + 1] + call.shift - 1 if forth else before[ordered.places] + call.shift
        places = _pick_known(known, which)
        there = (which < before[ordered.end_place]) & forth | (which >= before[ordered.first_place]) & (not forth)
    values = column.take_values(places, there)
    if len(call.args) > 1:
        values = pc.if_else(pa.array(there), values, one_array(ordered.rows.column(call.args[1])))
    return WindowResult(values, _carry_nothing)


class _Picked(ABC):
    """The value of one row in each frame.

    If frames begin with the partition, its first rows may not be loaded. The head then represents their only relevant
    value.
    """

    def __init__(self, call: Over, ordered: OrderedRows, carried: State) -> None:
        self.call, self.ordered = call, ordered
        self.carried = carried if call.is_running else []
        self.low, self.high = ordered.frame_bounds(call)
        column = _make_column(ordered, call, self.carried[0] if self.carried else None)
        if call.filter_column is not None:
            heads = _true_mask(self.carried[1]) if self.carried else np.zeros(ordered.partition_count, np.bool_)
            column = replace(column, counted=(_true_mask(one_array(ordered.rows.column(call.filter_column))), heads))
        self.column = column
        self.known, self.before = column.counted_places()
        self.first = np.maximum(self.low, ordered.first_place)  # of the loaded rows
        self.earlier = (
            ordered.before.rows[ordered.partition] > 0
        )  # (n,) whether earlier rows of the partition are not loaded

    @abstractmethod
    def picked_values(self) -> pa.Array:
        """(n,) the value for each row's frame."""

    @abstractmethod
    def carry_rows(self, rows: Positions) -> State:
        """The values that chosen rows carry, with the types of `carried_types`. Not called if these are empty."""

    def has_counted(self, low: Positions, high: Positions) -> Mask:
        """Whether a place in [low, high) counts."""
        return self.before[high] > self.before[low]

    def carried_of_known(self, value: Positions, there: Mask) -> State:
        """The known value with each number, and, if a column chooses the rows, whether it exists."""
        known_values = self.column.take_values(_pick_known(self.known, value), there)
        return [known_values] if self.call.filter_column is None else [known_values, pa.array(there)]


class _First(_Picked):
    """FIRST_VALUE."""

    def picked_values(self) -> pa.Array:
        if self.call.passes_over:
            return self.column.take_values(
                _pick_known(self.known, self.before[self.low]), self.has_counted(self.low, self.high)
            )
        places = np.where(self.earlier, self.low, self.first) if self.call.is_running else self.first
        return self.column.take_values(places, self.high > self.first)

    def carry_rows(self, rows: Positions) -> State:
        head, own = self.ordered.first_place[rows] - 1, self.ordered.places[rows]
        if self.call.passes_over:
            return self.carried_of_known(self.before[head], self.has_counted(head, own))
        since = self.earlier[rows]
        return [self.column.take_values(np.where(since, head, head + 1), since | (own > head + 1))]


class _Last(_Picked):
    """LAST_VALUE. If all rows count, it carries nothing."""

    def picked_values(self) -> pa.Array:
        if self.call.passes_over:
            return self.column.take_values(
                _pick_known(self.known, self.before[self.high] - 1), self.has_counted(self.low, self.high)
            )
        return self.column.take_values(self.high - 1, self.high > self.first)

    def carry_rows(self, rows: Positions) -> State:
        head, own = self.ordered.first_place[rows] - 1, self.ordered.places[rows]
        return self.carried_of_known(self.before[own] - 1, self.has_counted(head, own))


class _Nth(_Picked):
    """NTH_VALUE. It carries the number of earlier rows that count, and the value once it is known."""

    def __init__(self, call: Over, ordered: OrderedRows, carried: State) -> None:
        super().__init__(call, ordered, carried)
        self.seen = np.zeros(ordered.partition_count, np.int64)  # number of rows that count and are not loaded
        if call.is_running and not call.ignore_nulls:
            self.seen = ordered.before.rows
        elif self.carried:  # otherwise all rows of the partition are loaded
            self.seen = integer_values(self.carried[1])
        self.missing = (
            call.number - self.seen[ordered.partition]
        )  # rows left until the value; 0 or less: the head has it

    def picked_values(self) -> pa.Array:
        if self.call.ignore_nulls:
            which = self.before[self.first] + self.missing - 1
            places, there = _pick_known(self.known, which), which < self.before[self.high]
        else:
            places = self.first + self.missing - 1
            there = places < self.high
        at_head = self.missing <= 0
        return self.column.take_values(np.where(at_head, self.ordered.first_place - 1, places), there | at_head)

    def carry_rows(self, rows: Positions) -> State:
        head, own, missing = self.ordered.first_place[rows] - 1, self.ordered.places[rows], self.missing[rows]
        if self.call.ignore_nulls:
            which = self.before[head + 1] + missing - 1
            places, there = _pick_known(self.known, which), which < self.before[own]
            passed = self.seen[self.ordered.partition[rows]] + self.before[own] - self.before[head + 1]
        else:
            places = head + missing
            there = places < own
            passed = self.ordered.number[rows] - 1
        at_head = missing <= 0
        return [self.column.take_values(np.where(at_head, head, places), at_head | there), pa.array(passed)]


_PICKED: dict[WindowFunction, type[_Picked]] = {
    WindowFunction.FIRST: _First,
    WindowFunction.LAST: _Last,
    WindowFunction.NTH: _Nth,
}


def _pick_values(call: Over, ordered: OrderedRows, carried: State) -> WindowResult:
    """The first, last and nth value of a frame."""
    picked = _PICKED[call.function](call, ordered, carried)
    return WindowResult(picked.picked_values(), picked.carry_rows if carried_types(call) else _carry_nothing)


# --- extremes --------------------------------------------------------------------------------------


def _frame_extremes(call: Over, ordered: OrderedRows, carried: State) -> WindowResult:
    """The least or greatest value of each frame, computed with ranks, which are integers for any type.

    NULL has the least rank. The result is a value of the frame to the bit: a zero has the sign of one of its rows.
    """
    low, high = ordered.frame_bounds(call)
    column = _make_column(ordered, call, carried[0] if carried else None)
    values = pa.concat_arrays([column.column, column.heads])
    ranks, sample = value_ranks(values, call.function is WindowFunction.MAX, exact=True)
    best, running = _best_ranks(call, ordered, ranks, low, high)
    values = column.take_values(*_place_of_rank(ordered, sample, best))

    def carry(rows: Positions) -> State:
        if running is None or not call.is_running:
            return []
        return [column.take_values(*_place_of_rank(ordered, sample, running[ordered.places[rows] - 1]))]

    return WindowResult(values, carry)


def _best_ranks(
    call: Over, ordered: OrderedRows, ranks: Positions, low: Positions, high: Positions
) -> tuple[Positions, Positions | None]:
    """(n,) the greatest rank in each frame (-1: none), from the ranks of the rows and the heads.

    If frames begin with their partition, also (places,) the greatest rank up to each place.
    """
    laid = ordered.with_heads(ranks[: len(ordered)], ranks[len(ordered) :])
    spread = int(ranks.max(initial=0)) + 2
    # An offset per partition, so that no rank carries over to the next partition.
    section = ordered.with_heads(ordered.partition, np.arange(ordered.partition_count)) * spread
    running: Positions | None = None
    if call.lower.edge is FrameEdge.UNBOUNDED:
        running = np.maximum.accumulate(laid + section) - section
        best = running[np.maximum(high - 1, 0)]
    elif call.upper.edge is FrameEdge.UNBOUNDED:
        backwards = section[::-1]
        best = (
            np.maximum.accumulate(laid[::-1] + section.max(initial=0) - backwards) - section.max(initial=0) + backwards
        )[::-1]
        best = best[np.minimum(low, len(laid) - 1)]
    else:
        best = _greatest_between(laid, low, high)
    return np.where(high > low, best, -1), running


def _value_by_extreme(call: Over, ordered: OrderedRows) -> WindowResult:
    """min_by and max_by: the value of the frame's row with the least or greatest second argument.

    Ties give the last row, as in Spark's pass over a frame.
    """
    value, by = (one_array(ordered.rows.column(c)) for c in call.args)
    ranks, _ = value_ranks(by, call.function is WindowFunction.MAX_BY)
    known = np.flatnonzero(ranks >= 0)
    sample = known[np.argsort(ranks[known], kind="stable")]
    ranks[sample] = np.arange(len(sample))
    best, _ = _best_ranks(
        call, ordered, np.concatenate([ranks, np.full(ordered.partition_count, -1)]), *ordered.frame_bounds(call)
    )
    chosen = sample[np.maximum(best, 0)] if len(sample) else best
    return WindowResult(value.take(pa.array(chosen, mask=best < 0)), _carry_nothing)


def _place_of_rank(ordered: OrderedRows, sample: Positions, ranks: Positions) -> tuple[Positions, Mask]:
    """The place of a value with each rank, and whether there is one."""
    where = np.concatenate([ordered.places, ordered.heads])
    chosen = sample[np.maximum(ranks, 0)] if len(sample) else np.zeros(len(ranks), np.int64)
    return where[chosen], ranks >= 0


def _greatest_between(values: Positions, low: Positions, high: Positions) -> Positions:
    """The greatest of values[low:high] for each pair; -1 if it is empty.

    Two runs with a power-of-two length cover each frame.
    """
    greatest = np.full(len(low), -1, np.int64)
    lengths = high - low
    # The exponent of the greatest power of two that is not longer than the frame.
    level = np.frexp(np.maximum(lengths, 1).astype(np.float64))[1] - 1
    table = values
    for power in range(int(level.max(initial=0)) + 1):
        here = np.flatnonzero((level == power) & (lengths > 0))
        size = 1 << power
        greatest[here] = np.maximum(table[low[here]], table[high[here] - size])
        table = np.maximum(table[:-size], table[size:]) if len(table) > size else table
    return greatest


# --- sessions --------------------------------------------------------------------------------------


def _session_starts(call: Over, ordered: OrderedRows, carried: State) -> WindowResult:
    """The start of each row's session.

    It is the row's start if all earlier rows have ended by then, and otherwise the start of the previous row's session.
    """
    start, end = (one_array(ordered.rows.column(c)) for c in call.args)
    heads = carried or [pa.nulls(ordered.partition_count, start.type)] * 2
    known = pa.concat_arrays([start, end, *heads])
    ranks = np.zeros(len(known), np.int64)  # 0: no value
    there = ~null_mask(known)
    ranks[there], most, back = _moment_ranks(
        known.filter(pa.array(there)).cast(pa.int64()).to_numpy(), ordered.partition_count
    )
    starts, ends, last_end, last_start = np.split(
        ranks, np.cumsum([len(ordered), len(ordered), ordered.partition_count])
    )
    # An offset per partition, so that no rank carries over to the next partition.
    section = ordered.with_heads(ordered.partition, np.arange(ordered.partition_count)) * (most + 1)
    latest = np.maximum.accumulate(ordered.with_heads(ends, last_end) + section) - section
    begins = starts > latest[ordered.places - 1]
    begun = np.maximum.accumulate(ordered.with_heads(np.where(begins, starts, 0), last_start) + section) - section

    def moments_of(instants: Positions) -> pa.Array:
        return pa.array(back(instants), mask=instants == 0).cast(start.type)

    return WindowResult(
        moments_of(begun[ordered.places]),
        lambda rows: [moments_of(of[ordered.places[rows] - 1]) for of in (latest, begun)],
    )


def _moment_ranks(moments: Positions, partitions: int) -> tuple[Positions, int, Callable[[Positions], Positions]]:
    """Integers from 1 in the order of the moments, the greatest possible one, and the inverse function.

    They are the moments minus the least one. If an offset per partition would then overflow 64 bits, they are ranks,
    which need a sort.
    """
    least, most = (int(moments.min()), int(moments.max()) - int(moments.min()) + 1) if len(moments) else (0, 0)
    if not len(moments) or (most + 1) * (partitions + 1) < _GREATEST_SECTION:
        return moments - least + 1, most, lambda ranks: ranks + (least - 1)
    distinct, ranked = np.unique(moments, return_inverse=True)
    return ranked + 1, len(distinct), lambda ranks: distinct[np.maximum(ranks - 1, 0)]


# --- sums ------------------------------------------------------------------------------------------


def _sum_slots(call: Over) -> tuple[Slot, ...]:
    return _SUM.make_slots(call.agg, True)


def _count_frames(call: Over, ordered: OrderedRows, carried: State) -> WindowResult:
    column = one_array(ordered.rows.column(call.args[0])) if call.args else None
    counts = _Prefix.from_counts(ordered, column, carried[0] if carried else None)
    numbers = pa.array(counts.sums_between(*ordered.frame_bounds(call))[0])
    carry = (lambda rows: [pa.array(counts.sums_before(rows)[0])]) if call.is_running else _carry_nothing
    return WindowResult(numbers, carry)


def _sum_frames(call: Over, ordered: OrderedRows, carried: State, kernel: Kernel) -> WindowResult:
    """Sums and averages."""
    low, high = ordered.frame_bounds(call)
    column = one_array(ordered.rows.column(call.args[0]))
    slots = _sum_slots(call)
    counts = _Prefix.from_counts(ordered, column, carried[-1] if carried else None)
    sums = _Sum.from_column(ordered, slots[0], column, carried[:-1])
    between = counts.sums_between(low, high)[0]
    is_long_mean = isinstance(slots[0], ExactSum) and call.function is WindowFunction.AVERAGE

    def compute_block(block: slice) -> Result:
        (limbs, special), count = sums.sums_between(low[block], high[block]), between[block]
        if sums.is_floating:
            return Result(_float_results(call, limbs, special, count))
        states = [sums.to_stored(limbs, special), [pa.array(count)]]
        result = _SUM.compute_result(call.agg, slots, states, kernel)
        return _with_long_sums(call, result, limbs, count) if is_long_mean else result

    def carry(rows: Positions) -> State:
        return [*sums.to_stored(*sums.sums_before(rows)), pa.array(counts.sums_before(rows)[0])]

    result = result_of_blocks(len(ordered), compute_block)
    # Without `carry`, the sums are freed.
    return WindowResult(result.values, carry if call.is_running else _carry_nothing, result.bad)


def _with_long_sums(call: Over, result: Result, limbs: Limbs, count: Positions) -> Result:
    """Averages of decimals, also of frames whose sum does not fit a decimal: Spark checks the sums of groups only.

    Cost: arithmetic in Python's integers for these frames.
    """
    rows = np.flatnonzero(null_mask(result.values) & (count > 0))
    if not len(rows):
        return result
    assert call.arg_type is not None
    kind, argument = arrow_type(call.type), arrow_type(call.arg_type)
    weights = np.array([1 << 32 * (limbs.lowest + i) for i in range(len(limbs.digits))], object)
    total = (limbs.digits[:, rows].astype(object) * weights[:, None]).sum(axis=0)
    n = count[rows].astype(object)
    size = (abs(total) * 2 * 10 ** (kind.scale - argument.scale) + n) // (2 * n)  # rounded half up
    fits = np.asarray(size < 10**kind.precision, np.bool_)
    mean = np.where(fits, np.where(total < 0, -size, size), 0)
    low, high = (mean % (1 << 64)).astype(np.uint64), (mean // (1 << 64)).astype(np.int64)
    whole, valid = Int128.of_decimals(result.values), ~null_mask(result.values)
    whole.low[rows], whole.high[rows], valid[rows] = low, high, fits
    overflow = (count > 0) & ~valid
    values = whole.to_decimals(kind.precision, kind.scale, valid)
    return Result(values, overflow if overflow.any() else None, result.error)


@dataclass(frozen=True)
class _Prefix:
    """Prefix sums of k columns over all places: (k, places + 1) int64.

    They wrap around, which is harmless for differences.
    """

    ordered: OrderedRows
    sums: npt.NDArray[np.int64]

    @staticmethod
    def from_rows(ordered: OrderedRows, rows: npt.NDArray[np.int64], heads: npt.NDArray[np.int64]) -> "_Prefix":
        laid = ordered.with_heads(rows, heads)
        sums = np.zeros((len(laid), laid.shape[1] + 1), np.int64)
        np.cumsum(laid, axis=1, out=sums[:, 1:])
        return _Prefix(ordered, sums)

    @staticmethod
    def from_counts(ordered: OrderedRows, column: pa.Array | None, carried: pa.Array | None) -> "_Prefix":
        """The numbers of values of a column, or of rows. `carried`: the counts of each partition; None: 0."""
        there = np.ones(len(ordered), np.bool_) if column is None else ~null_mask(column)
        heads = np.zeros(ordered.partition_count, np.int64) if carried is None else integer_values(carried)
        return _Prefix.from_rows(ordered, there.astype(np.int64)[None], heads[None])

    def sums_between(self, low: Positions, high: Positions) -> npt.NDArray[np.int64]:
        """(k, n) the sums over the places low[i] … high[i] - 1."""
        return self.sums[:, high] - self.sums[:, low]

    def sums_before(self, rows: Positions) -> npt.NDArray[np.int64]:
        """(k, rows) the sums over all values before each row in its partition."""
        return self.sums_between(self.ordered.first_place[rows] - 1, self.ordered.places[rows])


@dataclass(frozen=True)
class _Sum:
    """Exact sums: 32-bit digits (one 64-bit digit if all sums fit), and for floats the counts of NaN, inf and -inf."""

    slot: Slot
    lowest: int
    digits: _Prefix
    special: _Prefix | None

    @property
    def is_floating(self) -> bool:
        return isinstance(self.slot, ExactSum) and self.slot.is_floating

    @staticmethod
    def from_column(ordered: OrderedRows, slot: Slot, column: pa.Array, carried: State) -> "_Sum":
        ones = np.ones(len(column), np.int64)
        if isinstance(slot, ExactSum) and slot.is_floating:
            values = float_values(column)
            rows = limbs_of_products([values], ones)
            heads = decode_limbs(carried[0]) if carried else Limbs(0, np.zeros((1, ordered.partition_count), np.int64))
            special = special_values(values).astype(np.int64)
            before = np.zeros((3, ordered.partition_count), np.int64)
            if carried:
                before = np.stack([integer_values(c) for c in carried[1:]])
            counted = _Prefix.from_rows(ordered, special, before) if special.any() or before.any() else None
            return _Sum(slot, *_align_digits(ordered, rows, heads), counted)
        wide = (
            Int128.of_decimals(column) if pa.types.is_decimal(column.type) else Int128.of_int64(integer_values(column))
        )
        earlier = _wide_heads(ordered, slot, carried)
        if (narrow := _to_int64(wide, earlier)) is not None:
            return _Sum(slot, 0, _Prefix.from_rows(ordered, narrow[0][None], narrow[1][None]), None)
        return _Sum(slot, *_align_digits(ordered, limbs_of_int128(wide, ones), earlier), None)

    def sums_between(self, low: Positions, high: Positions) -> tuple[Limbs, npt.NDArray[np.int64] | None]:
        return Limbs(
            self.lowest, self.digits.sums_between(low, high)
        ), None if self.special is None else self.special.sums_between(low, high)

    def sums_before(self, rows: Positions) -> tuple[Limbs, npt.NDArray[np.int64] | None]:
        return Limbs(
            self.lowest, self.digits.sums_before(rows)
        ), None if self.special is None else self.special.sums_before(rows)

    def to_stored(self, limbs: Limbs, special: npt.NDArray[np.int64] | None) -> State:
        """A sum in the slot's stored form."""
        if not isinstance(self.slot, ExactSum):
            return [limbs.to_int128()[0].to_decimals(38, 0)]
        if not self.slot.is_floating:
            return [encode_limbs(limbs)]
        counts = np.zeros((3, len(limbs)), np.int64) if special is None else special
        return [encode_limbs(limbs), *(pa.array(c) for c in counts)]


def _align_digits(ordered: OrderedRows, rows: Limbs, heads: Limbs) -> tuple[int, _Prefix]:
    """The digits of rows and heads, aligned to the same positions."""
    lowest = min(rows.lowest, heads.lowest)
    size = max(p.lowest + len(p.digits) for p in (rows, heads)) - lowest
    laid = []
    for part in (rows, heads):
        digits = np.zeros((size, len(part)), np.int64)
        digits[part.lowest - lowest : part.lowest - lowest + len(part.digits)] = part.digits
        laid.append(digits)
    return lowest, _Prefix.from_rows(ordered, *laid)


def _wide_heads(ordered: OrderedRows, slot: Slot, carried: State) -> Limbs:
    if not carried:
        return Limbs(0, np.zeros((1, ordered.partition_count), np.int64))
    if isinstance(slot, ExactSum):
        return decode_limbs(carried[0])
    return limbs_of_int128(Int128.of_decimals(carried[0]), np.ones(ordered.partition_count, np.int64))


def _to_int64(rows: Int128, heads: Limbs) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Both as int64 if all their sums fit in 63 bits; else None."""
    earlier, fits = heads.to_int128()
    if not bool(fits.all()) or not bool(rows.fits_int64().all()) or not bool(earlier.fits_int64().all()):
        return None
    parts = rows.low.view(np.int64), earlier.low.view(np.int64)
    return parts if sum(float(np.abs(p.astype(np.float64)).sum()) for p in parts) < _NARROW_SUM else None


def _float_results(call: Over, limbs: Limbs, special: npt.NDArray[np.int64] | None, count: Positions) -> pa.Array:
    """Sums or averages of doubles, rounded once."""
    total = limbs.to_float64()
    if special is not None:
        total = with_specials(total, special)
    if call.function is WindowFunction.AVERAGE:
        total = total / np.maximum(count, 1)
    return pa.array(total, arrow_type(call.type), mask=count == 0)
