"""The facts of a row on which an expression raised.

Actors know columns by number only. The driver adds the names (tussock.jobs.trouble.row_names).
"""

from collections.abc import Sequence

import pyarrow as pa

from tussock.jobs.executors.operator import ExpressionError, rows_alone, shown_values
from tussock.statestore.errors import InputError

_SHOWN_CHARACTERS = 60


class FailedRow(InputError):
    """An expression of an operator raised on a row.

    `fragment` is the fragment's number, `operator` the operator's index in it, and `expression` the expression's index
    in its node. `text` is the expression, `values` are the texts of the row's columns.
    """

    def __init__(
        self,
        relation: str,
        fragment: int,
        operator: int,
        expression: int,
        text: str,
        reason: str,
        values: Sequence[str],
    ) -> None:
        super().__init__(relation, fragment, operator, expression, text, reason, list(values))
        self.relation, self.fragment, self.operator = relation, fragment, operator
        self.expression, self.text, self.reason, self.values = expression, text, reason, list(values)

    def __str__(self) -> str:
        return f"{self.relation}: {self.text} raised on a row: {self.reason}. The row: {', '.join(self.values)}"


class RaisedInSpark(InputError):
    """An expression that Spark computes raised on a row of input `input_index` of fragment `fragment`.

    `calls` are the calls that Spark computed for this input. Each consists of its SQL text, its column numbers, and the
    text for messages. `values` are the texts of the row's columns; `row` is the row as an Arrow stream in base64. Spark
    reports neither the call that raised nor the reason. The driver computes the row once more to find them
    (`with_reason`).
    """

    def __init__(
        self,
        relation: str,
        fragment: int,
        input_index: int,
        calls: Sequence[Sequence[object]],
        values: Sequence[str],
        row: str,
        raised: int = 0,
        reason: str = "Spark cannot compute it",
    ) -> None:
        super().__init__(relation, fragment, input_index, [list(c) for c in calls], list(values), row, raised, reason)
        self.relation, self.fragment, self.input_index = relation, fragment, input_index
        self.calls, self.values, self.row, self.raised, self.reason = calls, values, row, raised, reason

    def __str__(self) -> str:
        return (
            f"{self.relation}: {self.calls[self.raised][2]} raised on a row: {self.reason}. "
            f"The row: {', '.join(self.values)}"
        )

    def with_reason(self, raised: int, reason: str) -> "RaisedInSpark":
        """A copy of the error with the number of the call that raised, and Spark's reason."""
        return RaisedInSpark(
            self.relation, self.fragment, self.input_index, self.calls, self.values, self.row, raised, reason
        )


def failed_row(relation: str, fragment: int, operator: int, err: ExpressionError) -> FailedRow:
    """Convert an executor's error to an error that can be sent to the driver."""
    rows = rows_alone(err.rows)
    values = short_values(rows, err.row) if 0 <= err.row < rows.num_rows else []
    return FailedRow(relation, fragment, operator, err.expression, err.text, err.reason, values)


def short_values(rows: pa.Table, row: int) -> list[str]:
    """Format the values of a row for an error message, each cut to a length."""
    texts = shown_values(rows, row)
    return [text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…" for text in texts]
