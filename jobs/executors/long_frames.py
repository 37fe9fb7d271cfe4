"""Aggregates of frames that are too long to process row by row.

    percentile               any frames           the value at an index in order: a pass per bit of its rank
    mode                     frames at an end     the greatest (number of occurrences so far, value)
    approx_count_distinct    frames at an end     sums of each row's contribution to its register
    min_by, max_by, k rows   frames at an end     k running maxima, each over the values that the previous one dropped
    sets                     frames at an end     the first row of each value

"Frames at an end": all frames begin, or all end, with their partition.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.executors.base import Positions
from tussock.jobs.executors.distinct_estimate import Estimate
from tussock.jobs.executors.group_segments import Segments
from tussock.jobs.executors.hyperloglog import RANKS, add_inverse_powers, inverse_power_units
from tussock.jobs.executors.most_frequent import Mode
from tussock.jobs.executors.percentile import Percentile
from tussock.jobs.executors.recomputed import FirstRowsSlot
from tussock.jobs.executors.value_state import Slot


@dataclass(frozen=True)
class LongFrames:
    """Frames over the rows that count, and the ranks of those rows.

    Args:
        ranks: (m,) the rank of each row's value, below `size`.
        partition: (m,) the partition of each row, ascending.
        first, end: (n,) the rows [first, end) of each frame, all in one partition.
    """

    ranks: Positions
    size: int
    partition: Positions
    first: Positions
    end: Positions

    def reverse_frames(self) -> "LongFrames":
        """The same frames over the rows in reverse. Frames that end with their partition then begin with it."""
        rows = len(self.ranks)
        partition = self.partition[::-1]
        return LongFrames(self.ranks[::-1], self.size, partition[:1] - partition, rows - self.end, rows - self.first)

    def of_each_the_first(self) -> "LongFrames":
        """Frames over the first row of each value in each partition.

        Requires: all frames begin with their partition.
        """
        chosen = np.sort(np.unique(self.partition * max(self.size, 1) + self.ranks, return_index=True)[1])
        first, end = (np.searchsorted(chosen, edge) for edge in (self.first, self.end))
        return LongFrames(self.ranks[chosen], self.size, self.partition[chosen], first, end)

    @property
    def has_rows(self) -> npt.NDArray[np.bool_]:
        """(n,) whether a frame has rows."""
        return self.end > self.first


def of_long_frames(slot: Slot, values: pa.Array, frames: LongFrames, from_an_end: bool) -> pa.Array | None:
    """(n,) the slot's state for each frame. None if the frames' rows must be processed one by one.

    Args:
        values: by rank.
        from_an_end: whether all frames begin with their partition.
    """
    if isinstance(slot, Percentile) and slot.values.times is None and not slot.once:
        filled = replace(frames, first=frames.first[frames.has_rows], end=frames.end[frames.has_rows])
        return slot.states_among(values, frames.end - frames.first, lambda _, places: _at_places(filled, places))
    if not from_an_end:
        return None
    if isinstance(slot, Mode) and not slot.once:
        return values.take(_find_modes(frames, slot.greatest))
    if isinstance(slot, Estimate):
        return pa.array(
            slot.corrections.estimate_from_sums(
                *_sum_registers(frames, values.to_numpy(zero_copy_only=False).astype(np.int64))
            )
        )
    if isinstance(slot, FirstRowsSlot):
        return _first_rows(slot, values, frames)
    return None


def _at_places(frames: LongFrames, places: Positions) -> Positions:
    """(n,) the rank of the row at an index (from 0) among the sorted rows of a frame.

    Starting with the highest bit of the ranks, a stable sort moves rows without the bit first. The number of the
    frame's rows without the bit decides on which side the wanted row is. The frame's rows on that side are adjacent
    again.
    """
    ranks, low, high, row_ranks = frames.ranks, frames.first, frames.end, np.zeros(len(places), np.int64)
    for bit in reversed(range(max(frames.size - 1, 1).bit_length())):
        has = (ranks >> bit & 1).astype(np.bool_)
        lacking = np.concatenate([[0], np.cumsum(~has)])
        low_lacking, high_lacking = lacking[low], lacking[high]
        behind = places >= high_lacking - low_lacking
        places = places - np.where(behind, high_lacking - low_lacking, 0)
        low = np.where(behind, lacking[-1] + low - low_lacking, low_lacking)
        high = np.where(behind, lacking[-1] + high - high_lacking, high_lacking)
        row_ranks |= behind.astype(np.int64) << bit
        ranks = np.concatenate([ranks[~has], ranks[has]])
    return row_ranks


def _find_modes(frames: LongFrames, greatest: bool) -> pa.Array:
    """(n,) the rank of the most frequent value; ties give the least or the greatest value.

    A row that is the n-th with its value beats all rows with a lower count.
    """
    group = frames.partition * max(frames.size, 1) + frames.ranks
    order = np.argsort(group, kind="stable")
    new = np.diff(group[order], prepend=-1) != 0
    times = np.empty(len(order), np.int64)
    times[order] = np.arange(len(order)) - np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    value = frames.ranks if greatest else frames.size - 1 - frames.ranks
    ahead, places = np.unique(times * max(frames.size, 1) + value, return_inverse=True)
    best = (
        _running_max(places, frames.partition, len(ahead))[np.maximum(frames.end - 1, 0)] if len(order) else frames.end
    )
    chosen = ahead[best] % max(frames.size, 1) if len(order) else best
    return pa.array(chosen if greatest else frames.size - 1 - chosen, mask=~frames.has_rows)


def _sum_registers(frames: LongFrames, registers: Positions) -> tuple[npt.NDArray[np.float64], Positions]:
    """The sum of 2^-M over the nonzero registers of each frame, and the number of these registers.

    Args:
        registers: by rank: 64 * register + M. Sums consist of two integers, in units of 2^-32 and 2^-64, so they are
            exact.
    """
    codes = registers[frames.ranks]
    cell = frames.partition * (int(codes.max(initial=0)) // RANKS + 1) + codes // RANKS
    order = np.argsort(cell, kind="stable")
    _, section = np.unique(cell[order], return_inverse=True)
    most = _running_max(codes[order] % RANKS, section, RANKS)
    before = np.where(np.diff(section, prepend=-1) != 0, 0, np.concatenate([[0], most[:-1]]))
    sums = np.zeros((3, len(order) + 1), np.int64)
    units = zip(inverse_power_units(most), inverse_power_units(before), strict=True)
    sums[:, 1:][:, order] = np.stack([*(now - then for now, then in units), before == 0])
    np.cumsum(sums, axis=1, out=sums)
    coarse, fine, filled = sums[:, frames.end] - sums[:, frames.first]
    return add_inverse_powers(coarse, fine), filled


def _first_rows(slot: FirstRowsSlot, values: pa.Array, frames: LongFrames) -> pa.Array:
    """(n,) lists of the values of the first rows by rank. Requires: ranks are unique."""
    limit = len(frames.ranks) + 1
    none = frames.partition * limit
    passed = none + len(frames.ranks) - frames.ranks
    begins = np.diff(frames.partition, prepend=-1) != 0
    last = np.maximum(frames.end - 1, 0)
    chosen_ranks = np.full((len(last), slot.count), -1, np.int64)
    for i in range(slot.count):
        best = np.maximum.accumulate(passed)
        best_ranks = (best - none)[last] if len(best) else np.zeros(len(last), np.int64)
        chosen_ranks[:, i] = np.where(frames.has_rows & (best_ranks > 0), len(frames.ranks) - best_ranks, -1)
        if not (chosen_ranks[:, i] >= 0).any():
            break
        ahead = np.where(begins, none, np.concatenate([[0], best[:-1]]))
        passed = np.minimum(passed, ahead)
    there = chosen_ranks >= 0
    starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return slot.states_of_rows(Segments(starts, [values.take(pa.array(chosen_ranks[there]))]))


def _running_max(values: Positions, section: Positions, limit: int) -> Positions:
    """(n,) the greatest value so far in each section. Requires: values are at least 0 and below `limit`."""
    apart = section * limit
    greatest: Positions = np.maximum.accumulate(values + apart) - apart
    return greatest
