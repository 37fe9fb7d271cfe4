"""Infer a source's columns from its files: Parquet's types as Spark reads them, and schema errors of all formats."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tussock.jobs.logical.nodes import Field
from tussock.statestore.errors import DamagedError, InputError
from tussock.statestore.types import (
    INTERVALS,
    MONTH_INTERVALS,
    UnsupportedTypeError,
    array_name,
    arrow_type,
    map_name,
    struct_name,
    type_name,
)

_SPARKS_NOTE = b"org.apache.spark.sql.parquet.row.metadata"
# Spark's types for the ones that it lacks: unsigned integers grow; other widths of text and bytes are one type
_WIDENED: dict[pa.DataType, str] = {
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date64(): "date",
}
#: A column of the logical type "always null" contains only NULLs; Spark uses its physical type.
_PHYSICAL = {
    **{
        "BOOLEAN": "boolean",
        "INT32": "int",
        "INT64": "bigint",
        "INT96": "timestamp",
        "FLOAT": "float",
        "DOUBLE": "double",
    },
    **{"BYTE_ARRAY": "binary", "FIXED_LEN_BYTE_ARRAY": "binary"},
}
_VARIANT = re.compile(r" \(Variant\(\d+\)\) \{$")


class UnreadableSchemaError(DamagedError):
    """A file's columns cannot be read."""

    file: str
    format: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the columns of {self.file} cannot be read: {self.reason}. "
            f"Expected a file of format {self.format}; check the file, or declare the source's columns."
        )


class UnsupportedFileTypeError(InputError, hides_row_values=True):
    """The input has no column of a supported type."""

    def __init__(self, source: str, fields: Sequence[Field]) -> None:
        super().__init__(source, tuple(fields))
        self.source, self.fields = source, fields

    def __str__(self) -> str:
        columns = ", ".join(f"{f.name} {f.type}" for f in self.fields) or "no column"
        return f"source {self.source!r} has no column of a supported type: found {columns}; docs/sql.md lists the types"


def column_objection(field: Field) -> str | None:
    """Why a source cannot have a column of its files, as a clause; None if it can."""
    if not field.name:
        return "its name is empty, so that no statement can name it"
    try:
        unnamed = _has_unnamed_part(arrow_type(field.type))
    except UnsupportedTypeError:
        return f"its type {field.type} is not supported"
    return "a field of its struct has an empty name, which Spark cannot read in a type" if unnamed else None


def _has_unnamed_part(kind: pa.DataType) -> bool:
    parts: tuple[pa.DataType, ...] = ()
    if pa.types.is_struct(kind):
        fields = tuple(kind)
        if any(not field.name for field in fields):
            return True
        parts = tuple(field.type for field in fields)
    elif pa.types.is_map(kind):
        parts = kind.key_type, kind.item_type
    elif pa.types.is_list(kind):
        parts = (kind.value_type,)
    return any(map(_has_unnamed_part, parts))


def parquet_fields(file: BinaryIO, name: str, *, untyped: bool = True) -> tuple[Field, ...]:
    """Return the columns of a Parquet file, with Spark's type names.

    Unsupported types (times of day, nanoseconds that Spark rejects) have Arrow's names.

    Args:
        file: the opened file; only its footer is read.
        name: the file's name in messages.
        untyped: also return columns of the logical type "always null", with their physical type.

    Raises: UnreadableSchemaError.
    """
    try:
        opened = pq.ParquetFile(file, arrow_extensions_enabled=False)
    except (pa.ArrowException, OSError) as err:
        raise UnreadableSchemaError(name, "parquet", str(err).rstrip(".")) from err
    columns, noted = opened.schema, _noted_by_spark(opened.schema_arrow)
    leaves = _Leaves(columns, _variant_columns(columns))
    return tuple(
        Field(f.name, noted.get(f.name) or kind)
        for f, kind in ((f, leaves.type_of(f)) for f in opened.schema_arrow)
        if untyped or not pa.types.is_null(f.type)
    )


