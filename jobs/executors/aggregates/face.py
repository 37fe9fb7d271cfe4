"""The face of an aggregate function: what its entry says of it. Everything else (planning, EXPLAIN, the executors) asks the entry."""

from collections.abc import Sequence
from typing import Protocol

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import Result
from tussock.jobs.executors.value_state import Slot, State
from tussock.jobs.kernels.kernel import Kernel


class AggregateFamily(Protocol):
    """One aggregate function, or several that differ in a word."""

    def slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        """What is kept per group, in the order in which `result` takes it. A sender can sum up before the exchange what has no side.
        `append_only`: no row ever goes. Raises UnsupportedTypeError."""
        ...

    def result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        """The value of each group.

        Args:
            slots, states: as `slots` lays them out, and their columns, (n,) each; NULL state: no rows.
            kernel: for what is a query.

        Returns: (n,) of exactly `arrow_type(call.type)`.
        """
        ...

    def carrier(self, call: Agg) -> int | None:
        """The argument in which a NULL leaves a row out, as a FILTER does; None: NULLs count."""
        ...

    def note(self, call: Agg) -> str:
        """What EXPLAIN says of it beside its name: an order that the query leaves open, what is read. Empty: nothing."""
        ...
