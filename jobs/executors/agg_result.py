"""From value states to what a query sees: counts, sums and averages with Spark's types, rounding and overflow.

Overflow is judged here, on the epoch's final value, never while summing up: an error that names the group in ANSI mode, NULL in TRY mode.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.executors.agg_call import Agg
from jobs.executors.exact_sum import decode_limbs
from jobs.executors.int128 import Int128
from jobs.executors.value_state import ExactSum, Slot, State
from jobs.kernels.kernel import Kernel
from statestore.errors import InputError
from statestore.types import arrow_type

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_SUM_DIGITS = 10  # what a decimal sum has more than its argument, in Spark
_MOST_DIGITS = 38


class AggregateOverflowError(InputError):
    """A sum or average does not fit its type, as Spark in ANSI mode would say. Which view's, the note says that it gets on its way."""

    def __init__(self, call: str, type_name: str, group: str) -> None:
        super().__init__(call, type_name, group)
        self.call, self.type_name, self.group = call, type_name, group

    def __str__(self) -> str:
        where = f"for group ({self.group})" if self.group else "over all rows"
        return (
            f"{self.call} {where} does not fit {self.type_name}. "
            "Correct the rows, or go on without the view (`tussock barrier abandon --drop`) and create it again with the argument cast to "
            "a wider type, such as double."
        )


@dataclass(frozen=True, slots=True)
class Result:
    """A call's value per group. `overflow` says where it does not fit (the value there is NULL); None: everywhere it does."""

    values: pa.Array
    overflow: Mask | None = None


def result_of(call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
    """The value of one call.

    Args:
        slots, states: the call's own (see value_state.slots_of) and their columns, (n,) each; NULL state: no rows.
        kernel: divides decimals.

    Returns: (n,) of exactly `arrow_type(call.type)`.
    Cost: some passes over the columns; one query for an average of decimals.
    """
    kind = arrow_type(call.type)
    if call.function in ("Min", "Max", "Count"):
        (column,) = states[0]
        return Result(column if call.function != "Count" else pc.fill_null(column, 0))
    count = pc.fill_null(states[1][0], 0).to_numpy(zero_copy_only=False)
    some = count != 0
    if isinstance(slots[0], ExactSum) and slots[0].floating:
        return _floating(call, states[0], count)
    assert call.arg_type is not None
    argument = arrow_type(call.arg_type)
    if isinstance(slots[0], ExactSum):
        total, fits = decode_limbs(states[0][0]).to_int128()
    else:
        total, fits = Int128.of_decimals(states[0][0]), np.ones(len(count), np.bool_)
    if pa.types.is_decimal(argument):
        fits &= total.fits_digits(min(_MOST_DIGITS, argument.precision + _SUM_DIGITS))
        total = Int128(np.where(fits, total.low, np.uint64(0)), np.where(fits, total.high, np.int64(0)))
        if call.function == "Sum":
            return _judged(total.to_decimals(kind.precision, kind.scale, some & fits), some & ~fits)
        values = _decimal_quotient(total, count, kind.scale - argument.scale, kind, kernel)
        overflow = some & (~fits | values.is_null().to_numpy(zero_copy_only=False))
        return _judged(pc.if_else(pa.array(some & fits), values, None), overflow)
    if call.function == "Sum":
        fits = total.fits_int64()
        return _judged(pa.array(total.low.view(np.int64), kind, mask=~(some & fits)), some & ~fits)
    return Result(_doubles(_divided(total.to_float64(), count), some))


def _floating(call: Agg, state: State, count: npt.NDArray[np.int64]) -> Result:
    """Sum or average of float or double."""
    total = decode_limbs(state[0]).to_float64()
    nan, plus, minus = (pc.fill_null(c, 0).to_numpy(zero_copy_only=False) > 0 for c in state[1:])
    total = np.where(plus, np.inf, np.where(minus, -np.inf, total))
    total = np.where(nan | (plus & minus), np.nan, total)
    return Result(_doubles(total if call.function == "Sum" else _divided(total, count), count != 0))


def _divided(total: F64, count: npt.NDArray[np.int64]) -> F64:
    return total / np.maximum(count, 1)


def _doubles(values: F64, valid: Mask) -> pa.Array:
    return pa.array(values, pa.float64(), mask=~valid)


def _judged(values: pa.Array, overflow: Mask) -> Result:
    return Result(values, overflow if overflow.any() else None)


def _decimal_quotient(total: Int128, count: npt.NDArray[np.int64], digits: int, kind: pa.Decimal128Type, kernel: Kernel) -> pa.Array:
    """total / count as `kind`, rounded half up (away from zero); NULL where it does not fit.

    `kind` has `digits` more places than `total`, 0 to 4. The quotient comes before the added places, so that nothing exceeds 128 bits.
    """
    table = pa.table({"t": total.to_decimals(_MOST_DIGITS, 0), "c": pa.array(np.maximum(count, 1))})
    scale = 10**digits
    size = "abs(t::HUGEINT)"
    rounded = f"(({size} % c) * {scale * 2} + c) // (c::HUGEINT * 2)"
    whole = f"CASE WHEN {size} // c < {10 ** (kind.precision - digits)}::HUGEINT THEN ({size} // c) * {scale} + {rounded} END"
    sql = f"SELECT TRY_CAST(sign(t) * ({whole}) AS DECIMAL({kind.precision},0)) AS q FROM states"
    column = kernel.query(sql, states=table)["q"].combine_chunks()
    array = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    return Int128.of_decimals(array).to_decimals(kind.precision, kind.scale, array.is_valid().to_numpy(zero_copy_only=False))
