"""One aggregate of PartialAgg and HashAgg, as plain data."""

from collections.abc import Sequence

import msgspec

from tussock.jobs.executors.order import Order
from tussock.jobs.logical.nodes import AggFunction


class Agg(msgspec.Struct, frozen=True, rename={"filter_column": "kept"}):
    """One aggregate of PartialAgg and HashAgg.

    `arg` is the first argument's column (None: count rows), `arg_type` its type, `more` are the columns of the other
    arguments, and `type` is the result's type. `params` and `order` are as in nodes.AggCall. Rows that a FILTER
    excludes have NULL in an argument. If NULL is a meaningful value, `filter_column` is the FILTER's boolean column
    instead.
    """

    function: AggFunction
    arg: int | None
    arg_type: str | None
    type: str
    mode: str | None = None
    more: tuple[int, ...] = ()
    more_types: tuple[str, ...] = ()
    distinct: bool = False
    filter_column: int | None = None
    params: tuple[tuple[str, str], ...] = ()
    order: tuple[Order, ...] = ()

    @property
    def args(self) -> tuple[int, ...]:
        """The columns of the arguments."""
        return self.more if self.arg is None else (self.arg, *self.more)

    @property
    def arg_types(self) -> tuple[str, ...]:
        """The types of the arguments."""
        return self.more_types if self.arg_type is None else (self.arg_type, *self.more_types)

    @property
    def first_arg(self) -> tuple[int, str]:
        """The first argument's column and type. Requires: the call has an argument."""
        assert self.arg is not None
        assert self.arg_type is not None
        return self.arg, self.arg_type

    def find_param(self, name: str) -> str | None:
        """A constant parameter by name. None if it is not set."""
        return dict(self.params).get(name)

    def explain_text(self) -> str:
        """The call in EXPLAIN's format: `sum(c3)`, `max_by(c1, c2)`, `count(distinct c4)`."""
        args = ", ".join(f"c{a}" for a in self.args) or "*"
        order = f" order by {', '.join(o.explain_text() for o in self.order)}" if self.order else ""
        condition = "" if self.filter_column is None else f" where c{self.filter_column}"
        return f"{self.function.sql}({'distinct ' if self.distinct else ''}{args}{order}{condition})"


def calls_text(calls: Sequence[Agg]) -> str:
    """Several calls in one line, for EXPLAIN."""
    return ", ".join(call.explain_text() for call in calls)
