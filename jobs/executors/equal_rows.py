"""Pairs of equal rows in two tables with the same key, as the rows of a table and of its next dump."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.executors.base import Positions, take_rows
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.vnode import xxhash64

_ROUNDS = 6  # after which less than a thousandth of the keys is unpaired
_LEAST_BITS = 4  # of a place in the table of hashes
_Hashes = npt.NDArray[np.uint64]


def pair_equal_rows(one: pa.Table, other: pa.Table, key: Sequence[int]) -> tuple[Positions, Positions]:
    """Pair rows that are equal. A row of a key that may have further rows, or other values, is in no pair.

    Args:
        one: with one row per key.
        other: with the same columns. Keys may repeat.

    Returns: (pairs,) the place of each pair's rows. A few equal rows may be in no pair: those whose hash collides.
    Cost: a hash per row, and a copy of the rows: half of a lookup by Arrow.
    """
    hashes, of_other = (xxhash64([rows.column(k) for k in key]) for rows in (one, other))
    left, right = _pair_hashes(hashes, of_other)
    same = same_rows(take_rows(one, left), take_rows(other, right))
    left, right = left[same], right[same]
    counts = np.bincount(left, minlength=one.num_rows)
    paired = np.zeros(other.num_rows, np.bool_)
    paired[right] = True
    # A row that is in no pair may have the key of one that is: both are then left to the caller.
    doubtful = np.zeros(1 << _bits_for(other.num_rows), np.bool_)
    places = of_other >> np.uint64(64 - _bits_for(other.num_rows))
    doubtful[places[~paired]] = True
    sure = (counts[left] == 1) & ~doubtful[places[right]]
    return left[sure], right[sure]


def _pair_hashes(one: _Hashes, other: _Hashes) -> tuple[Positions, Positions]:
    """Pair equal hashes: (pairs,) the places in both. Each place of `other` is in at most one pair.

    Each round puts the hashes of `one` at the places of a table that some of their bits name. The last one of a place
    stays, and the others take part in the next round, with other bits.
    """
    pairs = list[tuple[Positions, Positions]]()
    left, right = np.arange(len(one)), np.arange(len(other))
    for turn in range(_ROUNDS):
        if not len(left) or not len(right):
            break
        bits = _bits_for(len(left))
        of_left, of_right = one[left], other[right]
        at_left, at_right = (_places(hashes, bits, turn) for hashes in (of_left, of_right))
        table = np.zeros(1 << bits, np.int64)
        table[at_left] = np.arange(len(left))
        candidates = table[at_right]
        hit = of_left[candidates] == of_right
        pairs.append((left[candidates[hit]], right[hit]))
        left, right = left[table[at_left] != np.arange(len(left))], right[~hit]
    if not pairs:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])


def _places(hashes: _Hashes, bits: int, turn: int) -> npt.NDArray[np.int64]:
    """(hashes,) some bits of each. The low bits are the vnode, which rows of one part share."""
    turned = hashes if not turn else hashes * np.uint64(2 * turn * 0x9E3779B97F4A7C15 % (1 << 64) | 1)
    return (turned >> np.uint64(64 - bits)).astype(np.int64)


def _bits_for(rows: int) -> int:
    """The bits of a place in a table that is at most half full."""
    return max(_LEAST_BITS, rows.bit_length() + 1)
