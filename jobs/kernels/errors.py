"""Errors of kernels: refused expressions, and errors on rows."""

from tussock.jobs.logical.nodes import Place
from tussock.statestore.errors import InputError, TussockError


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
        return (
            f"expression {self.text} raised on row {self.row} of its input: {self.reason}. "
            "Correct the row, or write the expression with try_…, CASE or a filter."
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
