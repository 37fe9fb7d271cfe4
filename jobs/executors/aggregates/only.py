"""The only value of a group.

Spark's rewrite of several DISTINCT aggregates uses it for the results of the other aggregates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import Result
from tussock.jobs.executors.aggregates.plain import Plain
from tussock.jobs.executors.value_state import I64, Deposit, Slot, State, zero_for_null
from tussock.jobs.kernels.kernel import Kernel
from tussock.statestore.vnode import null_mask, one_array


@dataclass(frozen=True, slots=True)
class OnlyValue(Slot):
    """A value, and whether it exists: an insert sets it, a delete removes it. Requires: never two live values."""

    arg: int
    arg_type: str

    @property
    def types(self) -> tuple[str, ...]:
        return (self.arg_type, "bigint")

    def make_deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        column = one_array(rows.column(self.arg))
        return _make_deposit(column, np.where(null_mask(column), 0, weights), weights > 0)

    def deposit_of_state(self, state: State) -> Deposit:
        there = pc.is_valid(state[0]).to_numpy(zero_copy_only=False)
        return _make_deposit(state[0], state[1].to_numpy(zero_copy_only=False), there)

    def add_change(self, before: State, change: State) -> State:
        count = pc.add(pc.fill_null(before[1], 0), change[1])
        value = pc.if_else(pc.is_valid(change[0]), change[0], before[0])
        return [pc.if_else(pc.equal(count, 0), pa.scalar(None, value.type), value), count]


def _make_deposit(column: pa.Array, counts: I64, comes: np.ndarray) -> Deposit:
    """The position of the inserted row with a value, and the change in the number of values."""
    brings = comes & ~null_mask(column)
    places = pa.array(np.arange(len(column)), mask=~brings)
    return Deposit([(places, "max"), (pa.array(counts), "sum")], lambda v: [column.take(v[0]), *zero_for_null(v[1:])])


class Only(Plain):
    """first(x, true) of a group with a single x."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        return (OnlyValue(*call.first_arg),)

    def compute_result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        return Result(states[0][0])
