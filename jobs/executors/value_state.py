"""Value states: the state of a group, stored in one row as a list of slots with one or more columns each.

    slot                        columns                             used by
    RowCount                    bigint                              count(*); a group without rows is not stored
    NonNullCount                bigint                              count(x); sum and avg: NULL if it is 0
    WideSum                     decimal(38,0)                       sum and avg of integers, of decimals up to 28 digits
    ExactSum of decimals        binary                              sum and avg of longer decimals
    ExactSum of floats          binary, bigint, bigint, bigint      sum and avg of floats; counts of NaN, inf and -inf
    ExactProduct                binary                              moments, covariances (products.py)
    BitCounts                   binary                              bit_and, bit_or, bit_xor (aggregates/bits.py)
    Extreme                     the argument's type                 min, max (extreme.py)
    Only                        the argument's type, bigint         the only value of a group (aggregates/only.py)
    Percentile                  the result's type, anchors          percentile, median, … (percentile.py)
    Mode                        the argument's type, bigint         mode (most_frequent.py)
    Estimate                    four bigints                        approx_count_distinct (distinct_estimate.py)
    RecomputedSlot              the result's type                   results recomputed from a side state (recomputed.py)

Some slots read a *side state*: a separate table that the executor writes first (ordered_state.py, distinct_state.py).

Calls over the same column share slots: avg(x), sum(x) and count(x) store one sum and one count. A slot has four
operations on columns:

    make_deposit(rows)       ──group by──> collect ──> state columns ──add_change──> state columns
    deposit_of_state(states) ──group by──> collect ┘         one pass over the keys groups rows or states for all slots
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.distinct_state import DistinctState, DistinctValues
from tussock.jobs.executors.exact_sum import (
    Limbs,
    decode_limbs,
    encode_limbs,
    float_values,
    integer_values,
    limbs_of_int128,
    special_values,
    sum_of_limbs,
)
from tussock.jobs.executors.float_limbs import limbs_of_products
from tussock.jobs.executors.frequency_index import Frequencies, FrequencyIndex
from tussock.jobs.executors.int128 import Int128
from tussock.jobs.executors.ordered_state import Ends, OrderedLayout, OrderedState
from tussock.statestore.vnode import null_mask, one_array

I64 = npt.NDArray[np.int64]
State = list[pa.Array]

#: A state in addition to the groups' rows: its layout as plain data, and its executor's half.
Side = OrderedLayout | DistinctValues | Frequencies
SideState = OrderedState | DistinctState | FrequencyIndex


@dataclass(frozen=True, slots=True)
class Deposit:
    """A slot's part of a grouping.

    It has columns with their aggregate functions, and a function that turns the results into states.
    """

    columns: list[tuple[pa.Array, str]]
    collect: Callable[[State], State]


class Slot(ABC):
    """One kind of state over some columns."""

    __slots__ = ()

    @property
    @abstractmethod
    def types(self) -> tuple[str, ...]:
        """The types of its state columns."""

    @property
    def side(self) -> Side | None:
        """The side state that the slot reads. None if a change alone determines the new state."""
        return None

    @property
    def ends(self) -> Ends | None:
        """How many rows of its side it reads from either end of a group. None: all rows."""
        return None

    @property
    def columns_read(self) -> tuple[int, ...]:
        """The columns of raw rows that `make_deposit` reads, if the slot can be stacked."""
        return ()

    def over_first(self) -> "Slot | None":
        """The same slot over the columns 0, 1, …, in the order of `columns_read`.

        Slots that are equal in this form treat each value alike, so that their columns can be stacked
        (tussock.statestore.stacked). None: the slot cannot be stacked.
        """
        return None

    @abstractmethod
    def make_deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        """The deposit of raw rows."""

    @abstractmethod
    def deposit_of_state(self, state: State) -> Deposit:
        """The deposit of states, one per row. Requires: the slot has no side."""

    @abstractmethod
    def add_change(self, before: State, change: State) -> State:
        """The states after a change, element by element.

        NULL in `before` means a new group. Requires: the slot has no side.
        """

    def read_state(self, side: SideState, groups: pa.Table, before: State, change: State) -> State:
        """The states after a change that its side already contains. Requires: the slot has a side."""
        raise NotImplementedError


class CountSlot(Slot):
    """A number of rows."""

    __slots__ = ()

    @property
    def types(self) -> tuple[str, ...]:
        return ("bigint",)

    @abstractmethod
    def counted_weights(self, rows: pa.Table, weights: I64) -> I64:
        """The weights of the rows that count; 0 for the others."""

    def make_deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        return Deposit([(pa.array(self.counted_weights(rows, weights)), "sum")], zero_for_null)

    def deposit_of_state(self, state: State) -> Deposit:
        return Deposit([(state[0], "sum")], zero_for_null)

    def add_change(self, before: State, change: State) -> State:
        return [pc.add(pc.fill_null(before[0], 0), change[0])]


@dataclass(frozen=True, slots=True)
class RowCount(CountSlot):
    """The number of rows in the group."""

    def counted_weights(self, rows: pa.Table, weights: I64) -> I64:
        return weights


@dataclass(frozen=True, slots=True)
class NonNullCount(CountSlot):
    """The number of rows with a value in the column and in all of `others`."""

    arg: int
    others: tuple[int, ...] = ()

    @property
    def columns_read(self) -> tuple[int, ...]:
        return (self.arg, *self.others)

    def over_first(self) -> Slot:
        return replace(self, arg=0, others=tuple(range(1, 1 + len(self.others))))

    def counted_weights(self, rows: pa.Table, weights: I64) -> I64:
        return weights_where_there(rows, self.columns_read, weights)


@dataclass(frozen=True, slots=True)
class WideSum(Slot):
    """The sum of an integer column, or of a decimal's unscaled values, as a 128-bit integer."""

    arg: int
    arg_type: str

    @property
    def columns_read(self) -> tuple[int, ...]:
        return (self.arg,)

    def over_first(self) -> Slot:
        return replace(self, arg=0)

    @property
    def types(self) -> tuple[str, ...]:
        return ("decimal(38,0)",)

    def make_deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        column = one_array(rows.column(self.arg))
        wide = (
            Int128.of_decimals(column) if pa.types.is_decimal(column.type) else Int128.of_int64(integer_values(column))
        )
        if (values := _to_int64(wide, int(np.abs(weights).sum()))) is not None:
            return Deposit([(pa.array(values * weights), "sum")], _wide_of_int64)
        limbs = limbs_of_int128(wide, weights)
        return Deposit([(pa.array(digit), "sum") for digit in limbs.digits], _wide_of_limbs)

    def deposit_of_state(self, state: State) -> Deposit:
        if (values := _to_int64(Int128.of_decimals(state[0]), len(state[0]))) is not None:
            return Deposit([(pa.array(values), "sum")], _wide_of_int64)
        return Deposit([(state[0], "sum")], _as_wide)

    def add_change(self, before: State, change: State) -> State:
        return [(Int128.of_decimals(before[0]) + Int128.of_decimals(change[0])).to_decimals(38, 0)]


