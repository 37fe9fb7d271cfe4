"""Single rows as Python values, read from and written to a StateTable."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tussock.statestore.table.state_table import StateTable

Row = Sequence[Any]


def get_row(table: StateTable, key: Row) -> tuple[Any, ...] | None:
    """The row of one primary key, given in key order."""
    got = table.get_rows(_one_row(key, table.layout.keys))
    return tuple(column[0].as_py() for column in got.rows.columns) if got.found[0].as_py() else None


def insert_row(table: StateTable, row: Row) -> None:
    table.insert_rows(_one_row(row, table.layout.rows))


def delete_row(table: StateTable, row: Row) -> None:
    table.delete_rows(_one_row(row, table.layout.rows))


def update_row(table: StateTable, old: Row, new: Row) -> None:
    table.update_rows(_one_row(old, table.layout.rows), _one_row(new, table.layout.rows))


def _one_row(values: Row, schema: pa.Schema) -> pa.Table:
    if not len(schema):  # the key of a table that holds one row
        return pa.table({"row": [0]}).select([])
    return pa.table([pa.array([value], field.type) for value, field in zip(values, schema, strict=True)], schema=schema)
