"""min and max; also bool_and (every) and bool_or (some, any)."""

from collections.abc import Sequence

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import Result
from tussock.jobs.executors.aggregates.plain import Plain
from tussock.jobs.executors.extreme import Extreme
from tussock.jobs.executors.value_state import Slot, State
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import AggFunction


class MinMax(Plain):
    """Stores the extreme with the group. If rows can be deleted, a side state stores the other values in order."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        return (Extreme(*call.first_arg, call.function is AggFunction.MAX, not append_only),)

    def compute_result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        return Result(states[0][0])
