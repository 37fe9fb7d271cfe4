"""approx_count_distinct of groups: the slot, whose sums over registers follow the registers that change.

The estimate is a function of two sums over a group's registers (hyperloglog.py): 2^-M, and the number of filled
registers. The group's row stores both. A change adds the difference in the registers whose greatest rank M changed.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tussock.jobs.executors.base import take_rows
from tussock.jobs.executors.distinct_state import DistinctState
from tussock.jobs.executors.exact_sum import integer_values
from tussock.jobs.executors.group_segments import I64, Segments
from tussock.jobs.executors.hyperloglog import RANKS, Corrections, add_inverse_powers, inverse_power_units
from tussock.jobs.executors.recomputed import OfValues
from tussock.jobs.executors.value_state import SideState, State
from tussock.statestore.hummock.sorted_keys import left_positions, successors
from tussock.statestore.positions import expand_ranges
from tussock.statestore.vnode import one_array


@dataclass(frozen=True, slots=True)
class Estimate(OfValues):
    """An estimate of a group's number of distinct values.

    State: the estimate; the sum of 2^-M in units of 2^-32 and of 2^-64; the number of filled registers.
    """

    corrections: Corrections

    @property
    def types(self) -> tuple[str, ...]:
        return ("bigint",) * 4

    def compute_states(self, values: Segments) -> pa.Array:
        return self._states_of(self._sum_registers(values))[0]

    def read_state(self, side: SideState, groups: pa.Table, before: State, change: State) -> State:
        """The groups' estimates.

        Cost: two limited scans of the registers with changed ranks; all registers of new groups.
        """
        assert isinstance(side, DistinctState)
        sums = np.stack([integer_values(column) for column in before[1:]])
        new, old = np.flatnonzero(sums[-1] == 0), np.flatnonzero(sums[-1])
        sums[:, new] = self._sum_registers(side.read_all(take_rows(groups, new)))
        if len(old):
            sums[:, old] += self._change_of_sums(side, take_rows(groups, old))
        return self._states_of(sums)

    def _states_of(self, sums: I64) -> State:
        coarse, fine, filled = sums
        estimate = self.corrections.estimate_from_sums(add_inverse_powers(coarse, fine), filled)
        return [pa.array(estimate), *map(pa.array, sums)]

    def _sum_registers(self, values: Segments) -> I64:
        """(3, groups) the sums over the groups' registers."""
        codes = values.columns[0].to_numpy(zero_copy_only=False).astype(np.int64)
        groups = len(values.starts) - 1
        group = np.repeat(np.arange(groups), np.diff(values.starts))
        cell = group << self.corrections.precision | codes // RANKS
        last = np.flatnonzero(np.append(cell[1:] != cell[:-1], True)[: len(cell)])  # the greatest rank of a register
        return _sum_by_group(group[last], codes[last] % RANKS, groups)

    def _change_of_sums(self, side: DistinctState, groups: pa.Table) -> I64:
        """(3, groups) the difference that the last chunk made."""
        if (changes := side.find_changes()) is None:
            return np.zeros((3, groups.num_rows), np.int64)
        prefixes = side.table.layout.prefixes_of(groups)
        first, end = (left_positions(changes.keys, edge) for edge in (prefixes, successors(prefixes)))
        group = np.repeat(np.arange(groups.num_rows), end - first)
        place = expand_ranges(first, end - first)
        comes_or_goes = ((changes.before > 0) != (changes.after > 0))[place]
        codes = one_array(changes.rows.column(-2)).take(pa.array(place[comes_or_goes])).to_numpy().astype(np.int64)
        cells = np.unique(group[comes_or_goes] << self.corrections.precision | codes // RANKS)
        group, register = cells >> self.corrections.precision, cells & ((1 << self.corrections.precision) - 1)
        each = take_rows(groups, group)
        firsts, ends = (side.keys_of_values(each, pa.array((register + i) * RANKS, pa.int32())) for i in range(2))
        after = side.table.scan_between(firsts, ends, 1, True)
        index, _, rows = side.table.stored.read_between(firsts, ends, 1, True)  # before this epoch
        both_states = ((after.index, after.rows, 1), (index, rows, -1))
        sums = np.zeros((3, groups.num_rows), np.int64)
        for at, read, sign in both_states:
            ranks = one_array(read.column(-2)).to_numpy().astype(np.int64) % RANKS
            sums += sign * _sum_by_group(group[np.asarray(at)], ranks, groups.num_rows)
        return sums


def _sum_by_group(group: I64, ranks: I64, groups: int) -> I64:
    """(3, groups) the sums over registers with these ranks."""
    sums = np.zeros((3, groups), np.int64)
    for row, units in zip(sums, (*inverse_power_units(ranks), np.ones(len(ranks), np.int64)), strict=True):
        np.add.at(row, group, units)
    return sums
