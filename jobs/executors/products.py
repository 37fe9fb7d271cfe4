"""Exact sums of products of doubles (x * x, x * y, …), which shrink without a trace as the sums of exact_sum.py do, and the arithmetic of
whole numbers in limbs that makes moments of them.

A product of k doubles is a whole number of units of 2**(-1074 * k): mantissas are multiplied in digits of 32 bits, exponents added.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.executors.exact_sum import BLOCK, F64, Limbs, decode_limbs, encode_limbs, float_values
from jobs.executors.value_state import I64, Deposit, Slot, State, deposit_of_limbs, weights_where_there
from statestore.vnode import one_array

U64 = npt.NDArray[np.uint64]

_DIGIT = np.uint64(2**32 - 1)
_32 = np.uint64(32)


@dataclass(frozen=True, slots=True)
class ExactProduct(Slot):
    """The sum of a product of double columns, over rows where all of `args` have a value; factors that are not finite count as 0."""

    factors: tuple[int, ...]
    args: tuple[int, ...]

    @property
    def types(self) -> tuple[str, ...]:
        return ("binary",)

    def deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        counted = weights_where_there(rows, self.args, weights)
        columns = {f: float_values(one_array(rows.column(f))) for f in dict.fromkeys(self.factors)}
        return deposit_of_limbs(limbs_of_products([columns[f] for f in self.factors], counted), [])

    def spread(self, state: State) -> Deposit:
        return deposit_of_limbs(decode_limbs(state[0]), [])

    def add(self, before: State, change: State) -> State:
        return [encode_limbs(decode_limbs(before[0]) + decode_limbs(change[0]))]


def limbs_of_products(factors: Sequence[F64], weights: I64) -> Limbs:
    """weights * factors[0] * factors[1] * … as limbs of 2**(-1074 * k), not carried; where a factor is not finite: 0.

    Requires: weights are below 2**31 in size. Cost: about k times k passes over the rows; 8 bytes a row and limb.
    """
    there, place = _places(factors)
    if not there.any():
        return Limbs(0, np.zeros((1, len(weights)), np.int64))
    lowest, highest = (int(bound) >> 5 for bound in (place[there].min(), place[there].max()))
    place[~there] = lowest << 5
    out = np.zeros((highest - lowest + 2 * len(factors) + 2, len(weights)), np.int64)
    signed = np.where(there, weights, 0)
    for start in range(0, len(weights), BLOCK):
        block = slice(start, start + BLOCK)
        _place_digits([factor[block] for factor in factors], signed[block], place[block] - (lowest << 5), out[:, block])
    return Limbs(lowest, out)


def _places(factors: Sequence[F64]) -> tuple[npt.NDArray[np.bool_], I64]:
    """(n,) where no factor is zero, an infinity or a NaN; and the place of the lowest bit of each product."""
    place = np.zeros(len(factors[0]), np.int64)
    there = np.ones(len(factors[0]), np.bool_)
    for factor in factors:
        bits = factor.view(np.uint64)
        exponent = ((bits >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64)
        there &= (exponent != 0x7FF) & (bits << np.uint64(1) != 0)
        place += np.maximum(exponent, 1) - 1
    return there, place


def _place_digits(factors: Sequence[F64], weights: I64, place: I64, out: I64) -> None:
    """Write the digits of each product into its column of `out`, which is zero."""
    digits: list[U64] = [np.ones(len(weights), np.uint64)]
    negative = np.zeros(len(weights), np.bool_)
    for factor in factors:
        bits = factor.view(np.uint64)
        hidden = np.where(bits << np.uint64(1) >> np.uint64(53) > 0, np.uint64(1) << np.uint64(52), np.uint64(0))
        mantissa = (bits & np.uint64(2**52 - 1)) | hidden
        negative ^= (bits >> np.uint64(63)) == 1
        digits = _times(digits, [mantissa & _DIGIT, mantissa >> _32])
    limb, shift = place >> 5, (place & 31).astype(np.uint64)
    signed = np.where(negative, -weights, weights)
    rows, carry = np.arange(len(weights)), np.zeros(len(weights), np.uint64)
    for i, digit in enumerate([*digits, np.zeros(len(weights), np.uint64)]):
        moved = (digit << shift) | carry
        out[limb + i, rows] = (moved & _DIGIT).astype(np.int64) * signed
        carry = moved >> _32


def times(left: Limbs, right: Limbs) -> Limbs:
    """Products of whole numbers, element by element, carried."""
    (a, a_negative), (b, b_negative) = _sizes(left), _sizes(right)
    digits = np.stack(_times(list(a), list(b))).astype(np.int64)
    signs = np.where(a_negative ^ b_negative, -1, 1)
    return Limbs(left.lowest + right.lowest, digits * signs).carried()


def plus(left: Limbs, right: Limbs, factor: int = 1) -> Limbs:
    """left + factor * right, carried. Requires: the factor is small."""
    right = right.carried()
    return (left.carried() + Limbs(right.lowest, right.digits * factor)).carried()


def whole(values: I64) -> Limbs:
    """Integers from 0 to 2**62 as limbs."""
    return Limbs(0, np.stack([values & np.int64(2**32 - 1), values >> np.int64(32)]))


def _sizes(limbs: Limbs) -> tuple[U64, npt.NDArray[np.bool_]]:
    """Absolute values in digits below 2**32, and which are negative; digits at the end that are zero everywhere are left out."""
    carried = limbs.carried().digits
    negative = carried[-1] < 0
    size = Limbs(0, np.where(negative, -carried, carried)).carried().digits
    used = np.flatnonzero(size.any(axis=1))
    return size[: int(used[-1]) + 1 if len(used) else 1].astype(np.uint64), negative


def _times(a: list[U64], b: list[U64]) -> list[U64]:
    """The product of two numbers in digits below 2**32: a digit's product, what is there and the carry are below 2**64 together."""
    out = [np.zeros(len(a[0]), np.uint64) for _ in range(len(a) + len(b))]
    for j, factor in enumerate(b):
        carry = np.zeros(len(a[0]), np.uint64)
        for i, digit in enumerate(a):
            total = digit * factor + out[i + j] + carry
            out[i + j], carry = total & _DIGIT, total >> _32
        out[j + len(a)] = carry
    return out
