"""Gives the columns of a table other names, without an object per column.

`pa.Table.columns` makes an object of Python for each column, and `pa.Table.from_arrays` reads each again. That costs 1
to 3 us per column and call, which is most of the cost of an epoch with ten rows of 2,000 columns. Arrow's own functions
of whole tables cost a tenth of it.
"""

from functools import lru_cache

import pyarrow as pa


def rename_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """The rows under a schema, matched by position. None if they differ from it in more than names. Copies nothing."""
    if rows.num_columns != len(schema):
        return None
    named = rows if rows.schema.equals(schema) else rows.rename_columns(schema.names)
    return named if named.schema.equals(schema, check_metadata=True) else None


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows under a schema, matched by position. Copies nothing. Requires: the columns have the schema's types."""
    named = rename_columns(rows, schema)
    return pa.Table.from_arrays(rows.columns, schema=schema) if named is None else named


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with nullable columns and without metadata."""
    return _plain_schema(schema.serialize().to_pybytes(), False)


def numbered_schema(schema: pa.Schema) -> pa.Schema:
    """`plain_schema` with the names c0, c1, …"""
    return _plain_schema(schema.serialize().to_pybytes(), True)


@lru_cache(maxsize=128)
def _plain_schema(message: bytes, numbered: bool) -> pa.Schema:
    """Cached by the bytes of the schema: making the fields of 2,000 columns takes ten times as long as writing them."""
    fields = pa.ipc.read_schema(pa.py_buffer(message))
    return pa.schema([pa.field(f"c{i}" if numbered else field.name, field.type) for i, field in enumerate(fields)])
