"""Value states: what an aggregation keeps per group in one row, as a list of slots of one or more columns each.

    slot                        columns                             used by
    RowCount                    bigint                              count(*); a group without rows is not stored
    NonNullCount                bigint                              count(x); sum and avg: NULL when it is 0
    WideSum                     decimal(38,0)                       sum and avg of integers and of decimals up to 28 digits
    ExactSum of decimals        binary                              sum and avg of longer decimals
    ExactSum of floats          binary, bigint, bigint, bigint      sum and avg of float and double; counts of NaN, inf and -inf
    Extreme                     the argument's type                 min, max

Calls over the same column share slots: avg(x), sum(x) and count(x) keep one sum and one count. A slot knows four moves, all of them
columns in, columns out:

    deposit(rows)  ──group by──> collect ──> state columns ──add──> state columns
    spread(states) ──group by──> collect ┘         rows or states, grouped with one pass over the keys for all slots
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.executors.agg_call import Agg
from jobs.executors.base import key_ids
from jobs.executors.exact_sum import Limbs, decode_limbs, encode_limbs, float_values, limbs_of_floats, limbs_of_int128
from jobs.executors.int128 import Int128, validity
from jobs.executors.integer_groups import sums_by_integer
from statestore.hummock.key import encode_values
from statestore.nested import is_nested
from statestore.types import arrow_type
from statestore.vnode import null_mask, one_array

I64 = npt.NDArray[np.int64]
State = list[pa.Array]

_LONGEST_WIDE = 28  # digits: sums of 10**10 such decimals fit a decimal(38,0)


@dataclass(frozen=True, slots=True)
class Deposit:
    """What a slot wants of a grouping: columns, each with the function that brings it to one value, and what makes states of these."""

    columns: list[tuple[pa.Array, str]]
    collect: Callable[[State], State]


class Slot(Protocol):
    """One kind of state over one column; `types` are those of its state columns."""

    @property
    def types(self) -> tuple[str, ...]: ...

    def deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        """Of raw rows."""
        ...

    def spread(self, state: State) -> Deposit:
        """Of states, one per row."""
        ...

    def add(self, before: State, change: State) -> State:
        """The states after a change, element by element; NULL before: nothing yet."""
        ...


@dataclass(frozen=True, slots=True)
class RowCount:
    """How many rows the group has."""

    @property
    def types(self) -> tuple[str, ...]:
        return ("bigint",)

    def deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        return Deposit([(pa.array(weights), "sum")], _zero_for_null)

    def spread(self, state: State) -> Deposit:
        return Deposit([(state[0], "sum")], _zero_for_null)

    def add(self, before: State, change: State) -> State:
        return [pc.add(pc.fill_null(before[0], 0), change[0])]


@dataclass(frozen=True, slots=True)
class NonNullCount:
    """How many rows of the group have a value in the column."""

    arg: int

    @property
    def types(self) -> tuple[str, ...]:
        return ("bigint",)

    def deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        column = one_array(rows.column(self.arg))
        return Deposit([(pa.array(_where_there(weights, column)), "sum")], _zero_for_null)

    def spread(self, state: State) -> Deposit:
        return Deposit([(state[0], "sum")], _zero_for_null)

    def add(self, before: State, change: State) -> State:
        return [pc.add(pc.fill_null(before[0], 0), change[0])]


@dataclass(frozen=True, slots=True)
class WideSum:
    """The sum of an integer column, or of a decimal's unscaled values, as a 128-bit integer."""

    arg: int
    arg_type: str

    @property
    def types(self) -> tuple[str, ...]:
        return ("decimal(38,0)",)

    def deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        column = one_array(rows.column(self.arg))
        wide = Int128.of_decimals(column) if pa.types.is_decimal(column.type) else Int128.of_int64(_integers(column))
        if (values := _narrow(wide, int(np.abs(weights).sum()))) is not None:
            return Deposit([(pa.array(values * weights), "sum")], _wide_of_int64)
        limbs = limbs_of_int128(wide, weights)
        return Deposit([(pa.array(digit), "sum") for digit in limbs.digits], _wide_of_limbs)

    def spread(self, state: State) -> Deposit:
        if (values := _narrow(Int128.of_decimals(state[0]), len(state[0]))) is not None:
            return Deposit([(pa.array(values), "sum")], _wide_of_int64)
        return Deposit([(state[0], "sum")], _as_wide)

    def add(self, before: State, change: State) -> State:
        return [(Int128.of_decimals(before[0]) + Int128.of_decimals(change[0])).to_decimals(38, 0)]


