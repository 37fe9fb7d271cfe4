"""HyperLogLog++ as in Spark: registers by hash, and the estimate with its corrections.

The first p bits of a value's hash choose one of m = 2**p registers. A register holds the greatest rank so far. A rank
is the number of leading zeros in the rest of the hash, plus one. The state counts the values of each rank per register,
so that values can be deleted. There are at most 64 ranks per register, for any number of values.

    E = alpha m^2 / (sum of 2^-M over all registers); if E < 5 m, minus the mean bias of the six nearest table entries
    H = m ln(m / V) instead, for V registers that are still 0, if H is below a threshold
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.executors.exact_sum import leading_zeros
from tussock.statestore.vnode import null_mask, xxhash64

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

RANKS = 64  # possible ranks of a register
_NEAREST = 6


def registers_of(column: pa.Array, precision: int) -> pa.Array:
    """(n,) int32: 64 * register + rank of each value's hash; NULL for NULL."""
    hashes = xxhash64([column])
    register = (hashes >> np.uint64(64 - precision)).astype(np.int64)
    rank = (
        leading_zeros((hashes << np.uint64(precision)) | (np.uint64(1) << np.uint64(precision - 1))).astype(np.int64)
        + 1
    )
    mask = null_mask(column) if column.null_count else None
    return pa.array((register * RANKS + rank).astype(np.int32), mask=mask)


@dataclass(frozen=True, slots=True)
class Corrections:
    """The correction tables for one precision."""

    precision: int
    threshold: float
    estimates: tuple[float, ...]
    biases: tuple[float, ...]

    def estimate_from_sums(self, inverse: F64, filled: I64) -> I64:
        """(n,) the estimates from the sum of 2^-M over the nonzero registers, and the number of these."""
        m = 1 << self.precision
        zeros = (m - filled).astype(np.float64)
        estimate = self._correct_bias(_alpha(self.precision, m) * m * m / (inverse + zeros), m)
        with np.errstate(divide="ignore"):
            linear = m * np.log(m / zeros)
        return np.floor(np.where((zeros > 0) & (linear <= self.threshold), linear, estimate) + 0.5).astype(np.int64)

    def _correct_bias(self, raw: F64, m: int) -> F64:
        """Subtract the mean bias of the nearest estimates.

        A window moves up while that brings nearer estimates into it.
        """
        estimates, count = np.array(self.estimates), len(self.estimates)
        low = np.maximum(np.searchsorted(estimates, raw) - _NEAREST + 1, 0)
        high = np.minimum(low + _NEAREST, count)
        while True:
            nearer = (raw - estimates[np.minimum(high, count - 1)]) ** 2 < (
                raw - estimates[np.minimum(low, count - 1)]
            ) ** 2
            move = (high < count) & nearer
            if not move.any():
                break
            low, high = low + move, high + move
        upto = np.concatenate([[0.0], np.cumsum(np.array(self.biases))])
        return np.where(raw < 5.0 * m, raw - (upto[high] - upto[low]) / np.maximum(high - low, 1), raw)


def inverse_power_units(ranks: I64) -> tuple[I64, I64]:
    """2^-rank in units of 2^-32 for ranks up to 32, and in units of 2^-64 for greater ones; 0 for the rank 0."""
    coarse, fine = (_power_units(ranks, bits) for bits in (32, 64))
    return coarse, fine


def add_inverse_powers(coarse: I64, fine: I64) -> F64:
    """The sum of numbers in units of 2^-32 and of 2^-64."""
    return np.ldexp(coarse.astype(np.float64), -32) + np.ldexp(fine.astype(np.float64), -64)


def _power_units(ranks: I64, bits: int) -> I64:
    """2^-rank in units of 2^-bits, for the 32 ranks up to `bits`; 0 for other ranks."""
    inside = (ranks > bits - 32) & (ranks <= bits)
    return np.where(inside, np.left_shift(1, np.where(inside, bits - ranks, 0)), 0)


def _alpha(precision: int, m: int) -> float:
    return {4: 0.673, 5: 0.697, 6: 0.709}.get(precision, 0.7213 / (1.0 + 1.079 / m))
