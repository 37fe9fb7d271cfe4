"""Filters: whether a part of a section may hold a key. "No" is certain; "yes" is wrong for about one absent key in 200.

One Bloom filter per partition (64 blocks): BITS_PER_KEY bits per row, PROBES probes, rounded up to whole 64-bit words;
bit i is bit i % 8 of byte i // 8. Hash, with all arithmetic modulo 2^64 and x >> n as logical shift:

    word_0, word_1, … = the key's bytes, padded with zeros to a multiple of 8, as little-endian u64
    mix_i(x)  = y ^ (y >> 29) where y = (x ^ (x >> 32)) * (finish(i + 1) | 1)      mix_i(0) = 0: padding does not count
    hash(key) = finish(mix_0(word_0) + mix_1(word_1) + …)
    finish(x) = splitmix64's finaliser: x ^= x >> 30; x *= 0xBF58476D1CE4E5B9; x ^= x >> 27; x *= 0x94D049BB133111EB;
                x ^= x >> 31
    bit_i     = (((low + i * (high | 1)) mod 2^32) * bits) >> 32      for i in 0 to PROBES - 1
                low, high = halves of the hash

All functions work on whole arrays: about 25 ns to hash a key and 30 ns to insert it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.sorted_keys import Positions, fixed_keys, lengths_of, max_width

BITS_PER_KEY = 11
PROBES = 7
_WIDE = 512  # bytes; longer keys are hashed in groups of similar length
_SLICE_BYTES = 1 << 20  # bytes of keys hashed per step; they fit in the CPU cache
_FEW = 1024  # hashes that are probed at once
_EACH_PROBE = np.arange(PROBES, dtype=np.uint32)
_PROBE_SLICE = 16384  # keys probed per step, so that their filters stay in the CPU cache between probes

Hashes = npt.NDArray[np.uint64]


def hash_keys(keys: pa.Array) -> Hashes:
    """The hash of each key (binary or fixed_size_binary), uint64. Cost: 25 ns a key; if long, 3 ns a byte."""
    hashes = np.empty(len(keys), np.uint64)
    if (width := max_width(keys)) <= _WIDE:
        for part in _split_slices(len(keys), max(64, _SLICE_BYTES // width)):
            hashes[part] = _hash_matrix(keys[part])
        return hashes
    # Keys are padded to the longest in their group, so a few long keys must not be hashed together with short ones.
    doublings = np.ceil(np.log2(np.maximum(lengths_of(keys), _WIDE))).astype(np.int64)
    for doubling in np.unique(doublings).tolist():
        places = np.flatnonzero(doublings == doubling)
        for part in _split_slices(len(places), max(1, _SLICE_BYTES >> doubling)):
            hashes[places[part]] = _hash_matrix(keys.take(pa.array(places[part])))
    return hashes


def _split_slices(count: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def filter_bits(rows: int) -> int:
    """Size in bits of the filter for a partition with `rows` rows."""
    return 64 * -(-rows * BITS_PER_KEY // 64)


def build_filter(hashes: Hashes) -> bytes:
    """Build the filter of these keys."""
    bits = filter_bits(len(hashes))
    is_set = np.zeros(bits, np.bool_)
    step, low = _hash_halves(hashes)
    for probe in range(PROBES):
        if probe:
            low = low + step
        is_set[_scale_to_bits(low, np.uint64(bits))] = True
    return np.packbits(is_set, bitorder="little").tobytes()


class KeyHashes:
    """Hashes of sorted keys that are searched in many filters."""

    def __init__(self, hashes: Hashes) -> None:
        self._hashes = hashes
        self._points = _probe_points(hashes) if len(hashes) <= _FEW else None

    def may_be_in(self, data: npt.NDArray[np.uint8], bits: int, keys: slice) -> npt.NDArray[np.bool_]:
        """`probe_filter` for some of the keys and one filter, at the start of `data`.

        Cost for few keys: 15 us. A small epoch asks one filter of each of many sections.
        """
        count = keys.stop - keys.start
        if self._points is None or not bits:
            return probe_filter(data, np.zeros(count, np.int64), np.full(count, bits), self._hashes[keys])
        return _has_all_bits(data, _scale_to_bits(self._points[:, keys], np.uint64(bits)), None)

    def may_be_in_each(
        self, data: npt.NDArray[np.uint8], base: npt.NDArray[Any], bits: npt.NDArray[Any], keys: slice | Positions
    ) -> npt.NDArray[np.bool_]:
        """`probe_filter` for some of the keys."""
        return probe_filter(data, base, bits, self._hashes[keys])


def probe_filter(
    data: npt.NDArray[np.uint8], base: npt.NDArray[Any], bits: npt.NDArray[Any], hashes: Hashes
) -> npt.NDArray[np.bool_]:
    """Whether each hash may be in its filter.

    `data` is a sequence of filters. The filter of hash i starts at byte base[i] and has bits[i] bits; 0: no filter,
    "maybe".
    Cost: 0.1 us per hash if neighbours use the same filter, as sorted keys do; otherwise a few times as much.
    """
    maybe = np.empty(len(hashes), np.bool_)
    for start in range(0, len(hashes), _PROBE_SLICE):
        part = slice(start, start + _PROBE_SLICE)
        maybe[part] = _probe_slice(data, base[part], bits[part], hashes[part])
    return maybe


def _probe_slice(
    data: npt.NDArray[np.uint8], base: npt.NDArray[Any], bits: npt.NDArray[Any], hashes: Hashes
) -> npt.NDArray[np.bool_]:
    maybe: npt.NDArray[np.bool_] = bits == 0
    if len(hashes) <= _FEW and not maybe.any():
        return _probe_at_once(data, base, bits, hashes)
    alive = np.flatnonzero(bits)
    step, low = _hash_halves(hashes.take(alive))
    base, bits = base.take(alive).astype(np.int64, copy=False), bits.take(alive).astype(np.uint64)
    for probe in range(PROBES):  # An absent key is excluded after two probes on average: continue with the others only.
        if probe:
            low = low + step
        position = _scale_to_bits(low, bits)
        bit = np.uint8(1) << (position.astype(np.uint8) & np.uint8(7))
        passed = np.flatnonzero(data.take(base + (position >> 3)) & bit)
        if len(passed) < len(alive):
            alive, base, bits, low, step = (
                alive.take(passed),
                base.take(passed),
                bits.take(passed),
                low.take(passed),
                step.take(passed),
            )
    maybe[alive] = True
    return maybe


def _probe_at_once(
    data: npt.NDArray[np.uint8], base: npt.NDArray[Any], bits: npt.NDArray[Any], hashes: Hashes
) -> npt.NDArray[np.bool_]:
    """All probes of few hashes with few calls of NumPy, which cost more than probes for excluded hashes."""
    return _has_all_bits(data, _scale_to_bits(_probe_points(hashes), bits.astype(np.uint64)), base.astype(np.int64))


def _probe_points(hashes: Hashes) -> npt.NDArray[np.uint32]:
    """(PROBES, n) what `_scale_to_bits` scales to the bits of a filter."""
    step, low = _hash_halves(hashes)
    return low + step * _EACH_PROBE[:, None]


def _has_all_bits(
    data: npt.NDArray[np.uint8], position: npt.NDArray[np.int64], base: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.bool_]:
    """Whether all bits of each hash are set. Overwrites `position` (PROBES, n), which counts from byte `base`."""
    bit = np.uint8(1) << (position.astype(np.uint8) & np.uint8(7))
    position >>= 3
    if base is not None:
        position += base
    are_set: npt.NDArray[np.bool_] = np.logical_and.reduce(data.take(position) & bit, axis=0)
    return are_set


def _scale_to_bits(low: npt.NDArray[np.uint32], bits: Any) -> npt.NDArray[np.int64]:
    position = low.astype(np.uint64)
    position *= bits
    position >>= np.uint64(32)
    return position.view(np.int64)


def _hash_halves(hashes: Hashes) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    return (hashes >> np.uint64(32)).astype(np.uint32) | np.uint32(1), hashes.astype(np.uint32)


def _mix_bits(x: Hashes) -> Hashes:
    x = x ^ (x >> np.uint64(30))
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def _hash_matrix(keys: pa.Array) -> Hashes:
    width = max_width(keys)
    words = -(-width // 8)
    fixed = fixed_keys(keys, 8 * words)
    matrix = fixed.view("<u8").reshape(-1, words)
    factors = _mix_bits(np.arange(1, words + 1, dtype=np.uint64)) | np.uint64(1)
    if words > len(keys):  # few long keys: process all words of a key at once
        mixed = (matrix ^ (matrix >> np.uint64(32))) * factors
        mixed ^= mixed >> np.uint64(29)
        return _mix_bits(mixed.sum(axis=1, dtype=np.uint64))
    total = np.zeros(len(keys), np.uint64)
    for i in range(words):
        word = matrix[:, i]
        mixed = (word ^ (word >> np.uint64(32))) * factors[i]
        mixed ^= mixed >> np.uint64(29)
        total += mixed
    return _mix_bits(total)
