"""The columns of a Delta table: their types in the log, and their names in files.

The log contains a schema in Spark's JSON. With column mapping, every column and every struct field has a second name,
which files and partition values use. A table may have columns of type void, which have no values. No file contains
them, and Spark's reader omits them, also inside structs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tussock.statestore.types import VARIANT, array_name, arrow_type, map_name, struct_name, type_name

VOID = "void"
NOTE = "__CHAR_VARCHAR_TYPE_STRING"  # in the metadata of a schema's column: its declared type
_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "decimal": "decimal(10,0)"}
_STORED_NAME = "delta.columnMapping.physicalName"


class Mapped(msgspec.Struct, frozen=True):
    """A column of a version, and its name in files and partition values."""

    name: str
    stored: str
    is_partition: bool
    type: str  # the log's type name if the type is unsupported
    stored_type: str  # the type in files: with their names of struct fields, and their type of leaves
    char_note: str = ""  # its declared type if that contains char(n) or varchar(n); see char_padding.py

    def stored_as(self, declared: str) -> str:
        """Return a declared type, a part of the column's type by name, with the names in files.

        Raises UnsupportedTypeError.
        """
        if self.type == self.stored_type:
            return declared
        return type_name(_type_in_files(arrow_type(declared), arrow_type(self.type), arrow_type(self.stored_type)))


def columns_of(schema: Mapping[str, Any], partition_columns: Sequence[str]) -> tuple[Mapped, ...]:
    """Return the columns of a schema in the log."""
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
    """Yield the void fields inside the structs of a schema, as in "s.v"."""
    for field in schema["fields"]:
        if path and field["type"] == VOID:
            yield f"{path}{field['name']}"
        elif isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from void_fields(field["type"], f"{path}{field['name']}.")


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


def _type_in_files(declared: pa.DataType, table: pa.DataType, stored: pa.DataType) -> pa.DataType:
    """Return a declared type with the names of struct fields in files, and with their leaves that differ.

    `stored` has these, at the positions of `table`; fields match by name, ignoring case.
    """
    kinds = pa.types
    if declared == VARIANT:
        return declared
    if kinds.is_struct(declared) and kinds.is_struct(table):
        places = {field.name.lower(): i for i, field in enumerate(table)}
        pairs = [(field, places.get(field.name.lower())) for field in declared]
        return pa.struct(
            [
                f if i is None else pa.field(stored[i].name, _type_in_files(f.type, table[i].type, stored[i].type))
                for f, i in pairs
            ]
        )
    if kinds.is_map(declared) and kinds.is_map(table):
        key = _type_in_files(declared.key_type, table.key_type, stored.key_type)
        return pa.map_(key, _type_in_files(declared.item_type, table.item_type, stored.item_type))
    if kinds.is_list(declared) and kinds.is_list(table):
        return pa.list_(_type_in_files(declared.value_type, table.value_type, stored.value_type))
    return declared if table == stored else stored
