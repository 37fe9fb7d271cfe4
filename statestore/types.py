"""The types of columns: Spark's names in plans and catalogs, Arrow's types in memory, one to one.

A plan, a catalog and a storage footer name a type by Spark's `catalogString` (`bigint`, `decimal(10,2)`, `timestamp`), which
is short, printable and stable; Arrow tables carry the type itself.
"""

import re

import pyarrow as pa

from statestore.errors import InputError

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {arrow: name for name, arrow in _SIMPLE.items()}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


class UnsupportedTypeError(InputError):
    """A type that no state table can hold yet."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return f"type {self.found} is not supported; supported are {', '.join(_SIMPLE)} and decimal(p,s). Cast the column to one of them."


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a type name, e.g. `bigint` -> int64. Raises UnsupportedTypeError."""
    if (simple := _SIMPLE.get(name)) is not None:
        return simple
    if (match := _DECIMAL.fullmatch(name)) is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    raise UnsupportedTypeError(name)


def type_name(arrow: pa.DataType) -> str:
    """The type name of an Arrow type; the inverse of `arrow_type`. Raises UnsupportedTypeError."""
    if (name := _NAMES.get(arrow)) is not None:
        return name
    if pa.types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    raise UnsupportedTypeError(str(arrow))