@dataclass(frozen=True, slots=True)
class ExactSum:
    """The sum of a column as limbs: of doubles without any rounding, of decimals beyond 128 bits."""

    arg: int
    arg_type: str

    @property
    def floating(self) -> bool:
        return self.arg_type in ("float", "double")

    @property
    def types(self) -> tuple[str, ...]:
        return ("binary", "bigint", "bigint", "bigint") if self.floating else ("binary",)

    def deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        column = one_array(rows.column(self.arg))
        if not self.floating:
            return _of_limbs(limbs_of_int128(Int128.of_decimals(column), weights), [])
        values = float_values(column)
        finite = np.isfinite(values)
        limbs = limbs_of_floats(values, weights)
        if bool(finite.all()):
            nothing = pa.array(np.zeros(len(values), np.int64))
            return _of_limbs(limbs, [nothing, nothing, nothing])
        specials = (np.isnan(values), values == np.inf, values == -np.inf)
        return _of_limbs(limbs, [pa.array(np.where(s, weights, 0)) for s in specials])

    def spread(self, state: State) -> Deposit:
        return _of_limbs(decode_limbs(state[0]), state[1:])

    def add(self, before: State, change: State) -> State:
        total = encode_limbs(decode_limbs(before[0]) + decode_limbs(change[0]))
        return [total, *(pc.add(pc.fill_null(b, 0), c) for b, c in zip(before[1:], change[1:], strict=True))]


@dataclass(frozen=True, slots=True)
class Extreme:
    """The largest (or smallest) value of a column; NULL where the group has none.

    `retractable`: rows may go. Then its change is two columns, the extreme of the rows that come and of those that go, and only an
    extreme state knows what is left (see extreme.py).
    """

    arg: int
    arg_type: str
    largest: bool
    retractable: bool

    @property
    def types(self) -> tuple[str, ...]:
        return (self.arg_type,)

    @property
    def function(self) -> str:
        return "max" if self.largest else "min"

    def deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        column = one_array(rows.column(self.arg))
        comparable = self._comparable(column)
        restored = partial(self._restored, column, comparable)
        if not self.retractable:
            return Deposit([(comparable, self.function)], restored)
        come, gone = pa.array(weights > 0), pa.array(weights < 0)
        return Deposit([(pc.if_else(half, comparable, None), self.function) for half in (come, gone)], restored)

    def spread(self, state: State) -> Deposit:
        comparable = self._comparable(state[0])
        return Deposit([(comparable, self.function)], partial(self._restored, state[0], comparable))

    def add(self, before: State, change: State) -> State:
        return [self.better(before[0], change[0])]

    def better(self, left: pa.Array, right: pa.Array) -> pa.Array:
        """The more extreme of two values; a NULL loses."""
        return pc.if_else(pc.or_(pc.is_null(left), self.beats(right, left)), right, left)

    def beats(self, left: pa.Array, right: pa.Array) -> pa.BooleanArray:
        """Whether `left` is more extreme; False where either is NULL."""
        x, y = self._comparable(left), self._comparable(right)
        return pc.fill_null(pc.greater(x, y) if self.largest else pc.less(x, y), False)

    def _comparable(self, column: pa.Array) -> pa.Array:
        """Floats as integers in Spark's order, NaN above all; arrays and structs as bytes in Spark's order; other types as they are."""
        if is_nested(column.type):
            return pc.if_else(column.is_valid(), encode_values(column), pa.scalar(None, pa.binary()))
        return _ordered_bits(column) if self.arg_type in ("float", "double") else column

    def _restored(self, column: pa.Array, comparable: pa.Array, values: State) -> State:
        """Of comparable values some, as they are in the column."""
        if is_nested(column.type):
            return [column.take(pc.index_in(v, value_set=comparable)) for v in values]
        floating = self.arg_type in ("float", "double")
        return [(_from_ordered_bits(v) if floating else v).cast(arrow_type(self.arg_type)) for v in values]


