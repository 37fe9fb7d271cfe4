"""The columns of a Delta table: their types as the log has them, and the names that files have for them.

The log has a schema in Spark's JSON. With column mapping every column and every field of a struct has a second name, by which files and
partition values have it. A table may hold columns of the type void, which have no values; no file has them, and Spark's reader leaves them
out, also within structs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tussock.statestore.types import (
    VARIANT,
    UnsupportedTypeError,
    array_name,
    arrow_type,
    map_name,
    struct_name,
    type_name,
)

VOID = "void"
NOTE = "__CHAR_VARCHAR_TYPE_STRING"  # in the metadata of a column of a schema: its type as it was declared
_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "decimal": "decimal(10,0)"}
_STORED_NAME = "delta.columnMapping.physicalName"


class Mapped(msgspec.Struct, frozen=True):
    """A column of a version, and the name that files and partition values have for it."""

    name: str
    stored: str
    is_partition: bool
    type: str  # of a type that no table can hold: as the log has it
    stored_type: str  # the type with the names that files have for the fields of structs
    char_note: str = ""  # its declared type if that holds char(n) or varchar(n); jobs/sources/char_padding.py pads it

    def stored_as(self, declared: str) -> str:
        """A declared type, by name a part of the column's, with the names that files have. Raises UnsupportedTypeError."""
        if self.type == self.stored_type:
            return declared
        return type_name(_renamed(arrow_type(declared), arrow_type(self.type), arrow_type(self.stored_type)))


def columns_of(schema: Mapping[str, Any], partition_columns: Sequence[str]) -> tuple[Mapped, ...]:
    """The columns of a schema as the log has it."""
    return tuple(
        Mapped(
            field["name"],
            _stored_name(field),
            field["name"] in partition_columns,
            _type_of(field["type"], stored=False),
            _type_of(field["type"], stored=True),
            field["metadata"].get(NOTE, ""),
        )
        for field in schema["fields"]
    )


def void_fields(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The fields of the type void within the structs of a schema: `s.v`."""
    for field in schema["fields"]:
        if path and field["type"] == VOID:
            yield f"{path}{field['name']}"
        elif isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from void_fields(field["type"], f"{path}{field['name']}.")


def is_kept(kind: str) -> bool:
    """Whether state tables can hold columns of a type."""
    try:
        arrow_type(kind)
    except UnsupportedTypeError:
        return False
    return True


def _stored_name(field: Mapping[str, Any]) -> str:
    return str(field["metadata"].get(_STORED_NAME, field["name"]))


def _type_of(kind: Any, *, stored: bool) -> str:
    if isinstance(kind, str):
        return _NAMES.get(kind, kind).replace(" ", "" if kind.startswith("decimal") else " ")
    if kind["type"] == "struct":
        fields = [field for field in kind["fields"] if field["type"] != VOID]
        return struct_name(
            [(_stored_name(f) if stored else f["name"], _type_of(f["type"], stored=stored)) for f in fields]
        )
    if kind["type"] == "array":
        return array_name(_type_of(kind["elementType"], stored=stored))
    return map_name(_type_of(kind["keyType"], stored=stored), _type_of(kind["valueType"], stored=stored))


def _renamed(declared: pa.DataType, table: pa.DataType, stored: pa.DataType) -> pa.DataType:
    """A type with the names of `stored`, whose fields stand where those of `table` do. Fields go by their names without regard to case."""
    kinds = pa.types
    if declared == VARIANT:
        return declared
    if kinds.is_struct(declared) and kinds.is_struct(table):
        places = {field.name.lower(): i for i, field in enumerate(table)}
        found = [(field, places.get(field.name.lower())) for field in declared]
        return pa.struct(
            [
                f if i is None else pa.field(stored[i].name, _renamed(f.type, table[i].type, stored[i].type))
                for f, i in found
            ]
        )
    if kinds.is_map(declared) and kinds.is_map(table):
        key = _renamed(declared.key_type, table.key_type, stored.key_type)
        return pa.map_(key, _renamed(declared.item_type, table.item_type, stored.item_type))
    if kinds.is_list(declared) and kinds.is_list(table):
        return pa.list_(_renamed(declared.value_type, table.value_type, stored.value_type))
    return declared
