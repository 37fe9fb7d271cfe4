"""A table's layout: encodes rows, keys and prefixes (Arrow tables) as storage keys, and names columns.

Columns are matched by position and named by the schema, so callers need not rename them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from tussock.statestore.errors import InputError
from tussock.statestore.hummock.key import encode_keys, encode_prefixes, vnode_range
from tussock.statestore.hummock.row_shape import shape_of
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.named_rows import rename_columns
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import vnodes_of


class TableSchemaError(InputError):
    """A table schema contradicts itself."""

    table: str
    problem: str

    def __str__(self) -> str:
        return f"state table {self.table!r} cannot be laid out: {self.problem}. Plan it again."


class WrongColumnsError(InputError):
    """The columns of the given rows, keys or prefixes do not match the table."""

    table: str
    what: str
    columns: str
    expected: str

    def __str__(self) -> str:
        return (
            f"state table {self.table!r}: {self.what} have the columns ({self.columns}), expected ({self.expected}). "
            "Nothing was read or written. Cast the columns, or plan the table again."
        )


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The result of a look-up by key."""

    rows: pa.Table  # one per requested key, in that order; all columns are NULL for absent keys
    found: pa.BooleanArray  # aligned with `rows`


@dataclass(frozen=True, slots=True)
class PrefixRows:
    """Rows whose keys start with one of several prefixes."""

    index: pa.Int64Array  # position of each row's prefix; ascending
    rows: pa.Table  # in key order (or reverse) within a prefix


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows between pairs of storage keys."""

    index: pa.Int64Array  # position of each row's pair; ascending
    keys: pa.BinaryArray  # storage keys; ascending (or descending) within a pair
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Net changes of a table: rows with weights. Rows with weight -1 come first."""

    weights: pa.Int64Array  # (n,) -1: a removed row, +1: an added row
    rows: pa.Table  # (n,)


def row_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of a table's rows. Raises UnsupportedTypeError."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in schema.columns])


def key_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of a table's primary keys: the key's columns in key order."""
    rows = row_schema(schema)
    return pa.schema([rows.field(part.column) for part in schema.key])


class TableLayout:
    """A TableSchema prepared for use: Arrow schemas, and the encoding of columns as storage keys."""

    def __init__(self, schema: TableSchema, vnode_count: int) -> None:
        """Raises TableSchemaError, UnsupportedTypeError."""
        _check_schema(schema)
        self.schema = schema
        self.vnode_count = vnode_count
        self.rows = row_schema(schema)
        self.shape = shape_of(schema)  # None: all sections have these columns
        self.keys = key_schema(schema)
        self.key_columns = tuple(part.column for part in schema.key)
        # Positions in the key.
        self._distribution = tuple(self.key_columns.index(column) for column in schema.distribution)

    def keys_of_rows(self, rows: pa.Table) -> pa.BinaryArray:
        """Encode the storage keys of whole rows. Requires: `rows` is a result of `as_rows`."""
        return self._encode_keys([rows.column(column) for column in self.key_columns], rows.num_rows)

    def keys_of(self, keys: pa.Table) -> pa.BinaryArray:
        """Encode primary keys: a table of the key's columns in key order. Raises WrongColumnsError."""
        self._require_columns(keys, self.keys, "keys")
        return self._encode_keys(keys.columns, keys.num_rows)

    def prefixes_of(self, prefixes: pa.Table) -> pa.BinaryArray:
        """Encode key prefixes: a table of the first k key columns, which include the distribution columns.

        Raises WrongColumnsError, also if a distribution column is missing, because matching rows would be in all
        vnodes.
        """
        least = max(self._distribution, default=-1) + 1
        wanted = pa.schema([self.keys.field(i) for i in range(min(max(prefixes.num_columns, least), len(self.keys)))])
        self._require_columns(prefixes, wanted, "prefixes")
        return self._encode_keys(prefixes.columns, prefixes.num_rows)

    def range_of(self, vnode: int, end: int) -> tuple[bytes, bytes]:
        """First (inclusive) and last (exclusive) storage key of the vnodes `vnode` to `end` - 1."""
        return vnode_range(self.schema.table_id, vnode, end)

    def as_rows(self, rows: pa.Table, what: str = "rows") -> pa.Table:
        """Name the columns of whole rows by the schema. Raises WrongColumnsError if their number or types differ."""
        if (named := rename_columns(rows, self.rows)) is not None:
            return named
        self._require_columns(rows, self.rows, what)
        return pa.table(rows.columns, schema=self.rows)

    def _encode_keys(self, columns: Sequence[pa.ChunkedArray], rows: int) -> pa.BinaryArray:
        arrays = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in columns]
        vnodes = vnodes_of([arrays[place] for place in self._distribution], self.vnode_count, rows)
        encode = encode_keys if len(arrays) == len(self.schema.key) else encode_prefixes
        return encode(self.schema.table_id, vnodes, arrays, self.schema.key)

    def _require_columns(self, table: pa.Table, expected: pa.Schema, what: str) -> None:
        if table.schema.types != expected.types:
            raise WrongColumnsError(self.schema.name, what, _format_schema(table.schema), _format_schema(expected))


@lru_cache(maxsize=1024)
def table_layout(schema: TableSchema, vnode_count: int) -> TableLayout:
    """The layout of a table: the same object in each epoch, because a wide table's schemas are slow to make."""
    return TableLayout(schema, vnode_count)


def _check_schema(schema: TableSchema) -> None:
    key = [part.column for part in schema.key]
    if (wrong := [column for column in (*key, *schema.distribution) if not 0 <= column < len(schema.columns)]) != []:
        raise TableSchemaError(
            schema.name, f"key or distribution names column {wrong[0]}, but the row has {len(schema.columns)} columns"
        )
    if len(set(key)) < len(key):
        raise TableSchemaError(schema.name, f"the key {key} names a column twice")
    if not set(schema.distribution) <= set(key):
        raise TableSchemaError(schema.name, f"distribution {list(schema.distribution)} is not part of the key {key}")


def _format_schema(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
