"""What most aggregate functions have in common: NULL arguments do not count, and there is nothing to add to their name."""

from collections.abc import Sequence

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import Result
from tussock.jobs.executors.value_state import Slot, State
from tussock.jobs.kernels.kernel import Kernel


class Plain:
    """Defaults of an entry."""

    def carrier(self, call: Agg) -> int | None:
        return 0

    def note(self, call: Agg) -> str:
        return ""


class Kept:
    """Of a function whose one slot holds the result."""

    def result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        return Result(states[0][0])
