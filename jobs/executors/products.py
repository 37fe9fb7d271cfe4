"""Exact sums of products of doubles (x * x, x * y, …), and integer arithmetic on limbs for moments.

Like the sums of exact_sum.py, they support deletes without any error.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.executors.exact_sum import I64, Limbs, decode_limbs, float_values, sum_of_limbs
from tussock.jobs.executors.float_limbs import U64, limbs_of_products, times_words
from tussock.jobs.executors.value_state import Deposit, Slot, State, deposit_of_limbs, weights_where_there
from tussock.statestore.vnode import one_array


@dataclass(frozen=True, slots=True)
class ExactProduct(Slot):
    """The sum of a product of double columns, over rows with a value in all of `args`.

    Factors that are not finite count as 0.
    """

    factors: tuple[int, ...]
    args: tuple[int, ...]

    @property
    def types(self) -> tuple[str, ...]:
        return ("binary",)

    def make_deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        counted = weights_where_there(rows, self.args, weights)
        columns = {f: float_values(one_array(rows.column(f))) for f in dict.fromkeys(self.factors)}
        return deposit_of_limbs(limbs_of_products([columns[f] for f in self.factors], counted), [])

    def deposit_of_state(self, state: State) -> Deposit:
        return deposit_of_limbs(decode_limbs(state[0]), [])

    def add_change(self, before: State, change: State) -> State:
        return [sum_of_limbs(before[0], change[0])]


def multiply_limbs(left: Limbs, right: Limbs) -> Limbs:
    """Products of integers, element by element, carried."""
    (a, a_negative), (b, b_negative) = _split_signs(left), _split_signs(right)
    digits = np.stack(times_words(list(a), list(b))).astype(np.int64)
    signs = np.where(a_negative ^ b_negative, -1, 1)
    return Limbs(left.lowest + right.lowest, digits * signs).carry_digits()


def add_limbs(left: Limbs, right: Limbs, factor: int) -> Limbs:
    """left + factor * right, carried. Requires: the factor is small."""
    right = right.carry_digits()
    return (left.carry_digits() + Limbs(right.lowest, right.digits * factor)).carry_digits()


def limbs_of_integers(values: I64) -> Limbs:
    """Convert integers from 0 to 2**62 to limbs."""
    return Limbs(0, np.stack([values & np.int64(2**32 - 1), values >> np.int64(32)]))


def _split_signs(limbs: Limbs) -> tuple[U64, npt.NDArray[np.bool_]]:
    """Absolute values in digits below 2**32 without leading zero digits, and which values are negative."""
    size = limbs.carry_digits().digits
    negative = size[-1] < 0
    if negative.any():
        size = Limbs(0, np.where(negative, -size, size)).carry_digits().digits
    used = np.flatnonzero(size.any(axis=1))
    return size[: int(used[-1]) + 1 if len(used) else 1].astype(np.uint64), negative
