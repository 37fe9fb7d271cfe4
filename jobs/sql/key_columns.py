"""Key columns of rows on their way into a table: none is NULL."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import InputError


class NullKeyError(InputError):
    """A row to insert has NULL in its primary key."""

    def __init__(self, table: str, column: str, row: int, rows: int) -> None:
        super().__init__(table, column, row, rows)
        self.table, self.column, self.row, self.rows = table, column, row, rows

    def __str__(self) -> str:
        return (
            f"row {self.row} of {self.rows} has NULL in column {self.column!r}, which is part of the primary key of table {self.table!r}. "
            "Nothing was inserted; give it a value or leave the row out."
        )


def require_keys(table: str, names: Sequence[str], key: Sequence[int], rows: pa.Table) -> None:
    """Raises NullKeyError for the first row that has NULL in a key column."""
    for column in key:
        if rows.column(column).null_count:
            row = pc.index(pc.is_null(rows.column(column)), True).as_py()
            raise NullKeyError(table, names[column], row + 1, rows.num_rows)
