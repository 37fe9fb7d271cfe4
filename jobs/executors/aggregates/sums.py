"""count, sum and avg."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import F64, I64, Mask, Result, to_double_array
from tussock.jobs.executors.aggregates.plain import Plain
from tussock.jobs.executors.exact_sum import decode_limbs, integer_values, with_specials
from tussock.jobs.executors.int128 import Int128
from tussock.jobs.executors.value_state import ExactSum, NonNullCount, RowCount, Slot, State, WideSum
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import AggFunction
from tussock.statestore.types import MONTHS, arrow_type

_SUM_DIGITS = 10  # in Spark, a decimal sum has this many digits more than its argument
_MOST_DIGITS = 38
_LONGEST_WIDE = 28  # digits; the sum of 10**10 such decimals fits a decimal(38,0)


class Count(Plain):
    """The number of rows, or of rows with a value in every argument."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        return (RowCount(),) if call.arg is None else (NonNullCount(call.arg, call.more),)

    def compute_result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        return Result(pc.fill_null(states[0][0], 0))


class Sum(Plain):
    """sum and avg: NULL without values. The sum is exact; only the result is rounded."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        kind = arrow_type(arg_type)
        exact = pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.precision > _LONGEST_WIDE)
        total: Slot = ExactSum(arg, arg_type) if exact else WideSum(arg, arg_type)
        return (total, NonNullCount(arg))

    def compute_result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        """Cost: a few passes over the columns; one query for an average of decimals."""
        kind = arrow_type(call.type)
        count = integer_values(states[1][0])
        some = count != 0
        if isinstance(slots[0], ExactSum) and slots[0].is_floating:
            return _float_result(call, states[0], count)
        argument = arrow_type(call.first_arg[1])
        if isinstance(slots[0], ExactSum):
            total, fits = decode_limbs(states[0][0]).to_int128()
        else:
            total, fits = Int128.of_decimals(states[0][0]), np.ones(len(count), np.bool_)
        if pa.types.is_decimal(argument):
            fits &= total.fits_digits(min(_MOST_DIGITS, argument.precision + _SUM_DIGITS))
            total = Int128(np.where(fits, total.low, np.uint64(0)), np.where(fits, total.high, np.int64(0)))
            if call.function is AggFunction.SUM:
                return _result_with_overflow(total.to_decimals(kind.precision, kind.scale, some & fits), some & ~fits)
            values = _decimal_quotient(total, count, kind.scale - argument.scale, kind, kernel)
            overflow = some & (~fits | values.is_null().to_numpy(zero_copy_only=False))
            return _result_with_overflow(pc.if_else(pa.array(some & fits), values, None), overflow)
        whole, fits = total.low.view(np.int64), total.fits_int64()
        if argument == MONTHS:
            fits &= whole == whole.astype(np.int32)
        if call.function is AggFunction.SUM:
            return _result_with_overflow(pa.array(whole, kind, mask=~(some & fits)), some & ~fits)
        if pa.types.is_duration(kind):
            return _mean_interval(whole, count, some, some & ~fits, kind)
        return Result(to_double_array(_divide_by_count(total.to_float64(), count), some))


def _float_result(call: Agg, state: State, count: I64) -> Result:
    """The sum or average of float or double values."""
    total = with_specials(decode_limbs(state[0]).to_float64(), np.stack([integer_values(c) for c in state[1:]]))
    return Result(
        to_double_array(total if call.function is AggFunction.SUM else _divide_by_count(total, count), count != 0)
    )


def _mean_interval(total: I64, count: I64, some: Mask, overflow: Mask, kind: pa.DurationType) -> Result:
    """total / count in whole microseconds or months, rounded half up (away from zero)."""
    n = np.maximum(count, 1)
    whole, rest = np.divmod(np.abs(total), n)
    mean = np.sign(total) * (whole + (rest >= n - rest))
    return _result_with_overflow(pa.array(mean, kind, mask=~(some & ~overflow)), overflow)


def _divide_by_count(total: F64, count: I64) -> F64:
    return total / np.maximum(count, 1)


def _result_with_overflow(values: pa.Array, overflow: Mask) -> Result:
    return Result(values, overflow if overflow.any() else None)


def _decimal_quotient(total: Int128, count: I64, digits: int, kind: pa.Decimal128Type, kernel: Kernel) -> pa.Array:
    """total / count as `kind`, rounded half up (away from zero); NULL if it does not fit.

    `kind` has `digits` (0 to 4) more decimal places than `total`. They are added after the division, so that no value
    exceeds 128 bits.
    """
    table = pa.table({"t": total.to_decimals(_MOST_DIGITS, 0), "c": pa.array(np.maximum(count, 1))})
    scale = 10**digits
    size = "abs(t::HUGEINT)"
    rounded = f"(({size} % c) * {scale * 2} + c) // (c::HUGEINT * 2)"
    whole = (
        f"CASE WHEN {size} // c < {10 ** (kind.precision - digits)}::HUGEINT THEN ({size} // c) * {scale} + "
        f"{rounded} END"
    )
    column = kernel.compute_columns(f"TRY_CAST(sign(t) * ({whole}) AS DECIMAL({kind.precision},0)) AS q", table)[
        "q"
    ].combine_chunks()
    array = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    return Int128.of_decimals(array).to_decimals(
        kind.precision, kind.scale, array.is_valid().to_numpy(zero_copy_only=False)
    )
