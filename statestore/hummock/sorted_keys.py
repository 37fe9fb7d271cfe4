"""Compares whole arrays of binary keys, as fixed-width NumPy strings if that is exact and needs no copy.

Keys of one table are prefix-free: no key is a proper prefix of another. Padding two keys with zero bytes, or cutting
them to the width of the longest stored key, therefore preserves their order, and NumPy can sort them as `S{w}` (memcmp,
trailing zeros ignored). Searches use NumPy if all stored keys have one length; otherwise they use Arrow, which compares
keys in place. Keys wider than `NARROW` bytes use Arrow's exact sort, which takes a few times longer and needs no memory
for padding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.positions import expand_ranges

_WORTH_PACKING = 8192  # keys
_FEW = 64  # fewer probes than this are searched without packing
# Packing for the first search pays below this many stored keys per probe. Also: keys per inverted key below which
# looking for inversions does not pay.
_SPARSE = 32
NARROW = 64  # bytes; a padded copy of wider keys would cost more than it saves
_COPIED_ALONE = 4096  # bytes per padded key; longer keys are copied one by one, since a mask of their bytes is as large
_COMPARED = 16384  # keys per batch of comparisons; their words fit in the CPU cache

Fixed = npt.NDArray[Any]  # NumPy `S{w}`, which mypy cannot express
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def measure_widths(keys: pa.Array) -> tuple[int, bool]:
    """Bytes of the longest key, at least 1 (NumPy has no strings of width 0), and whether all keys have this length.

    The second is False if there are no keys.
    """
    if pa.types.is_fixed_size_binary(keys.type):
        return max(1, int(keys.type.byte_width)), True
    offsets = _key_offsets(keys)
    width = max(1, int((offsets[1:] - offsets[:-1]).max(initial=0)))  # cheaper than np.diff for few keys
    return width, len(keys) > 0 and int(offsets[-1]) - int(offsets[0]) == width * len(keys)


def max_width(keys: pa.Array) -> int:
    """Bytes of the longest key, at least 1."""
    return measure_widths(keys)[0]


def fixed_keys(keys: pa.Array, width: int | None = None) -> Fixed:
    """Keys (binary or fixed_size_binary, no nulls) as NumPy `S{width}`: padded with zero bytes, longer ones cut.

    `width` defaults to the longest key's. Copies nothing if all keys have this width.
    """
    count = len(keys)
    if pa.types.is_fixed_size_binary(keys.type):
        own = int(keys.type.byte_width)
        matrix = _view_fixed(keys, own)
        return matrix if width is None or width == own else matrix.astype(f"S{width}")
    lengths = _key_lengths(keys)
    width = max(1, int(lengths.max(initial=0))) if width is None else width
    if bool((lengths == width).all()):
        return _view_fixed(keys, width)
    start, data = _starts_and_bytes(keys)
    if width >= _COPIED_ALONE:
        rows = np.zeros((count, width), np.uint8)
        for row, at, size in zip(rows, (start - start[0]).tolist(), np.minimum(lengths, width).tolist(), strict=True):
            row[:size] = data[at : at + size]
        return rows.reshape(-1).view(f"S{width}")
    columns = np.arange(width, dtype=np.int64)
    is_used = columns < lengths[:, None]
    matrix = np.zeros((count, width), np.uint8)
    if int(lengths.max()) <= width:
        matrix[is_used] = data  # the mask selects cells in the order of the bytes
    else:
        matrix[is_used] = data[((start - start[0])[:, None] + columns)[is_used]]
    return matrix.reshape(-1).view(f"S{width}")


def _view_fixed(keys: pa.Array, width: int) -> Fixed:
    """`fixed_keys` without a copy. Requires: all keys have this width."""
    if len(keys) == 0:
        return np.zeros(0, f"S{width}")
    if pa.types.is_fixed_size_binary(keys.type):
        return np.frombuffer(keys.buffers()[1], f"S{width}", len(keys), keys.offset * width)
    return np.frombuffer(keys.buffers()[2], f"S{width}", len(keys), int(_key_offsets(keys)[0]))


def left_positions(stored: pa.Array, keys: pa.Array) -> Positions:
    """For each of `keys`, the number of smaller ascending `stored` keys.

    Exact for any width. Cost: one binary search each.
    """
    return insert_positions(stored, keys, after=False)


def insert_positions(stored: pa.Array, keys: pa.Array, *, after: bool) -> Positions:
    """For each of `keys`, its place in ascending `stored` keys: before equal ones, or after them.

    Exact for any width. Cost: one binary search each, and a copy of the stored keys if they have one width.
    """
    places = pc.search_sorted(stored.cast(pa.binary()), keys.cast(pa.binary()), side="right" if after else "left")
    positions: Positions = places.to_numpy().astype(np.int64)
    return positions


class Probes:
    """Keys to search for: the Arrow array, and its padded forms by width.

    `ascending` promises that the keys are sorted. Many sorted keys are searched faster, by searching the stored keys in
    them.
    """

    __slots__ = ("_fixed", "array", "ascending")

    def __init__(self, array: pa.Array, ascending: bool = False) -> None:
        self.array, self.ascending = array, ascending
        self._fixed: dict[int, Fixed] = {}

    def __len__(self) -> int:
        return len(self.array)

    def take_part(self, part: slice | Positions) -> pa.Array:
        """The keys of `part`."""
        return self.array[part] if isinstance(part, slice) else self.array.take(pa.array(part))

    def to_fixed(self, width: int) -> Fixed:
        """The keys as `S{width}`, computed once per width."""
        if (padded_keys := self._fixed.get(width)) is None:
            padded_keys = self._fixed[width] = fixed_keys(self.array, width)
        return padded_keys

    def bytes_of(self, width: int, part: Positions) -> npt.NDArray[np.uint8]:
        """(n, width): the bytes of the keys of `part`, padded or cut to a width."""
        return self.to_fixed(width)[part].view(np.uint8).reshape(-1, width)


class SortedKeys:
    """Ascending stored keys, with repeats, to search many probes in."""

    __slots__ = ("_count", "_fixed", "_packing", "_searched", "array", "width")

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        self._count = len(array)
        self.width, of_one_width = measure_widths(array)
        # Keys of several lengths would need padding, which costs more than Arrow's search.
        self._fixed = _view_fixed(array, self.width) if self.width <= NARROW and of_one_width else None
        self._packing: _Packing | None = None
        self._searched = False

    def __len__(self) -> int:
        return self._count

    def count_below(self, probes: Probes, part: slice | Positions) -> Positions:
        """Number of stored keys below each probe of `part`. Requires: the probes are whole keys or key prefixes."""
        if self._fixed is None:
            return left_positions(self.array, probes.take_part(part))
        return self._count_below_fixed(self._fixed, probes.to_fixed(self.width)[part], probes.ascending)

    def find_probes(self, probes: Probes, part: slice | Positions) -> tuple[Positions, Mask]:
        """The first position of each probe of `part`, and whether the probe exists. Requires: probes are whole keys.

        Faster than `count_below` among many keys, because it searches integers built from only the bytes in which keys
        differ.
        """
        if self._fixed is None:
            searched_for = probes.take_part(part)
            positions = left_positions(self.array, searched_for)
            return positions, self._equal_wide(positions, searched_for)
        searched = probes.to_fixed(self.width)[part]
        packed = self._packing_of(self._fixed) if self._worth_packing(len(searched)) else None
        if packed is None or packed.values is None:
            positions = self._count_below_fixed(self._fixed, searched, probes.ascending)
        else:
            # A probe that differs in other bytes may land anywhere. It is not a stored key, and the comparison detects
            # it.
            positions = packed.values.searchsorted(packed.pack_keys(searched))
        # A position past the end is clipped to the last key, which is smaller than the probe.
        equal: Mask = self._fixed[np.minimum(positions, self._count - 1)] == searched
        return positions, equal

    def _count_below_fixed(self, fixed: Fixed, searched: Fixed, ascending: bool) -> Positions:
        if ascending and len(searched) > self._count:
            # A stored key is smaller than all probes after those up to it.
            ends = searched.searchsorted(fixed, "right")
            return np.repeat(np.arange(self._count + 1), np.diff(ends, prepend=0, append=len(searched)))
        positions: Positions = fixed.searchsorted(searched)
        return positions

    def _worth_packing(self, probes: int) -> bool:
        """Whether a search for this many probes should use integers.

        Stored keys may never be searched a second time.
        """
        again, self._searched = self._searched, True
        return self._count >= _WORTH_PACKING and probes >= _FEW and (again or probes * _SPARSE >= self._count)

    def _packing_of(self, fixed: Fixed) -> "_Packing":
        if self._packing is None:
            self._packing = _Packing.from_keys(fixed)
        return self._packing

    def _equal_wide(self, positions: Positions, probes: pa.Array) -> Mask:
        equal: Mask = positions < self._count
        at = np.minimum(positions, self._count - 1)
        # Compare lengths first; otherwise one long key would be copied and compared for every probe.
        equal &= lengths_of(self.array)[at] == lengths_of(probes)
        there = np.flatnonzero(equal)
        stored, searched = self.array.take(pa.array(at[there])), probes.take(pa.array(there))
        equal[there] = pc.equal(stored.cast(pa.binary()), searched.cast(pa.binary())).to_numpy(zero_copy_only=False)
        return equal

    def take(self, rows: Positions) -> "SortedKeys":
        """The keys at the ascending positions `rows`."""
        return SortedKeys(self.array.take(pa.array(rows)))

    @property
    def nbytes(self) -> int:
        """Bytes held, including the Arrow array."""
        packed = 8 * self._count if self._fixed is not None and self._count >= _WORTH_PACKING else 0
        return int(self.array.get_total_buffer_size()) + packed


@dataclass(frozen=True, slots=True)
class _Packing:
    """Padded keys as integers of the same order, built from the bytes in which any two keys differ; at most eight."""

    columns: tuple[int, ...]
    values: npt.NDArray[np.uint64] | None

    @staticmethod
    def from_keys(fixed: Fixed) -> "_Packing":
        if len(fixed) == 0:
            return _Packing((), None)
        columns = tuple(np.flatnonzero(_differing_bits(fixed)).tolist())
        packing = _Packing(columns, None)
        return packing if len(columns) > 8 else _Packing(columns, packing.pack_keys(fixed))

    def pack_keys(self, fixed: Fixed) -> npt.NDArray[np.uint64]:
        """The integers of keys with the same width."""
        matrix = fixed.view(np.uint8).reshape(-1, fixed.itemsize)
        bytes_of = np.zeros((len(matrix), 8), np.uint8)
        for place, column in enumerate(self.columns, 8 - len(self.columns)):
            bytes_of[:, place] = matrix[:, column]
        return bytes_of.view(">u8").reshape(-1).astype(np.uint64)


def sort_order(keys: pa.Array) -> Positions:
    """The stable ascending order of keys of one table. Merges existing sorted runs instead of sorting again."""
    if (width := max_width(keys)) <= NARROW:
        fixed = fixed_keys(keys, width)
        packed = _Packing.from_keys(fixed).values if len(fixed) >= _WORTH_PACKING else None
        order = _order_with_places(packed) if packed is not None else None
        if order is None:
            order = np.argsort(fixed if packed is None else packed, kind="stable").astype(np.int64, copy=False)
        return order
    wide: Positions = pc.array_sort_indices(keys.cast(pa.binary())).to_numpy(zero_copy_only=False).astype(np.int64)
    return wide


def probe_order(keys: pa.Array) -> Positions:
    """An ascending order of search keys. Equal keys may come in any order, which sorts five times faster."""
    if (width := max_width(keys)) <= NARROW and len(keys) >= _WORTH_PACKING:
        return _order_by_digits(fixed_keys(keys, width))
    return sort_order(keys)


def _order_with_places(values: npt.NDArray[np.uint64]) -> Positions | None:
    """The stable ascending order of numbers, or None if number and position do not fit into 64 bits.

    Sorts the numbers with their positions in the low bits, which is three times as fast as an argsort.
    """
    low, place_bits = values.min(), (len(values) - 1).bit_length()
    if int(values.max() - low).bit_length() + place_bits > 64:
        return None
    keyed = values - low
    return _sorted_with_places(keyed, place_bits)[0]


def _sorted_with_places(numbers: npt.NDArray[np.uint64], place_bits: int) -> tuple[Positions, npt.NDArray[np.uint64]]:
    """The stable ascending order of numbers, and the sorted numbers above their positions. Overwrites `numbers`.

    Requires: the numbers leave `place_bits` bits free.
    """
    numbers <<= np.uint64(place_bits)
    numbers |= np.arange(len(numbers), dtype=np.uint64)
    numbers.sort()
    order: Positions = (numbers & np.uint64((1 << place_bits) - 1)).view(np.int64)
    return order, numbers


def _order_by_digits(fixed: Fixed) -> Positions:
    """The stable ascending order of padded keys, in a quarter of the time of an argsort.

    It takes even less if the differing bits fit into one digit. If the keys consist of a few sorted runs, an argsort is
    faster, because it detects runs.

    Only bits in which any two keys differ are used, split into digits. Keys are sorted by the first digit. Keys that
    tie are then sorted by their rank so far and the next digit, until none tie. Each step sorts integers with positions
    in the low bits. Ties keep their input order, and are skipped if that order is already correct, which is common.

    Requires: fewer than 2**28 keys.
    """
    place_bits = (len(fixed) - 1).bit_length()
    digit_bits = 64 - 2 * place_bits
    digits = _split_digits(_differing_bits(fixed), 64 - place_bits, digit_bits)
    order, ranked = _sorted_with_places(_digit_values(fixed, digits[0]), place_bits)
    if len(digits) == 1:
        return order
    # Whether the key at a position of the order is known to differ from the previous one.
    new = np.ones(len(fixed), np.bool_)
    new[1:] = np.diff(ranked >> np.uint64(place_bits)) != 0
    if (inverted := _find_inversions(fixed, order)) is not None:
        tie = np.cumsum(new) - 1
        sorted_already = np.ones(int(tie[-1]) + 1, np.bool_)
        sorted_already[tie[inverted]] = False
        new |= sorted_already[tie]
    for parts in digits[1:]:
        ties = ~new
        ties[:-1] |= ~new[1:]
        if not len(at := np.flatnonzero(ties)):
            break
        rows = order[at]
        numbers = np.cumsum(new[at], dtype=np.uint64) << np.uint64(digit_bits)
        # Ranks start at 1 and are at most half the number of keys, so no bit is lost.
        numbers |= _digit_values(fixed[rows], parts)
        within, ranked = _sorted_with_places(numbers, place_bits)
        order[at] = rows[within]
        fresh = np.ones(len(at), np.bool_)
        fresh[1:] = np.diff(ranked >> np.uint64(place_bits)) != 0
        new[at] = fresh
    return order


def _find_inversions(fixed: Fixed, order: Positions) -> Positions | None:
    """The positions in an order at which a padded key is smaller than the previous one.

    None if the first positions have many of them, because searching them does not pay then.
    """
    inversions = [np.zeros(0, np.int64)]
    for start in range(0, len(order) - 1, _COMPARED):
        for _, words in _neighbour_words(fixed[order[start : start + _COMPARED + 1]]):
            less = words[-1][1:] < words[-1][:-1]
            for word in words[-2::-1]:
                less = (word[1:] < word[:-1]) | (less & (word[1:] == word[:-1]))
            if less.any():
                inversions.append(start + 1 + np.flatnonzero(less))
        if start == 0 and len(inversions[-1]) * _SPARSE > _COMPARED:
            return None
    return np.concatenate(inversions)


def _split_digits(differing: npt.NDArray[np.uint8], first_bits: int, digit_bits: int) -> list[list[tuple[int, int]]]:
    """Split padded keys into digits, most significant first.

    A digit lists its bytes, and the number of low bits of each.

    Args:
        differing: per byte, the bits in which any two keys differ.
        first_bits: size limit of the first digit.
        digit_bits: size limit of each other digit.
    """
    digits: list[list[tuple[int, int]]] = [[]]
    free = first_bits
    for column in np.flatnonzero(differing).tolist():
        bits = int(differing[column]).bit_length()
        if bits > free:
            digits.append([])
            free = digit_bits
        digits[-1].append((column, bits))
        free -= bits
    return digits


def _digit_values(fixed: Fixed, parts: Sequence[tuple[int, int]]) -> npt.NDArray[np.uint64]:
    """(n,) one digit of padded keys as a number."""
    matrix, digit = fixed.view(np.uint8).reshape(-1, fixed.itemsize), np.zeros(len(fixed), np.uint64)
    for start in range(0, len(fixed), _COMPARED):
        rows, numbers = matrix[start : start + _COMPARED], digit[start : start + _COMPARED]
        for column, bits in parts:
            numbers <<= np.uint64(bits)
            numbers |= rows[:, column] & np.uint8((1 << bits) - 1)
    return digit


def _differing_bits(fixed: Fixed) -> npt.NDArray[np.uint8]:
    """(width, rounded up to 8) per byte of padded keys, the bits in which any two keys differ."""
    width = -(-fixed.itemsize // 8)
    one, differing_bits = fixed[:1].astype(f"S{8 * width}").view("<u8"), np.zeros(width, "<u8")
    for start in range(0, len(fixed), _COMPARED):
        words = fixed[start : start + _COMPARED].astype(f"S{8 * width}", copy=False).view("<u8").reshape(-1, width)
        differing_bits |= np.array([np.bitwise_or.reduce(words[:, i] ^ one[i]) for i in range(width)], "<u8")
    return differing_bits.view(np.uint8)


def take_keys(keys: pa.Array, rows: Positions) -> pa.Array:
    """The keys (binary or fixed_size_binary, no nulls) at `rows`, in their type.

    Keys of one length, as in most tables, take a third of the time of Arrow's take.
    """
    width, of_one_width = measure_widths(keys)
    if not pa.types.is_binary(keys.type) or not of_one_width:
        return keys.take(pa.array(rows))
    taken = as_fixed_size(keys, width).take(pa.array(rows))
    ends = np.arange(len(rows) + 1, dtype=np.int32)
    ends *= np.int32(width)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(ends), taken.buffers()[1]])


def join_keys(arrays: Sequence[pa.Array]) -> pa.BinaryArray:
    """Concatenate keys of any binary types."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays([array.cast(pa.binary()) for array in arrays])