@dataclass(frozen=True, slots=True)
class ValueLayout:
    """The slots of one aggregation, the row count first, and which of them each call reads."""

    slots: tuple[Slot, ...]

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
    slots: dict[Slot, None] = {RowCount(): None}
    for call in calls:
        for slot in slots_of(call, append_only):
            slots.setdefault(slot)
    return ValueLayout(tuple(slots))


def slots_of(call: Agg, append_only: bool) -> tuple[Slot, ...]:
    """The slots of one call: count: one; sum, avg: the sum, then the count; min, max: one."""
    if call.arg is None or call.arg_type is None:
        return (RowCount(),)
    match call.function:
        case "Count":
            return (NonNullCount(call.arg),)
        case "Sum" | "Average":
            kind = arrow_type(call.arg_type)
            exact = pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.precision > _LONGEST_WIDE)
            total: Slot = ExactSum(call.arg, call.arg_type) if exact else WideSum(call.arg, call.arg_type)
            return (total, NonNullCount(call.arg))
        case "Min" | "Max":
            return (Extreme(call.arg, call.arg_type, call.function == "Max", not append_only),)
        case _:
            raise ValueError(f"aggregate {call.function!r}: the binder lets only Count, Sum, Average, Min and Max through")


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
    table = pa.table([*keys, *(column for column, _ in wanted)], names=[*names, *(f"a{i}" for i in range(len(wanted)))])
    grouped = table.group_by(names, use_threads=False).aggregate([(f"a{i}", function) for i, (_, function) in enumerate(wanted)])
    # Another version's order of columns must not matter: take them by name.
    values = [one_array(grouped[f"a{i}_{function}"]) for i, (_, function) in enumerate(wanted)]
    return [one_array(grouped[name]) for name in names], values


def _narrow(wide: Int128, rows: int) -> I64 | None:
    """The integers as int64, if even all of them together, so many rows, stay within 63 bits; then one sum will do."""
    if not bool(wide.fits_int64().all()):
        return None
    values = wide.low.view(np.int64)
    largest = int(np.abs(values.astype(np.float64)).max()) if len(values) else 0
    return values if largest * rows < 2**62 else None


def _zero_for_null(values: State) -> State:
    return [pc.fill_null(v, 0) if v.null_count else v for v in values]


def _where_there(weights: I64, column: pa.Array) -> I64:
    return np.where(null_mask(column), 0, weights) if column.null_count else weights


def _integers(column: pa.Array) -> I64:
    """An integer column as (n,) int64; 0 where NULL."""
    return pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _wide_of_int64(values: State) -> State:
    return [pc.fill_null(values[0], 0).cast(pa.decimal128(38, 0))]


def _wide_of_limbs(values: State) -> State:
    digits = np.stack([pc.fill_null(v, 0).to_numpy(zero_copy_only=False) for v in values])
    return [Limbs(0, digits).to_int128()[0].to_decimals(38, 0)]


def _as_wide(values: State) -> State:
    # Arrow adds decimals as 128-bit integers, which is what the state is.
    return [Int128.of_decimals(values[0]).to_decimals(38, 0)]


def _of_limbs(limbs: Limbs, specials: Sequence[pa.Array]) -> Deposit:
    def collect(values: State) -> State:
        filled = _zero_for_null(values)
        digits = np.stack([v.to_numpy(zero_copy_only=False) for v in filled[: len(limbs.digits)]])
        return [encode_limbs(Limbs(limbs.lowest, digits)), *filled[len(limbs.digits) :]]

    return Deposit([(column, "sum") for column in (*(pa.array(d) for d in limbs.digits), *specials)], collect)


def _ordered_bits(column: pa.Array) -> pa.Array:
    """Floats as int64 that compare as Spark compares floats: NaN, however signed, is above infinity. -0.0 is just below 0.0."""
    values = float_values(column)
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    nulls = null_mask(column) if column.null_count else None
    return pa.array(ordered, pa.int64(), mask=nulls)


def _from_ordered_bits(column: pa.Array) -> pa.Array:
    ordered = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    bits = np.where(ordered < 0, ordered ^ np.int64(2**63 - 1), ordered)
    valid = ~null_mask(column) if column.null_count else None
    return pa.Array.from_buffers(pa.float64(), len(bits), [validity(valid), pa.py_buffer(bits)])
