"""Doubles, and products of doubles, as limbs (exact_sum.py).

A product of k doubles is an integer multiple of 2**(-1074 * k). It is also the exact sum of at most 2**(k - 1) doubles:
the rounded product and its rounding error, which is again a double (Dekker, "A floating-point technique for extending
the available precision", 1971). Most values can therefore be converted with a few exact additions and multiplications
of doubles. Values near the limits of doubles, which might be rounded, and values of very different size are multiplied
in 32-bit digits.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tussock.jobs.executors.exact_sum import F64, I64, LEAST_EXPONENT, Limbs, Mask

U64 = npt.NDArray[np.uint64]

_DIGIT = np.uint64(2**32 - 1)
_32 = np.uint64(32)
_SPLIT = 2.0**27 + 1
_NOT_FINITE = 0x7FF  # the exponent of NaN and infinities
_ONE = 1023  # the exponent of 1.0
_MOST_LIMBS = 16  # limit for conversion by additions, whose cost includes unused limbs
_BLOCK = 1 << 14  # values processed at once, so that intermediate results fit in the CPU's cache


def limbs_of_products(factors: Sequence[F64], weights: I64) -> Limbs:
    """weights * factors[0] * factors[1] * … as limbs of 2**(-1074 * k), not carried; 0 if a factor is not finite.

    Requires: weights are below 2**31 in size; at most four factors. Cost: if the values have similar sizes, about 5 ns
    per value and limb for one factor, and twice that for each further factor; otherwise about 0.1 µs per value.
    Memory: 8 bytes per value and limb.
    """
    exponents = [((factor.view(np.uint64) >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int16) for factor in factors]
    there = np.logical_and.reduce(
        [(exponent != _NOT_FINITE) & (factor != 0) for exponent, factor in zip(exponents, factors, strict=True)]
    )
    if not there.any():
        return Limbs(0, np.zeros((1, len(weights)), np.int64))
    if not there.all():  # infinity times zero is NaN
        factors = [np.where(there, factor, 0.0) for factor in factors]
        weights, exponents = np.where(there, weights, 0), [np.where(there, exponent, _ONE) for exponent in exponents]
    bounds = [(max(int(exponent.min()), 1), max(int(exponent.max()), 1)) for exponent in exponents]
    lowest = sum(low - 1 for low, _ in bounds) >> 5
    highest = (sum(high - 1 for _, high in bounds) + 53 * len(factors) - 1) >> 5
    digits = np.zeros((highest - lowest + 1, len(weights)), np.int64)
    # With exponents in this range around 1.0, no bit of a product or of its parts is lost in a double.
    reach = 960 // len(factors) - 53
    apart = len(digits) <= _MOST_LIMBS and all(_ONE - reach <= low and high <= _ONE + reach for low, high in bounds)
    for start in range(0, len(weights), _BLOCK):
        block = slice(start, start + _BLOCK)
        if apart:
            _take_apart([factor[block] for factor in factors], lowest, digits[:, block])
        else:
            _multiply_out([factor[block] for factor in factors], there[block], lowest, digits[:, block])
    used = np.flatnonzero([bool(digit.any()) for digit in digits])
    digits = digits[used[0] : used[-1] + 1] if len(used) else digits[:1]
    return Limbs(lowest + int(used[0]) if len(used) else 0, digits if bool((weights == 1).all()) else digits * weights)


def _take_apart(factors: Sequence[F64], lowest: int, digits: I64) -> None:
    """Write the digits of each product into its zeroed column of `digits`.

    Each digit has the sign of the product or of a part.
    """
    parts = [factors[0]]
    for factor in factors[1:]:
        parts = [part for whole in parts for part in _two_product(whole, factor)]
    exponents = [32 * (lowest + i) + LEAST_EXPONENT * len(factors) for i in range(len(digits))]
    for part in parts:
        rest = part
        largest = float(np.abs(part).max())
        for digit, exponent in zip(digits[::-1], exponents[::-1], strict=True):
            if largest < 2.0**exponent and exponent != exponents[0]:
                continue
            steps = np.trunc(rest * 2.0**-exponent)
            digit += steps.astype(np.int64)
            rest = rest - steps * 2.0**exponent
            if not rest.any():
                break


def _two_product(a: F64, b: F64) -> tuple[F64, F64]:
    """The rounded product and its rounding error."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split_halves(a), _split_halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split_halves(values: F64) -> tuple[F64, F64]:
    """Split each value into a sum of two with at most 26 bits each, so that their products are exact."""
    scaled = values * _SPLIT
    high = scaled - (scaled - values)
    return high, values - high


def _multiply_out(factors: Sequence[F64], there: Mask, lowest: int, digits: I64) -> None:
    """Write the digits of each product into its zeroed column of `digits`."""
    words: list[U64] = [np.ones(len(there), np.uint64)]
    place: I64 = np.zeros(len(there), np.int64)  # position of the lowest bit of each product
    negative = np.zeros(len(there), np.bool_)
    for factor in factors:
        bits = factor.view(np.uint64)
        exponent = ((bits >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64)
        mantissa = (bits & np.uint64(2**52 - 1)) | np.where(exponent > 0, np.uint64(1) << np.uint64(52), np.uint64(0))
        place += np.maximum(exponent, 1) - 1
        negative ^= (bits >> np.uint64(63)) == 1
        words = times_words(words, [mantissa & _DIGIT, mantissa >> _32])
    limb, shift = np.where(there, (place >> 5) - lowest, 0), (place & 31).astype(np.uint64)
    columns, carry = np.arange(len(there)), np.zeros(len(there), np.uint64)
    signs = np.where(negative, -1, 1)
    for i, word in enumerate([*words, np.zeros(len(there), np.uint64)]):
        moved = (word << shift) | carry
        value = (moved & _DIGIT).astype(np.int64) * signs
        some = np.flatnonzero(value)  # words above a product's highest bit may have no limb
        digits[limb[some] + i, columns[some]] = value[some]
        carry = moved >> _32


def times_words(a: list[U64], b: list[U64]) -> list[U64]:
    """Multiply two numbers in 32-bit words.

    The product of two words, the previous word and the carry stay below 2**64.
    """
    out = [np.zeros(len(a[0]), np.uint64) for _ in range(len(a) + len(b))]
    for j, factor in enumerate(b):
        carry = np.zeros(len(a[0]), np.uint64)
        for i, word in enumerate(a):
            total = word * factor + out[i + j] + carry
            out[i + j], carry = total & _DIGIT, total >> _32
        out[j + len(a)] = carry
    return out
