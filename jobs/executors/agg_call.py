"""One aggregate of PartialAgg and HashAgg, as plain data."""

from collections.abc import Sequence

import msgspec

from jobs.sql.logical import AggFunction


class Agg(msgspec.Struct, frozen=True):
    """One aggregate over one column (`arg` None: count rows). `type` is the result's, `arg_type` the argument's."""

    function: AggFunction
    arg: int | None
    arg_type: str | None
    type: str
    mode: str | None = None

    def text(self) -> str:
        """As EXPLAIN shows it: `sum(c3)`."""
        return f"{self.function.lower()}({'*' if self.arg is None else f'c{self.arg}'})"


def calls_text(calls: Sequence[Agg]) -> str:
    """Several calls in one line."""
    return ", ".join(call.text() for call in calls)
