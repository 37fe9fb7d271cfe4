"""Moments of doubles and of pairs of doubles: stddev, variance, skewness, kurtosis, covar, corr, regr.

The state has n and the exact sums of powers and products, so that deletes leave no error. With S1 = sum of x, S2 = sum
of x*x, …, the central moments in Spark's formulas are fractions of integers. No digits cancel before the division:

    m2 = (n S2 - S1^2) / n
    m3 = (n^2 S3 - 3 n S1 S2 + 2 S1^3) / n^2
    m4 = (n^3 S4 - 4 n^2 S1 S3 + 6 n S1^2 S2 - 3 S1^4) / n^3
    ck = (n Sxy - Sx Sy) / n

The results follow from these with Spark's formulas, in doubles. If a value is NaN or infinite, all moments are NaN.
"""

from collections.abc import Sequence

import numpy as np

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import F64, I64, AggregateDivisionError, Mask, Result, to_double_array
from tussock.jobs.executors.aggregates.plain import Plain
from tussock.jobs.executors.exact_sum import Limbs, decode_limbs, integer_values
from tussock.jobs.executors.products import ExactProduct, add_limbs, limbs_of_integers, multiply_limbs
from tussock.jobs.executors.value_state import ExactSum, NonNullCount, Slot, State
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import AggFunction

_ORDER = {AggFunction.SKEWNESS: 3, AggFunction.KURTOSIS: 4}  # order of the highest moment; 2 for other functions


