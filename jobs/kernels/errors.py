"""Errors of kernels: refused expressions, and errors on rows."""

import re

from tussock.jobs.logical.nodes import Place
from tussock.statestore.errors import InputError, TussockError

_TRY = re.compile(r"\btry_", re.IGNORECASE)


class UnsupportedExpressionError(InputError):
    """No kernel computes this expression: it is not on the list of expressions that are tested against Spark."""

    shape: str
    text: str
    reason: str
    place: Place | None = None

    def __str__(self) -> str:
        where = "" if self.place is None else f" at line {self.place.line}, column {self.place.column}"
        return f"expression {self.text}{where} cannot be maintained: {self.shape} {self.reason}."


class RowError(InputError):
    """An expression raised on a row, as Spark does in ANSI mode.

    `expression` is the index of the expression among the kernel's expressions, `row` the index of the first such row in
    the kernel's input. The caller can name both.
    """

    text: str
    reason: str
    row: int
    expression: int = 0

    def __str__(self) -> str:
        # A try_ function that is there already, or one around a value that no kernel computes, would raise again.
        is_guarded = _TRY.search(self.text) is not None or "not supported" in self.reason
        guard = "CASE or a filter" if is_guarded else "try_…, CASE or a filter"
        return (
            f"expression {self.text} raised on row {self.row} of its input: {self.reason}. "
            f"Correct the row, or write the expression with {guard}."
        )


class KernelError(TussockError):
    """DuckDB refused a rendered query: the renderer has a defect, or memory or disk is exhausted."""

    sql: str
    reason: str

    def __str__(self) -> str:
        return (
            f"a kernel query failed: {self.reason}. Nothing of this epoch became visible. "
            f"The query was: {self.sql[:2000]}"
        )