def _noted_by_spark(schema: pa.Schema) -> dict[str, str]:
    """Return the intervals and variants in a file that Spark wrote.

    Only Spark's note distinguishes them from other columns.
    """
    note = (schema.metadata or {}).get(_SPARKS_NOTE)
    columns = msgspec.json.decode(note)["fields"] if note is not None else []
    spans = {**dict.fromkeys(INTERVALS, pa.types.is_int64), **dict.fromkeys(MONTH_INTERVALS, pa.types.is_int32)}
    stored = {**spans, "variant": pa.types.is_struct}
    kinds = [(c["name"], c["type"]) for c in columns if isinstance(c["type"], str)]
    return {name: kind for name, kind in kinds if kind in stored and stored[kind](schema.field(name).type)}


def _variant_columns(schema: pq.ParquetSchema) -> frozenset[int]:
    """Return the first columns of the groups that are annotated as variants.

    pyarrow shows annotations of groups only in the schema's text: one line per node; lines of columns end in a
    semicolon.
    """
    lines, first_columns, column = str(schema).splitlines()[2:], set[int](), 0
    for line, following in pairwise(lines):
        if _VARIANT.search(line) and following.endswith(";"):
            first_columns.add(column)
        column += line.endswith(";")
    return frozenset(first_columns)


class _Leaves:
    """Spark's names for the types of a file's columns.

    Each leaf of an Arrow type is a column of the file, in the same order. The column has the file's physical and
    logical types, which Arrow's type may not show.
    """

    def __init__(self, schema: pq.ParquetSchema, variants: frozenset[int]) -> None:
        self._columns = [schema.column(i) for i in range(len(schema))]
        self._variants, self._at, self._next = variants, 0, 0

    def type_of(self, column: pa.Field) -> str:
        """Return the type that Spark reads a column as; Arrow's type name if it is unsupported.

        Requires: called for each column in order.
        """
        self._at, self._next = self._next, self._next + leaf_count(column.type)
        try:
            return self._spark_type(column.type)
        except UnsupportedTypeError:
            return str(column.type)

    def _spark_type(self, kind: pa.DataType) -> str:
        """Name the type whose leaves begin at `_at`, and move `_at` past them. Raises UnsupportedTypeError."""
        if pa.types.is_struct(kind) and kind.num_fields:
            if self._at in self._variants and not pa.types.is_nested(kind.field(0).type):
                self._at += leaf_count(kind)
                return "variant"
            return struct_name([(field.name, self._spark_type(field.type)) for field in kind])
        if pa.types.is_map(kind):
            return map_name(self._spark_type(kind.key_type), self._spark_type(kind.item_type))
        if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            return array_name(self._spark_type(kind.value_type))
        self._at += 1
        return _leaf_type(kind, self._columns[self._at - 1])


def leaf_count(kind: pa.DataType) -> int:
    """Return the number of a file's columns that a column of this type occupies."""
    if pa.types.is_dictionary(kind):
        return leaf_count(kind.value_type)
    return sum(leaf_count(kind.field(i).type) for i in range(kind.num_fields)) if pa.types.is_nested(kind) else 1


def _leaf_type(kind: pa.DataType, leaf: pq.ColumnSchema) -> str:
    """Return the type that Spark reads a column without inner columns as. Raises UnsupportedTypeError."""
    if pa.types.is_dictionary(kind):  # written from a categorical; the file contains plain values
        kind = kind.value_type
    logical = str(leaf.logical_type)
    if logical == "UUID" or leaf.converted_type == "INTERVAL":  # bytes in Arrow; Spark rejects them
        raise UnsupportedTypeError(logical)
    if pa.types.is_null(kind):
        return _PHYSICAL[leaf.physical_type]
    if logical in ("Enum", "JSON"):
        return "string"
    if pa.types.is_timestamp(kind) and leaf.physical_type == "INT96":  # local times in Arrow, instants in Spark
        return "timestamp"
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_duration(kind):  # Arrow's own note on a plain number; Spark ignores it
        return "bigint"
    if pa.types.is_time(kind):  # Spark reads only local times in microseconds
        if kind == pa.time64("us") and "isAdjustedToUTC=false" in logical:
            return "time(6)"
        raise UnsupportedTypeError(str(kind))
    return _WIDENED.get(kind) or type_name(kind)
