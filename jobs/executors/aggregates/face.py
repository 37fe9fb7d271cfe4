"""The interface of an aggregate function's entry. Planning, EXPLAIN and the executors use only this interface."""

from collections.abc import Sequence
from typing import Protocol

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import Result
from tussock.jobs.executors.unbounded import UnboundedCost
from tussock.jobs.executors.value_state import Slot, State
from tussock.jobs.kernels.kernel import Kernel


class AggregateFamily(Protocol):
    """One aggregate function, or several similar ones."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        """The slots per group, in the order that `compute_result` expects. Senders pre-aggregate slots without side.

        `append_only`: rows are never deleted. Raises UnsupportedTypeError.
        """
        ...

    def compute_result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        """The value of each group.

        Args:
            slots, states: the slots, and their state columns, (n,) each; NULL state: no rows.
            kernel: for results that need a query.

        Returns: (n,) of exactly `arrow_type(call.type)`.
        """
        ...

    def unbounded_cost(self, call: Agg) -> UnboundedCost | None:
        """The cost that grows with a group. None: a changed row costs the same in a group of any size."""
        ...

    def explain_note(self, call: Agg) -> str:
        """A note for EXPLAIN, e.g. an order that the query leaves open, or the rows read. May be empty."""
        ...