def overlay_keys(older: SortedKeys, newer: pa.Array, at: Positions, hit: Mask) -> tuple[SortedKeys, Positions]:
    """Merge keys, each of which occurs once in its array.

    Args:
        newer: ascending.
        at, hit: the position of each newer key in the older ones, and whether it is there, as `find_probes` returns
        them.

    Returns: the keys of both, and the position of each in the older keys followed by the newer ones; of a key in both,
        the newer one.
    Cost: copies. Without new keys, the array of keys is reused.
    """
    n = len(older)
    order = np.arange(n)
    order[at[hit]] = n + np.flatnonzero(hit)
    if not len(come := np.flatnonzero(~hit)):
        return older, order
    before = older.count_below(Probes(newer.take(pa.array(come))), slice(None))
    order = np.insert(order, before, n + come)
    return SortedKeys(take_keys(join_keys([older.array, newer]), order)), order


def as_fixed_size(keys: pa.Array, width: int) -> pa.Array:
    """Keys as fixed_size_binary, without offsets and without a copy. Requires: all keys have this width."""
    if pa.types.is_fixed_size_binary(keys.type):
        return keys
    start = int(_key_offsets(keys)[0])
    return pa.Array.from_buffers(pa.binary(width), len(keys), [None, keys.buffers()[2].slice(start, width * len(keys))])