@dataclass(frozen=True, slots=True)
class ExactSum(Slot):
    """The exact sum of a column as limbs, over rows with a value in all of `others`.

    Doubles are added without rounding. Sums of decimals may exceed 128 bits.
    """

    arg: int
    arg_type: str
    others: tuple[int, ...] = ()

    @property
    def columns_read(self) -> tuple[int, ...]:
        return (self.arg, *self.others)

    def over_first(self) -> Slot:
        return replace(self, arg=0, others=tuple(range(1, 1 + len(self.others))))

    @property
    def is_floating(self) -> bool:
        return self.arg_type in ("float", "double")

    @property
    def types(self) -> tuple[str, ...]:
        return ("binary", "bigint", "bigint", "bigint") if self.is_floating else ("binary",)

    def make_deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        column = one_array(rows.column(self.arg))
        weights = weights_where_there(rows, self.others, weights)
        if not self.is_floating:
            return deposit_of_limbs(limbs_of_int128(Int128.of_decimals(column), weights), [])
        values = float_values(column)
        finite = np.isfinite(values)
        limbs = limbs_of_products([values], weights)
        if bool(finite.all()):
            nothing = pa.array(np.zeros(len(values), np.int64))
            return deposit_of_limbs(limbs, [nothing, nothing, nothing])
        return deposit_of_limbs(limbs, [pa.array(counts) for counts in np.where(special_values(values), weights, 0)])

    def deposit_of_state(self, state: State) -> Deposit:
        return deposit_of_limbs(decode_limbs(state[0]), state[1:])

    def add_change(self, before: State, change: State) -> State:
        total = sum_of_limbs(before[0], change[0])
        return [total, *(pc.add(pc.fill_null(b, 0), c) for b, c in zip(before[1:], change[1:], strict=True))]


def _to_int64(wide: Int128, rows: int) -> I64 | None:
    """The integers as int64 if the sum of `rows` such integers fits in 63 bits. Else None."""
    if not bool(wide.fits_int64().all()):
        return None
    values = wide.low.view(np.int64)
    largest = int(np.abs(values.astype(np.float64)).max()) if len(values) else 0
    return values if largest * rows < 2**62 else None


def zero_for_null(values: State) -> State:
    """Integer columns with 0 instead of NULL."""
    return [pc.fill_null(v, 0) if v.null_count else v for v in values]


def weights_where_there(rows: pa.Table, columns: Sequence[int], weights: I64) -> I64:
    """The weights of rows with a value in all the columns; 0 for other rows."""
    missing = [null_mask(column) for c in columns if (column := one_array(rows.column(c))).null_count]
    return np.where(reduce(np.logical_or, missing), 0, weights) if missing else weights


def _wide_of_int64(values: State) -> State:
    return [pc.fill_null(values[0], 0).cast(pa.decimal128(38, 0))]


def _wide_of_limbs(values: State) -> State:
    digits = np.stack([integer_values(v) for v in values])
    return [Limbs(0, digits).to_int128()[0].to_decimals(38, 0)]


def _as_wide(values: State) -> State:
    # Arrow adds decimals as 128-bit integers, like the state.
    return [Int128.of_decimals(values[0]).to_decimals(38, 0)]


def deposit_of_limbs(limbs: Limbs, specials: Sequence[pa.Array]) -> Deposit:
    """The deposit of limbs, and of int64 columns next to them."""

    def collect(values: State) -> State:
        filled = zero_for_null(values)
        digits = np.stack([v.to_numpy(zero_copy_only=False) for v in filled[: len(limbs.digits)]])
        return [encode_limbs(Limbs(limbs.lowest, digits)), *filled[len(limbs.digits) :]]

    return Deposit([(column, "sum") for column in (*(pa.array(d) for d in limbs.digits), *specials)], collect)
