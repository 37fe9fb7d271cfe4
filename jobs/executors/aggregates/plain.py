"""Defaults of most aggregate functions: NULL arguments do not count, and there is no note for EXPLAIN."""

from collections.abc import Sequence

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import Result
from tussock.jobs.executors.unbounded import UnboundedCost
from tussock.jobs.executors.value_state import Slot, State
from tussock.jobs.kernels.kernel import Kernel


class BoundedFunction:
    """A function whose reads follow the changed rows."""

    def unbounded_cost(self, call: Agg) -> UnboundedCost | None:
        return None


class Plain(BoundedFunction):
    """The defaults of an entry."""

    def explain_note(self, call: Agg) -> str:
        return ""


class StoredResult(BoundedFunction):
    """A function whose only slot holds the result."""

    def compute_result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        return Result(states[0][0])
