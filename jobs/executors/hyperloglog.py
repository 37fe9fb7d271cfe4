"""HyperLogLog++ as Spark computes it: registers by hash, and the estimate with its corrections.

The first p bits of a value's hash choose one of m = 2**p registers; the register holds the greatest rank seen, where a rank is one more
than the number of zeros that the rest of the hash begins with. Which ranks each register has met is kept with counts, so that values may
go: at most 64 of them a register, whatever the number of values.

    E = alpha m^2 / (sum of 2^-M over all registers), corrected by the mean bias of the six nearest estimates of a table where E < 5 m;
    H = m ln(m / V) instead, for V registers that are still 0, where H is below a threshold.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.executors.exact_sum import leading_zeros
from tussock.statestore.vnode import null_mask, xxhash64

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

RANKS = 64  # that a register may hold
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
    """The tables of one precision."""

    precision: int
    threshold: float
    estimates: tuple[float, ...]
    biases: tuple[float, ...]

    def counts(self, starts: I64, registers: I64) -> I64:
        """(n,) how many distinct values groups have, by their registers and ranks.

        Args:
            starts: (n + 1,) group i has registers[starts[i] : starts[i + 1]], ascending.
        """
        groups = len(starts) - 1
        m = 1 << self.precision
        group = np.repeat(np.arange(groups), np.diff(starts))
        cell = group * m + registers // RANKS
        last = np.flatnonzero(
            np.append(cell[1:] != cell[:-1], True)[: len(cell)]
        )  # a register's greatest rank comes last
        filled = np.bincount(group[last], minlength=groups)
        weights = np.ldexp(1.0, -(registers[last] % RANKS).astype(np.int32))
        inverse: F64 = np.bincount(group[last], weights, groups).astype(np.float64, copy=False)
        return self.estimated(inverse, filled)

    def estimated(self, inverse: F64, filled: I64) -> I64:
        """(n,) the same by the sum of 2^-M over the registers that are set, and how many are."""
        m = 1 << self.precision
        zeros = (m - filled).astype(np.float64)
        estimate = self._corrected(_alpha(self.precision, m) * m * m / (inverse + zeros), m)
        with np.errstate(divide="ignore"):
            linear = m * np.log(m / zeros)
        return np.floor(np.where((zeros > 0) & (linear <= self.threshold), linear, estimate) + 0.5).astype(np.int64)

    def _corrected(self, raw: F64, m: int) -> F64:
        """Less the mean bias of the nearest estimates, which are found by moving a window of them up while that brings nearer ones."""
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


def _alpha(precision: int, m: int) -> float:
    return {4: 0.673, 5: 0.697, 6: 0.709}.get(precision, 0.7213 / (1.0 + 1.079 / m))