def differs_from_previous(keys: pa.Array) -> Mask:
    """Whether each key of a sorted array differs from the previous one. Cost: about 2 ns per narrow key."""
    first = np.ones(len(keys), np.bool_)
    if len(keys) < 2:
        return first
    if (width := max_width(keys)) <= NARROW:
        for part, words in _neighbour_words(fixed_keys(keys, width)):
            changed = words[0][1:] != words[0][:-1]
            for word in words[1:]:
                changed |= word[1:] != word[:-1]
            first[1:][part] = changed
    else:
        first[1:] = pc.not_equal(keys[1:].cast(pa.binary()), keys[:-1].cast(pa.binary())).to_numpy(zero_copy_only=False)
    return first


def above_previous(keys: pa.Array) -> Mask:
    """Whether each key of any array is greater than the previous one; True for the first."""
    above = np.ones(len(keys), np.bool_)
    if len(keys) < 2:
        return above
    if (width := max_width(keys)) <= NARROW:
        for part, words in _neighbour_words(fixed_keys(keys, width)):
            greater = words[-1][1:] > words[-1][:-1]
            for word in words[-2::-1]:
                greater = (word[1:] > word[:-1]) | (greater & (word[1:] == word[:-1]))
            above[1:][part] = greater
    else:
        above[1:] = pc.greater(keys[1:].cast(pa.binary()), keys[:-1].cast(pa.binary())).to_numpy(zero_copy_only=False)
    return above


