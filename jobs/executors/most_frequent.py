"""The most frequent value of groups: the slot of mode.

A change makes another value the mode if that value's count rises above the mode's, or if the mode's own count falls.
The first is visible in the changed counts. The second needs the other values: the index of frequencies has them in
order (frequency_index.py).
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.base import Positions, take_rows
from tussock.jobs.executors.distinct_state import CountChanges, DistinctState
from tussock.jobs.executors.exact_sum import integer_values
from tussock.jobs.executors.frequency_index import Frequencies, FrequencyIndex
from tussock.jobs.executors.group_segments import I64, Segments
from tussock.jobs.executors.recomputed import OfValues, counts_of
from tussock.jobs.executors.value_state import Side, SideState, State
from tussock.statestore.hummock.sorted_keys import left_positions, successors
from tussock.statestore.positions import expand_ranges
from tussock.statestore.vnode import one_array


@dataclass(frozen=True, slots=True)
class Mode(OfValues):
    """The most frequent value. Ties give the least value, or the greatest if `greatest`. `once`: count each value once.

    `frequencies`: the index, if a value's count can fall. State: the value and its count.
    """

    greatest: bool
    once: bool
    frequencies: Frequencies | None

    @property
    def types(self) -> tuple[str, ...]:
        return (*self.values.types, "bigint")

    @property
    def side(self) -> Side:
        return self.values if self.frequencies is None else self.frequencies

    def compute_states(self, values: Segments) -> pa.Array:
        return values.values_at(self._find_modes(values))

    def read_state(self, side: SideState, groups: pa.Table, before: State, change: State) -> State:
        """The groups' modes.

        Cost: one limited scan of the groups whose mode occurs less often than before; all values of new groups, whose
            rows are all changed.
        """
        values = side.values if isinstance(side, FrequencyIndex) else side
        assert isinstance(values, DistinctState)
        if self.once:
            return self._read_ends(values, groups)
        had = integer_values(before[1])
        new = np.flatnonzero(had == 0)
        segments = values.read_all(take_rows(groups, new))
        places = self._find_modes(segments)
        filled = new[segments.filled_groups]
        parts = [(filled, segments.columns[0].take(pa.array(places)), counts_of(segments)[places])]
        old = np.flatnonzero(had > 0)
        if len(old):
            parts += self._update_modes(
                side, values, take_rows(groups, old), old, before[0].take(pa.array(old)), had[old]
            )
        return _merge_parts(parts, groups.num_rows)

    def _update_modes(
        self, side: SideState, values: DistinctState, groups: pa.Table, at: Positions, modes: pa.Array, counts: I64
    ) -> list[tuple[Positions, pa.Array, I64]]:
        """The modes of groups that had one: which groups, their modes, and the counts of these.

        `at`: the numbers of the groups. `modes`, `counts`: those before the change.
        """
        if (changes := values.find_changes()) is None:
            return [(at, modes, counts)]
        prefixes, keys = values.table.layout.prefixes_of(groups), values.keys_of_values(groups, modes)
        place = left_positions(changes.keys, keys)
        known = np.minimum(place, len(changes.keys) - 1)
        changed = pc.equal(changes.keys.take(pa.array(known)), keys).to_numpy(zero_copy_only=False)
        fell = changed & (changes.after[known] < counts)
        first, end = (left_positions(changes.keys, edge) for edge in (prefixes, successors(prefixes)))
        best = self._best_of_ranges(changes, first, end)
        rival = np.maximum(best, 0)
        ahead = rival >= place if self.greatest else rival < place
        rises = (
            ~fell
            & (best >= 0)
            & (changed | (changes.after[rival] > counts) | ((changes.after[rival] == counts) & ahead))
        )
        stays = ~fell & ~rises
        parts = [
            (at[stays], modes.filter(pa.array(stays)), counts[stays]),
            (at[rises], one_array(changes.rows.column(-2)).take(pa.array(rival[rises])), changes.after[rival[rises]]),
        ]
        if fell.any():
            assert isinstance(side, FrequencyIndex)
            parts.append((at[fell], *side.read_most_frequent(take_rows(groups, np.flatnonzero(fell)))))
        return parts

    def _best_of_ranges(self, changes: CountChanges, first: Positions, end: Positions) -> Positions:
        """(n,) the changed value with the greatest count in each range of positions; -1 if the range has none."""
        sizes = end - first
        within = np.repeat(np.arange(len(first)), sizes)
        place = expand_ranges(first, sizes)
        order = np.lexsort((-place if self.greatest else place, -changes.after[place], within))
        best = np.full(len(first), -1, np.int64)
        starts = np.searchsorted(within, np.flatnonzero(sizes))  # `order` keeps the ranges in sequence
        best[sizes > 0] = place[order[starts]]
        return best

    def _find_modes(self, values: Segments) -> Positions:
        """(non-empty groups,) the index of each group's mode."""
        counts = np.ones_like(counts_of(values)) if self.once else counts_of(values)
        starts, ends = values.starts[values.filled_groups], values.starts[values.filled_groups + 1]
        if not len(starts):
            return starts
        most = np.repeat(np.maximum.reduceat(counts, starts), ends - starts)
        candidates = np.flatnonzero(counts == most)
        place = np.searchsorted(candidates, ends) - 1 if self.greatest else np.searchsorted(candidates, starts)
        return candidates[place]

    def _read_ends(self, values: DistinctState, groups: pa.Table) -> State:
        """The least or greatest values."""
        read = values.read_ends(groups, self.greatest)
        index = read.index.to_numpy()
        return _merge_parts([(index, one_array(read.rows.column(-2)), np.ones(len(index), np.int64))], groups.num_rows)


def _merge_parts(parts: list[tuple[Positions, pa.Array, I64]], groups: int) -> State:
    """(groups,) the values and counts of all parts, in the order of the groups; NULL for groups in no part."""
    values = pa.concat_arrays([values for _, values, _ in parts])
    place = np.full(groups, -1, np.int64)
    place[np.concatenate([at for at, _, _ in parts])] = np.arange(len(values))
    chosen = pa.array(place, mask=place < 0)
    return [values.take(chosen), pa.array(np.concatenate([counts for _, _, counts in parts])).take(chosen)]
