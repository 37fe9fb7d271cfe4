"""Exact sums that support deletes. A sum consists of limbs: columns of 32-bit digits at fixed positions, never rounded.

A sum is  unit * (d[0] * 2**(32 * lowest) + d[1] * 2**(32 * (lowest + 1)) + …). The unit is 2**-1074 for doubles (the
least positive double) and 1 for integers (unscaled decimals). A double's 53 bits span at most three adjacent limbs
(float_limbs.py). A digit is stored in an int64, so 2**31 numbers can be added before carries must be propagated.
{1e40, 1e20, 1} without the first two is 1.

Stored form (a `binary` column, little-endian words of 32 bits; empty means zero):

    lowest u32 | word u32 | … | word u32     the number's two's complement, least word first; the last has the sign

In stored form, the first word is not 0, and the last word is necessary. Equal sums therefore have equal bytes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.int128 import Int128
from tussock.statestore.vnode import null_mask, one_array

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_BITS = 32
_MASK = np.int64(2**32 - 1)
_HALF = np.int64(2**31)
LEAST_EXPONENT = -1074  # exponent of a double's unit


@dataclass(frozen=True, slots=True)
class Limbs:
    """n sums. `digits` is (k, n) int64; digit i of every number counts 2**(32 * (lowest + i)) units."""

    lowest: int
    digits: I64

    def __len__(self) -> int:
        return int(self.digits.shape[1])

    def __add__(self, other: "Limbs") -> "Limbs":
        """Requires: the digits of both are below 2**62 in size, which is true for carried and decoded sums."""
        lowest = min(self.lowest, other.lowest)
        end = max(self.lowest + len(self.digits), other.lowest + len(other.digits))
        digits = np.zeros((end - lowest, len(self)), np.int64)
        for part in (self, other):
            digits[part.lowest - lowest : part.lowest - lowest + len(part.digits)] += part.digits
        return Limbs(lowest, digits)

    def carry_digits(self) -> "Limbs":
        """The same sums after carries, with as few digits as possible.

        Each digit is in [0, 2**32), except the last one, which has the sign and is in [-2**31, 2**31).
        """
        digits = np.empty((len(self.digits) + 2, len(self)), np.int64)
        carry: I64 = np.zeros(len(self), np.int64)
        for i, digit in enumerate(self.digits):
            total = digit + carry
            digits[i], carry = total & _MASK, total >> _BITS
        # The remaining carry is below 2**32 in size: one digit, and one more for the sign.
        digits[-2], digits[-1] = carry & _MASK, carry >> _BITS
        count = len(digits)
        while count > 1 and _is_digit(last := digits[count - 2] + (digits[count - 1] << _BITS)):
            count -= 1
            digits[count - 1] = last
        return Limbs(self.lowest, digits[:count])

    def to_float64(self) -> F64:
        """The sums in units of 2**-1074 as doubles, rounded half to even. Too large sums become infinite."""
        mantissa, exponent = self.to_parts()
        with np.errstate(over="ignore"):
            return np.ldexp(mantissa, exponent.astype(np.int32))

    def to_parts(self, factors: int = 1) -> tuple[F64, I64]:
        """The sums in units of 2**(-1074 * factors) as (m, e), meaning m * 2**e.

        m is a 53-bit integer, rounded half to even.
        """
        carried = self.carry_digits()
        negative = carried.digits[-1] < 0
        digits = (
            Limbs(carried.lowest, np.where(negative, -carried.digits, carried.digits))
            .carry_digits()
            .digits.astype(np.uint64)
        )
        top, count = _highest_nonzero(digits), len(self)
        rows = np.arange(count)
        # Padding, so that every digit has two digits below it.
        padded = np.concatenate([np.zeros((2, count), np.uint64), digits])
        head = (padded[top + 2, rows] << np.uint64(32)) | padded[top + 1, rows]
        below = padded[top, rows]
        sticky = _any_below(padded, top)
        shift = leading_zeros(head)
        # 64 bits that begin with a one, and whether a nonzero bit remains below them. Rounding half to even keeps 53.
        whole = (head << shift) | np.where(
            shift > 0, below >> (np.uint64(32) - np.minimum(shift, np.uint64(32))), np.uint64(0)
        )
        sticky |= (below << (shift + np.uint64(32))) != 0
        mantissa, rest = whole >> np.uint64(11), whole & np.uint64(0x7FF)
        up = (rest > 0x400) | ((rest == 0x400) & (sticky | ((mantissa & np.uint64(1)) == 1)))
        # Bit 63 of `whole` is bit 32 * top + 31 - shift of the digits.
        exponent = _BITS * (top + carried.lowest) + 31 - shift.astype(np.int64) - 52 + LEAST_EXPONENT * factors
        size = (mantissa + up).astype(np.float64)
        return np.where(negative, -size, size), exponent

    def to_int128(self) -> tuple[Int128, Mask]:
        """The sums as integers, and whether they fit."""
        n = len(self)
        digits = np.concatenate([np.zeros((self.lowest, n), np.int64), self.carry_digits().digits])
        # Sign-extended to at least five words.
        words = np.concatenate([digits, np.broadcast_to(digits[-1] >> _BITS, (max(0, 5 - len(digits)), n))])
        sign = words[3] << np.int64(32) >> np.int64(63)  # sign of the fourth word
        fits = np.all((words[4:] & _MASK) == (sign & _MASK), axis=0)
        low = (words[0] & _MASK).view(np.uint64) | ((words[1] & _MASK).view(np.uint64) << np.uint64(32))
        return Int128(low, (words[2] & _MASK) | (words[3] << np.int64(32))), fits


def _is_digit(values: I64) -> bool:
    """Whether each value is valid as the last digit of a sum."""
    return bool(((values >= -_HALF) & (values < _HALF)).all())


def limbs_of_int128(values: Int128, weights: I64) -> Limbs:
    """values * weights as four limbs, not carried. Requires: weights are below 2**31 in size."""
    low, high = values.low, values.high
    words = (
        (low & np.uint64(_MASK)).astype(np.int64),
        (low >> np.uint64(32)).astype(np.int64),
        high & _MASK,
        high >> _BITS,
    )
    return Limbs(0, np.stack([w * weights for w in words]))


def encode_limbs(limbs: Limbs) -> pa.BinaryArray:
    """The sums in stored form, (n,) without NULLs. Cost: a few passes over (k, n)."""
    digits = limbs.carry_digits().digits
    words = (digits & _MASK).astype(np.uint32)
    k, n = words.shape
    # Words above `end` only repeat the sign of the word below them, so `end` follows the last word that does not.
    signs = np.where((words >> np.uint32(31)) == 1, np.uint32(2**32 - 1), np.uint32(0))
    needed = np.empty((k, n), np.bool_)
    needed[0] = words[0] != 0
    needed[1:] = words[1:] != signs[:-1]
    end = k - np.argmax(needed[::-1], axis=0)  # exclusive
    nonzero = words != 0
    start = np.argmax(nonzero, axis=0)
    lengths = np.where(nonzero.any(axis=0), end - start + 1, 0)
    places = np.arange(k)[:, None]
    is_stored = (places >= start) & (places < end) & (lengths > 0)
    table = np.empty((n, k + 1), "<u4")
    table[:, 0] = start + limbs.lowest
    table[:, 1:] = words.T
    flat = table[np.concatenate([(lengths > 0)[:, None], is_stored.T], axis=1)]
    ends = np.zeros(n + 1, np.int32)
    np.cumsum(lengths * 4, out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(ends), pa.py_buffer(flat)])


def decode_limbs(column: pa.Array | pa.ChunkedArray) -> Limbs:
    """Decode stored sums to limbs. NULL is zero."""
    array = one_array(column)
    n = len(array)
    if array.null_count:
        array = array.fill_null(b"")
    offsets = (
        np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + n + 1] if n else np.zeros(1, np.int32)
    )
    counts = np.diff(offsets) // 4
    there = counts > 0
    if not there.any():
        return Limbs(0, np.zeros((1, n), np.int64))
    words = np.frombuffer(array.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].copy().view("<u4").astype(np.int64)
    starts = (offsets[:-1] - offsets[0]) // 4
    lowest_of_row = np.where(there, words[np.minimum(starts, len(words) - 1)], 0)
    lowest = int(lowest_of_row[there].min())
    end = int((lowest_of_row + counts - 1)[there].max())
    last = (starts + counts - 1)[there]
    words[last] = np.where(words[last] >= _HALF, words[last] - 2 * _HALF, words[last])
    digits = np.zeros((end - lowest, n), np.int64)
    rows = np.flatnonzero(there)
    for word in range(1, int(counts.max())):
        rows = rows[counts[rows] > word]
        digits[lowest_of_row[rows] - lowest + word - 1, rows] = words[starts[rows] + word]
    return Limbs(lowest, digits)


def sum_of_limbs(before: pa.Array, change: pa.Array) -> pa.Array:
    """Add stored sums element by element. NULL in `before` is zero. Requires: no NULL in `change`."""
    if before.null_count == len(before):
        return change
    return encode_limbs(decode_limbs(before) + decode_limbs(change))


def float_values(column: pa.Array | pa.ChunkedArray) -> F64:
    """A float or double column as (n,) float64, exact; 0.0 for NULL."""
    array = one_array(column)
    values = array.to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(null_mask(array), 0.0, values) if array.null_count else values


def integer_values(column: pa.Array | pa.ChunkedArray) -> I64:
    """An integer column as (n,) int64, with 0 for NULL."""
    return pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def special_values(values: F64) -> Mask:
    """(3, n) whether each value is NaN, infinite or negatively infinite. Their sums are counted beside the limbs."""
    return np.stack([np.isnan(values), values == np.inf, values == -np.inf])


def with_specials(total: F64, counts: I64) -> F64:
    """Sums of finite values with (3, n) counts of special values.

    A sum is NaN if it has a NaN, or infinities of both signs.
    """
    nan, plus, minus = counts > 0
    total = np.where(plus, np.inf, np.where(minus, -np.inf, total))
    return np.where(nan | (plus & minus), np.nan, total)


def _highest_nonzero(digits: npt.NDArray[np.uint64]) -> I64:
    """(n,) the index of the highest nonzero digit; 0 if all are 0."""
    top = len(digits) - 1 - np.argmax(digits[::-1] != 0, axis=0)
    return np.where((digits != 0).any(axis=0), top, 0).astype(np.int64)


def _any_below(padded: npt.NDArray[np.uint64], place: I64) -> Mask:
    """(n,) whether a digit below `place` (of the padded digits) is nonzero."""
    return ((padded != 0) & (np.arange(len(padded))[:, None] < place)).any(axis=0)  # type: ignore[no-any-return]


def leading_zeros(head: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """(n,) the number of leading zeros of a 64-bit word; 0 for the word 0."""
    zeros = np.zeros(len(head), np.uint64)
    rest = head.copy()
    for step in (32, 16, 8, 4, 2, 1):
        small = (rest >> np.uint64(64 - step)) == 0
        zeros += np.where(small, np.uint64(step), np.uint64(0))
        rest = np.where(small, rest << np.uint64(step), rest)
    return np.where(head == 0, np.uint64(0), zeros)
