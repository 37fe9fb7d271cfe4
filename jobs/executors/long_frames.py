"""Aggregates of all values of frames that are too long to be gone through one by one.

    percentile               of any frames     the value at a place in order, found bit by bit of its rank: a pass over the rows per bit
    mode                     from one end on   the greatest of (how often the value came so far, the value)
    approx_count_distinct    from one end on   sums of what each row adds to its register
    min_by, max_by, k rows   from one end on   k running maxima, each of what the one before lets go
    sets                     from one end on   of each value the first row alone

"From one end on": all frames begin, or all end, with their partition.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.executors.base import Positions
from tussock.jobs.executors.group_segments import Segments
from tussock.jobs.executors.held import Estimate, FirstRowsSlot, Mode, Percentile
from tussock.jobs.executors.hyperloglog import RANKS
from tussock.jobs.executors.value_state import Slot


@dataclass(frozen=True)
class LongFrames:
    """Frames over rows that count, and the ranks of those rows.

    Args:
        ranks: (m,) of each row's value, `size` in all.
        partition: (m,) of each row, ascending.
        first, end: (n,) the rows [first, end) of each frame, all of one partition.
    """

    ranks: Positions
    size: int
    partition: Positions
    first: Positions
    end: Positions

    def reversed(self) -> "LongFrames":
        """The same with all rows in reverse: frames that ended with their partition begin with it."""
        rows = len(self.ranks)
        partition = self.partition[::-1]
        return LongFrames(self.ranks[::-1], self.size, partition[:1] - partition, rows - self.end, rows - self.first)

    def of_each_the_first(self) -> "LongFrames":
        """Over the first row of each value in each partition alone. Requires: all frames begin with their partition."""
        chosen = np.sort(np.unique(self.partition * max(self.size, 1) + self.ranks, return_index=True)[1])
        first, end = (np.searchsorted(chosen, edge) for edge in (self.first, self.end))
        return LongFrames(self.ranks[chosen], self.size, self.partition[chosen], first, end)

    @property
    def filled(self) -> npt.NDArray[np.bool_]:
        """(n,) whether a frame has rows."""
        return self.end > self.first


def of_long_frames(slot: Slot, values: pa.Array, frames: LongFrames, from_an_end: bool) -> pa.Array | None:
    """(n,) the slot's state of each frame; None where its rows have to be gone through.

    Args:
        values: by rank.
        from_an_end: all frames begin with their partition.
    """
    if isinstance(slot, Percentile) and slot.values.times is None and not slot.once:
        filled = replace(frames, first=frames.first[frames.filled], end=frames.end[frames.filled])
        return slot.among(values, frames.end - frames.first, lambda places: _at_places(filled, places))
    if not from_an_end:
        return None
    if isinstance(slot, Mode) and not slot.once:
        return values.take(_modes(frames, slot.greatest))
    if isinstance(slot, Estimate):
        return pa.array(
            slot.corrections.estimated(*_registers(frames, values.to_numpy(zero_copy_only=False).astype(np.int64)))
        )
    if isinstance(slot, FirstRowsSlot):
        return _first_rows(slot, values, frames)
    return None


def _at_places(frames: LongFrames, places: Positions) -> Positions:
    """(n,) the rank of the row that is at a place, from 0, among the rows of a frame in order.

    From the highest bit of ranks on: rows are parted by it, those without it first, both in the order in which they came. How many of a
    frame's rows lack it says on which side the place is; the frame's rows lie there together again.
    """
    ranks, low, high, found = frames.ranks, frames.first, frames.end, np.zeros(len(places), np.int64)
    for bit in reversed(range(max(frames.size - 1, 1).bit_length())):
        has = (ranks >> bit & 1).astype(np.bool_)
        lacking = np.concatenate([[0], np.cumsum(~has)])
        low_lacking, high_lacking = lacking[low], lacking[high]
        behind = places >= high_lacking - low_lacking
        places = places - np.where(behind, high_lacking - low_lacking, 0)
        low = np.where(behind, lacking[-1] + low - low_lacking, low_lacking)
        high = np.where(behind, lacking[-1] + high - high_lacking, high_lacking)
        found |= behind.astype(np.int64) << bit
        ranks = np.concatenate([ranks[~has], ranks[has]])
    return found


def _modes(frames: LongFrames, greatest: bool) -> pa.Array:
    """(n,) the rank of the most frequent value, of several the least or the greatest: a row that brings its value for the n-th time is
    ahead of all that bring theirs for a lesser one."""
    group = frames.partition * max(frames.size, 1) + frames.ranks
    order = np.argsort(group, kind="stable")
    new = np.diff(group[order], prepend=-1) != 0
    times = np.empty(len(order), np.int64)
    times[order] = np.arange(len(order)) - np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    value = frames.ranks if greatest else frames.size - 1 - frames.ranks
    ahead, places = np.unique(times * max(frames.size, 1) + value, return_inverse=True)
    best = _running(places, frames.partition, len(ahead))[np.maximum(frames.end - 1, 0)] if len(order) else frames.end
    chosen = ahead[best] % max(frames.size, 1) if len(order) else best
    return pa.array(chosen if greatest else frames.size - 1 - chosen, mask=~frames.filled)


def _registers(frames: LongFrames, registers: Positions) -> tuple[npt.NDArray[np.float64], Positions]:
    """Of each frame the sum of 2^-M over the registers that are set, and how many are.

    Args: `registers`, by rank: 64 * register + M. Sums are of two whole numbers, of units of 2^-32 and 2^-64, so that they do not round.
    """
    codes = registers[frames.ranks]
    cell = frames.partition * (int(codes.max(initial=0)) // RANKS + 1) + codes // RANKS
    order = np.argsort(cell, kind="stable")
    _, section = np.unique(cell[order], return_inverse=True)
    most = _running(codes[order] % RANKS, section, RANKS)
    before = np.where(np.diff(section, prepend=-1) != 0, 0, np.concatenate([[0], most[:-1]]))
    sums = np.zeros((3, len(order) + 1), np.int64)
    sums[:, 1:][:, order] = np.stack(
        [_units(most, 32) - _units(before, 32), _units(most, 64) - _units(before, 64), before == 0]
    )
    np.cumsum(sums, axis=1, out=sums)
    coarse, fine, filled = sums[:, frames.end] - sums[:, frames.first]
    return np.ldexp(coarse.astype(np.float64), -32) + np.ldexp(fine.astype(np.float64), -64), filled


def _units(rank: Positions, bits: int) -> Positions:
    """2^-rank in units of 2^-bits, of those ranks that are in the 32 bits above it; 0 for the rank 0, of a register that is not set."""
    inside = (rank > bits - 32) & (rank <= bits)
    return np.where(inside, np.left_shift(1, np.where(inside, bits - rank, 0)), 0)


def _first_rows(slot: FirstRowsSlot, values: pa.Array, frames: LongFrames) -> pa.Array:
    """(n,) lists of the values of the first rows by rank. Requires: each row has a rank of its own."""
    limit = len(frames.ranks) + 1
    none = frames.partition * limit
    passed = none + len(frames.ranks) - frames.ranks
    begins = np.diff(frames.partition, prepend=-1) != 0
    last = np.maximum(frames.end - 1, 0)
    found = np.full((len(last), slot.count), -1, np.int64)
    for i in range(slot.count):
        best = np.maximum.accumulate(passed)
        held = (best - none)[last] if len(best) else np.zeros(len(last), np.int64)
        found[:, i] = np.where(frames.filled & (held > 0), len(frames.ranks) - held, -1)
        if not (found[:, i] >= 0).any():
            break
        ahead = np.where(begins, none, np.concatenate([[0], best[:-1]]))
        passed = np.minimum(passed, ahead)
    there = found >= 0
    starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return slot.whole(Segments(starts, [values.take(pa.array(found[there]))]))


def _running(values: Positions, section: Positions, limit: int) -> Positions:
    """(n,) the greatest value so far in each section; values from 0, below `limit`."""
    apart = section * limit
    greatest: Positions = np.maximum.accumulate(values + apart) - apart
    return greatest
