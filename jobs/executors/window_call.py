"""One call of OverWindow as plain data, and which rows around a row it reads."""

import msgspec

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.unbounded import LATER_ROWS, SESSIONS, WHOLE_PARTITIONS, UnboundedCost
from tussock.jobs.logical.nodes import AggFunction, FrameEdge, WindowFunction

_NEEDS_SIZE = (WindowFunction.PERCENT_RANK, WindowFunction.CUME_DIST, WindowFunction.NTILE)
_RANKS = (
    WindowFunction.RANK,
    WindowFunction.DENSE_RANK,
    WindowFunction.PERCENT_RANK,
    WindowFunction.CUME_DIST,
    WindowFunction.SESSION,
)
_PICKS = (
    WindowFunction.ROW_NUMBER,
    WindowFunction.NTILE,
    WindowFunction.LAG,
    WindowFunction.LEAD,
    WindowFunction.FIRST,
    WindowFunction.LAST,
    WindowFunction.NTH,
    WindowFunction.MIN_BY,
    WindowFunction.MAX_BY,
    WindowFunction.LISTAGG,
    WindowFunction.COLLECT_LIST,
)


class FrameEnd(msgspec.Struct, frozen=True):
    """One end of a frame.

    With an OFFSET: `rows` after the row (negative: before), or for RANGE the value in `column`.

    `setback` bounds how far the values in `column` go back from a row to a later one, and how far apart such rows are,
    in the unit of the order. 0: they ascend with the order. A frame's end never goes back: it stays where it is.
    """

    edge: FrameEdge
    rows: int = 0
    column: int | None = None
    setback: int = 0

    def explain_text(self, side: str) -> str:
        if self.edge is FrameEdge.UNBOUNDED:
            return f"unbounded {side}"
        if self.edge is FrameEdge.CURRENT:
            return "current row"
        return f"{self.rows:+d}" if self.column is None else f"c{self.column}"


class Over(msgspec.Struct, frozen=True, rename={"filter_column": "kept"}):
    """One call of a window function.

    `args` are columns, `arg_type` is the type of the first and `more_types` are those of the others. `number`, `params`
    and `order` are those of tussock.jobs.logical.nodes.WindowCall. `filter_column` is the boolean column of the rows
    that count; None: all rows count, or those without NULL.
    """

    function: WindowFunction
    args: tuple[int, ...]
    arg_type: str | None
    type: str
    by_rows: bool
    lower: FrameEnd
    upper: FrameEnd
    number: int = 0
    ignore_nulls: bool = False
    mode: str | None = None
    more_types: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    order: tuple[Order, ...] = ()
    filter_column: int | None = None

    @property
    def agg(self) -> Agg:
        """The call as an aggregate of a frame's rows. Requires: its function is an aggregate."""
        arg, more = (self.args[0], self.args[1:]) if self.args else (None, ())
        kind, function = self.arg_type, AggFunction(self.function.value)
        return Agg(
            function,
            arg,
            kind,
            self.type,
            self.mode,
            more,
            self.more_types,
            False,
            self.filter_column,
            self.params,
            self.order,
        )

    @property
    def needs_partition(self) -> bool:
        """Whether any row of the partition may change the result of any other row."""
        if self.function.shifts_rows:
            return self.ignore_nulls
        if self.function.reads_frames and self.lower.edge is FrameEdge.UNBOUNDED:
            return True
        return self.function in _NEEDS_SIZE or (
            not self.function.numbers_rows and self.upper.edge is FrameEdge.UNBOUNDED
        )

    @property
    def lays_out_frames(self) -> bool:
        """Whether it processes the rows of each frame one by one (long_frames.py has the alternatives)."""
        ends = [edge.edge is FrameEdge.UNBOUNDED for edge in (self.lower, self.upper)]
        if not self.function.reads_frames or self.picks_by_rank or all(ends):
            return False
        if self.function in (WindowFunction.PERCENTILE, WindowFunction.PERCENTILE_DISC):
            return len(self.args) > 1
        return self.function in (WindowFunction.COLLECT_LIST, WindowFunction.LISTAGG) or not any(ends)

    @property
    def picks_by_rank(self) -> bool:
        """Whether its result is the value of the frame's first row in some order."""
        return self.function in (WindowFunction.MIN_BY, WindowFunction.MAX_BY) and "k" not in dict(self.params)

    @property
    def passes_over(self) -> bool:
        """Whether some rows do not count, for functions that return the value of a row."""
        return self.ignore_nulls or self.filter_column is not None

    @property
    def is_running(self) -> bool:
        """Whether it accumulates all rows up to a position, so that the result so far can be carried."""
        return not self.function.shifts_rows and not self.needs_partition and self.lower.edge is FrameEdge.UNBOUNDED

    @property
    def unbounded_cost(self) -> UnboundedCost | None:
        """The cost that grows with the partition. None: a changed row changes the results of few rows."""
        if self.needs_partition:
            return WHOLE_PARTITIONS
        if self.function is WindowFunction.SESSION:
            return SESSIONS
        counts_rows = self.function.numbers_rows or self.function is WindowFunction.NTH
        return LATER_ROWS if counts_rows or self.is_running else None

    @property
    def rows_before(self) -> int:
        """How many rows before a row it reads, frames by value not included."""
        if self.function.shifts_rows:
            return max(0, -self.shift)
        return max(0, -self.lower.rows, -self.upper.rows) if self.by_rows else 0

    @property
    def rows_after(self) -> int:
        """How many rows after a row it reads."""
        if self.function.shifts_rows:
            return max(0, self.shift)
        return max(0, self.lower.rows, self.upper.rows) if self.by_rows else 0

    @property
    def shift(self) -> int:
        """For lag and lead: the offset from a row to the row whose value is returned."""
        return -self.number if self.function is WindowFunction.LAG else self.number

    @property
    def setback(self) -> int:
        """The larger setback of its frame's ends."""
        return max(self.lower.setback, self.upper.setback)

    @property
    def reads_peers(self) -> bool:
        """Whether its frames are by value, so that they contain all peers of a row."""
        return not self.by_rows and not self.function.shifts_rows

    @property
    def tells_ties_apart(self) -> bool:
        """Whether its result depends on the order of rows that are equal in the window's order."""
        if self.function in _RANKS:
            return False
        whole = self.lower.edge is FrameEdge.UNBOUNDED and self.upper.edge is FrameEdge.UNBOUNDED
        return self.function in _PICKS or (self.by_rows and not whole)

    def explain_text(self) -> str:
        """The call in EXPLAIN's format: `sum(c3) range unbounded preceding..current row`."""
        number = [str(self.number)] if self.number else []
        args = ", ".join([*(f"c{a}" for a in self.args), *number])
        order = f" order by {', '.join(o.explain_text() for o in self.order)}" if self.order else ""
        condition = "" if self.filter_column is None else f" where c{self.filter_column}"
        shown = f"{self.function.sql}({args}{order}{condition})" + (" ignore nulls" if self.ignore_nulls else "")
        if self.function.shifts_rows or self.function.numbers_rows or self.function in _NEEDS_SIZE:
            return shown
        return (
            f"{shown} {'rows' if self.by_rows else 'range'} "
            f"{self.lower.explain_text('preceding')}..{self.upper.explain_text('following')}"
        )
