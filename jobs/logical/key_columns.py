"""The columns of a table that reject NULL: its key columns and its NOT NULL columns."""

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.logical.statements import CreateTable
from tussock.statestore.errors import InputError


class NullKeyError(InputError):
    """A row for a table has NULL in a key column (`in_key`) or in a NOT NULL column."""

    table: str
    column: str
    row: int
    rows: int
    in_key: bool = True

    def __str__(self) -> str:
        what = "is part of the primary key" if self.in_key else "is a NOT NULL column"
        return (
            f"row {self.row} of {self.rows} has NULL in column {self.column!r}, which {what} of table {self.table!r}. "
            "Nothing was changed. Give the column a value or omit the row."
        )


def require_values(table: CreateTable, rows: pa.Table) -> None:
    """Check the required columns of a table. `rows` has the table's columns, in order.

    Raises: NullKeyError for the first row with NULL in a required column.
    """
    for column in table.required_columns:
        if rows.column(column).null_count:
            row = pc.index(pc.is_null(rows.column(column)), True).as_py()
            raise NullKeyError(table.name, table.fields[column].name, row + 1, rows.num_rows, column in table.key)
