"""128-bit integers in columns: two's complement as a pair of NumPy arrays, the layout of Arrow's decimal128.

Sums of integers and decimals use them, because Arrow cannot add decimals of 38 digits element by element, and NumPy
integers have at most 64 bits.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.vnode import null_mask, unscaled_decimals

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_PAIR = np.dtype([("low", "<u8"), ("high", "<i8")])


@dataclass(frozen=True, slots=True)
class Int128:
    """n integers: value = high * 2**64 + low."""

    low: U64
    high: I64

    def __len__(self) -> int:
        return len(self.low)

    @staticmethod
    def of_int64(values: I64) -> "Int128":
        return Int128(values.view(np.uint64), values >> 63)

    @staticmethod
    def of_decimals(column: pa.Array) -> "Int128":
        """The unscaled values of a decimal128 array; 0 for NULL."""
        pairs = unscaled_decimals(column)
        low, high = np.ascontiguousarray(pairs["low"]), np.ascontiguousarray(pairs["high"])
        if column.null_count:
            nulls = null_mask(column)
            low, high = np.where(nulls, np.uint64(0), low), np.where(nulls, np.int64(0), high)
        return Int128(low, high)

    def to_decimals(self, precision: int, scale: int, valid: Mask | None = None) -> pa.Array:
        """The integers as unscaled decimal128(precision, scale).

        NULL if not `valid`. Requires: valid values fit the precision.
        """
        pairs = np.empty(len(self), _PAIR)
        pairs["low"], pairs["high"] = self.low, self.high
        return pa.Array.from_buffers(
            pa.decimal128(precision, scale), len(self), [validity_bitmap(valid), pa.py_buffer(pairs)]
        )

    def __add__(self, other: "Int128") -> "Int128":
        low = self.low + other.low
        return Int128(low, self.high + other.high + (low < self.low))

    def __neg__(self) -> "Int128":
        return Int128(~self.low + np.uint64(1), ~self.high + (self.low == 0))

    def magnitude(self) -> "Int128":
        """Absolute values."""
        negative, minus = self.high < 0, -self
        return Int128(np.where(negative, minus.low, self.low), np.where(negative, minus.high, self.high))

    def fits_int64(self) -> Mask:
        return self.high == (self.low.view(np.int64) >> 63)  # type: ignore[no-any-return]

    def fits_digits(self, precision: int) -> Mask:
        """Whether a value fits a decimal of this precision (at most 38)."""
        bound = 10**precision
        high, low = np.int64(bound >> 64), np.uint64(bound & (2**64 - 1))
        size = self.magnitude()
        within: npt.NDArray[np.bool_] = (size.high < high) | ((size.high == high) & (size.low < low))
        within &= size.high >= 0
        return within

    def to_float64(self) -> npt.NDArray[np.float64]:
        """The integers as doubles: exact up to 2**53 in size, otherwise within one unit in the last place."""
        size = self.magnitude()
        floats = size.high.astype(np.float64) * 2.0**64 + size.low.astype(np.float64)
        return np.where(self.high < 0, -floats, floats)


def validity_bitmap(valid: Mask | None) -> pa.Buffer | None:
    """Arrow's validity bitmap; None if all values are valid."""
    return None if valid is None or bool(valid.all()) else pa.py_buffer(np.packbits(valid, bitorder="little"))
