"""A row on which an expression raised, as facts. An actor knows columns by number alone; the driver names them
(jobs.driver.row_names)."""

from collections.abc import Sequence

from jobs.executors.operator import ExpressionError, rows_alone
from statestore.errors import InputError

_SHOWN_CHARACTERS = 60


class FailedRow(InputError):
    """Expression `expression` (an index among its node's) raised in operator `operator` of fragment `fragment`; `text` is the expression,
    `values` are the texts of the row's columns."""

    def __init__(self, relation: str, fragment: int, operator: int, expression: int, text: str, reason: str, values: Sequence[str]) -> None:
        super().__init__(relation, fragment, operator, expression, text, reason, list(values))
        self.relation, self.fragment, self.operator = relation, fragment, operator
        self.expression, self.text, self.reason, self.values = expression, text, reason, list(values)

    def __str__(self) -> str:
        return f"{self.relation}: {self.text} raised on a row: {self.reason}. The row: {', '.join(self.values)}"


def failed_row(relation: str, fragment: int, operator: int, err: ExpressionError) -> FailedRow:
    """The facts of an executor's error, as they travel."""
    rows = rows_alone(err.rows)
    values = [_shown(column[err.row].as_py()) for column in rows.columns] if 0 <= err.row < rows.num_rows else []
    return FailedRow(relation, fragment, operator, err.expression, err.text, err.reason, values)


def _shown(value: object) -> str:
    text = "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