class Moments(Plain):
    """Functions of one column."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        powers = range(2, _ORDER.get(call.function, 2) + 1)
        return (NonNullCount(arg), ExactSum(arg, arg_type), *(ExactProduct((arg,) * k, (arg,)) for k in powers))

    def compute_result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        count, finite = _count_of(states[0]), _are_finite(states[1])
        sums = [decode_limbs(state[0]) for state in states[1:]]
        m2 = _to_moment(_second_central(count, sums[0], sums[1]), count, 1, 2, finite)
        some, n = count > 0, count.astype(np.float64)
        with np.errstate(all="ignore"):
            match call.function:
                case AggFunction.VAR_POP:
                    return Result(to_double_array(m2 / n, some))
                case AggFunction.STDDEV_POP:
                    return Result(to_double_array(np.sqrt(m2 / n), some))
                case AggFunction.VAR_SAMP:
                    return Result(to_double_array(m2 / (n - 1), count > 1))
                case AggFunction.STDDEV_SAMP:
                    return Result(to_double_array(np.sqrt(m2 / (n - 1)), count > 1))
                case AggFunction.SKEWNESS:
                    m3 = _to_moment(_third_central(count, *sums), count, 2, 3, finite)
                    return Result(to_double_array(np.sqrt(n) * m3 / np.sqrt(m2 * m2 * m2), some & (m2 != 0)))
                case AggFunction.KURTOSIS:
                    m4 = _to_moment(_fourth_central(count, *sums), count, 3, 4, finite)
                    return Result(to_double_array(n * m4 / (m2 * m2) - 3.0, some & (m2 != 0)))
                case AggFunction.REGR_SXX:
                    return Result(to_double_array(m2, some))
                case other:
                    raise AssertionError(f"{other} is no function of the moments of a column")


class Pairs(Plain):
    """Functions of two columns, over rows with values in both.

    For regr_…, y (dependent) is first, x (independent) second.
    """

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        (y, x), (y_type, x_type) = call.args, call.arg_types
        both = (y, x)
        products: tuple[tuple[int, int], ...] = ((y, x),)
        if call.function in (AggFunction.CORR, AggFunction.REGR_R2):
            products = ((y, x), (y, y), (x, x))
        elif call.function in (AggFunction.REGR_SLOPE, AggFunction.REGR_INTERCEPT):
            products = ((y, x), (x, x))
        sums = (ExactSum(y, y_type, (x,)), ExactSum(x, x_type, (y,)))
        return (NonNullCount(y, (x,)), *sums, *(ExactProduct(p, both) for p in products))

    def compute_result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        count, y_finite, x_finite = _count_of(states[0]), _are_finite(states[1]), _are_finite(states[2])
        y, x, *products = (decode_limbs(state[0]) for state in states[1:])
        ck = _to_moment(
            add_limbs(multiply_limbs(limbs_of_integers(count), products[0]), multiply_limbs(y, x), -1),
            count,
            1,
            2,
            y_finite & x_finite,
        )
        some, n = count > 0, count.astype(np.float64)
        with np.errstate(all="ignore"):
            match call.function:
                case AggFunction.COVAR_POP:
                    return Result(to_double_array(ck / n, some))
                case AggFunction.COVAR_SAMP:
                    return Result(to_double_array(ck / (n - 1), count > 1))
                case AggFunction.REGR_SXY:
                    return Result(to_double_array(ck, some))
                case AggFunction.CORR | AggFunction.REGR_R2:
                    y2 = _to_moment(_second_central(count, y, products[1]), count, 1, 2, y_finite)
                    x2 = _to_moment(_second_central(count, x, products[2]), count, 1, 2, x_finite)
                    return _compute_correlation(call.function, count, ck, y2, x2)
                case AggFunction.REGR_SLOPE | AggFunction.REGR_INTERCEPT:
                    x2 = _to_moment(_second_central(count, x, products[1]), count, 1, 2, x_finite)
                    slope = ck / x2
                    if call.function is AggFunction.REGR_SLOPE:
                        return Result(to_double_array(slope, some & (x2 != 0)))
                    y_mean, x_mean = (_to_moment(s, count, 1, 1, f) for s, f in ((y, y_finite), (x, x_finite)))
                    return Result(to_double_array(y_mean - slope * x_mean, some & (x2 != 0)))
                case other:
                    raise AssertionError(f"{other} is no function of the moments of two columns")


def _compute_correlation(function: AggFunction, count: I64, ck: F64, y2: F64, x2: F64) -> Result:
    """corr divides by zero, as in Spark, if all values of a column are equal.

    regr_r2 is NULL if all x are equal, and 1 if only all y are.
    """
    product = y2 * x2
    quotient = ck / np.sqrt(product)
    if function is AggFunction.CORR:
        bad = (count > 1) & (product == 0)
        return Result(to_double_array(quotient, (count > 1) & ~bad), bad if bad.any() else None, AggregateDivisionError)
    return Result(to_double_array(np.where(y2 == 0, 1.0, quotient * quotient), (count > 0) & (x2 != 0)))


def _second_central(n: I64, s1: Limbs, s2: Limbs) -> Limbs:
    return add_limbs(multiply_limbs(limbs_of_integers(n), s2), multiply_limbs(s1, s1), -1)


def _third_central(n: I64, s1: Limbs, s2: Limbs, s3: Limbs) -> Limbs:
    count = limbs_of_integers(n)
    square = multiply_limbs(s1, s1)
    total = add_limbs(
        multiply_limbs(multiply_limbs(count, count), s3), multiply_limbs(multiply_limbs(count, s1), s2), -3
    )
    return add_limbs(total, multiply_limbs(square, s1), 2)


def _fourth_central(n: I64, s1: Limbs, s2: Limbs, s3: Limbs, s4: Limbs) -> Limbs:
    count = limbs_of_integers(n)
    squared, square = multiply_limbs(count, count), multiply_limbs(s1, s1)
    total = add_limbs(
        multiply_limbs(multiply_limbs(squared, count), s4), multiply_limbs(multiply_limbs(squared, s1), s3), -4
    )
    total = add_limbs(total, multiply_limbs(multiply_limbs(count, square), s2), 6)
    return add_limbs(total, multiply_limbs(square, square), -3)


def _to_moment(numerator: Limbs, n: I64, power: int, factors: int, finite: Mask) -> F64:
    """numerator / n**power as doubles, in units of `factors` factors; NaN for groups with non-finite values."""
    mantissa, exponent = numerator.to_parts(factors)
    with np.errstate(all="ignore"):
        value = np.ldexp(
            mantissa / np.maximum(n, 1).astype(np.float64) ** power, np.clip(exponent, -(2**30), 2**30).astype(np.int32)
        )
    return np.where(finite, value, np.nan)


def _count_of(state: State) -> I64:
    return integer_values(state[0])


def _are_finite(state: State) -> Mask:
    """Whether each exact sum contains neither NaN nor infinity."""
    return sum(integer_values(c) for c in state[1:]) == 0  # type: ignore[return-value]