def _neighbour_words(fixed: Fixed) -> Iterator[tuple[slice, list[npt.NDArray[np.uint64]]]]:
    """Slices of padded keys as numbers, for comparing each key with its predecessor.

    Yields: the slice of pairs of neighbours, and the words of all keys in it (one more than pairs), most significant
        first. The last word overlaps the one before unless the width is a multiple of 8, which preserves equality and
        order.
    """
    fixed = fixed if fixed.itemsize >= 8 else fixed.astype("S8")
    width, count = fixed.itemsize, len(fixed)
    views = [np.ndarray(count, ">u8", fixed, offset, (width,)) for offset in (*range(0, width - 8, 8), width - 8)]
    for start in range(0, count - 1, _COMPARED):
        stop = min(start + _COMPARED, count - 1)
        yield slice(start, stop), [view[start : stop + 1].astype(np.uint64) for view in views]


def successor(prefix: bytes) -> bytes | None:
    """The smallest byte string greater than all strings that start with `prefix`, or None."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def successors(prefixes: pa.Array) -> pa.Array:
    """`successor` for an array of prefixes. Requires: each has a byte below 0xff, as does a table id below 2^32 - 1."""
    if len(prefixes) == 0:
        return prefixes.cast(pa.binary())
    starts, data = _starts_and_bytes(prefixes.cast(pa.binary()))
    starts = starts - starts[0]
    last = starts + lengths_of(prefixes) - 1
    # Increment the last byte below 0xff, and cut the bytes after it. Few steps: only numbers end in 0xff bytes.
    while len(full := np.flatnonzero(data[last] == 0xFF)):
        last[full] -= 1
    raised = data.copy()
    raised[last] += 1
    lengths = last - starts + 1
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    if offsets[-1] < len(data):
        raised = raised[expand_ranges(starts, lengths)]
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(raised)]
    )


def lengths_of(keys: pa.Array) -> Positions:
    """Bytes of each key, of either type."""
    if pa.types.is_fixed_size_binary(keys.type):
        return np.full(len(keys), int(keys.type.byte_width))
    return _key_lengths(keys)


def _key_lengths(keys: pa.Array) -> Positions:
    offsets = _key_offsets(keys)
    lengths: Positions = (offsets[1:] - offsets[:-1]).astype(np.int64)
    return lengths


def _key_offsets(keys: pa.Array) -> npt.NDArray[Any]:
    if len(keys) == 0:
        return np.zeros(1, np.int32)
    kind = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    return np.frombuffer(keys.buffers()[1], kind, len(keys) + 1, keys.offset * np.dtype(kind).itemsize)


def _starts_and_bytes(keys: pa.Array) -> tuple[Positions, npt.NDArray[np.uint8]]:
    """The start of each key, and the bytes of all keys."""
    offsets = _key_offsets(keys).astype(np.int64)
    buffer = keys.buffers()[2] if len(keys) else None
    data = (
        np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]]
        if buffer is not None and buffer.size
        else np.zeros(0, np.uint8)
    )
    return offsets[:-1], data
