"""A row on which an expression raised, as facts. An actor knows columns by number alone; the driver names them
(jobs.driver.row_names)."""

from collections.abc import Sequence

import pyarrow as pa

from jobs.plan.schedule import Scheduled
from jobs.wire.chunk import WEIGHT
from statestore.errors import InputError

_SHOWN_CHARACTERS = 60


class FailedRow(InputError):
    """An expression raised in operator `operator` of fragment `fragment`; `values` are the texts of the row's columns."""

    def __init__(self, relation: str, fragment: int, operator: int, expression: str, reason: str, values: Sequence[str]) -> None:
        super().__init__(relation, fragment, operator, expression, reason, list(values))
        self.relation, self.fragment, self.operator = relation, fragment, operator
        self.expression, self.reason, self.values = expression, reason, list(values)

    def __str__(self) -> str:
        return f"{self.relation}: {self.expression} raised on a row: {self.reason}. The row: {', '.join(self.values)}"


def failed_row(scheduled: Scheduled, operator: int, expression: str, reason: str, rows: pa.Table | None, row: int) -> FailedRow:
    """The facts of a failure. `rows` is the chunk, `row` a place in it."""
    if rows is None:
        return FailedRow(scheduled.relation, scheduled.id, operator, expression, reason, [])
    kept = rows.drop_columns([WEIGHT]) if WEIGHT in rows.column_names else rows
    found = [_shown(column[row].as_py()) for column in kept.columns] if 0 <= row < rows.num_rows else []
    return FailedRow(scheduled.relation, scheduled.id, operator, expression, reason, found)


def _shown(value: object) -> str:
    text = "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
