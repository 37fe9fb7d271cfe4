"""The columns of an Avro file: its types as Spark's reader converts them. No Spark."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.parquet_schema import UnreadableSchemaError
from tussock.statestore.types import array_name, map_name, struct_name

MAGIC = b"Obj\x01"
_Schema = str | Mapping[str, Any] | Sequence[Any]

_PRIMITIVE = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}


def avro_fields(file: BinaryIO, path: str) -> tuple[Field, ...]:
    """Return the columns of an Avro file. Raises UnreadableSchemaError. Cost: the header of the file."""
    try:
        if file.read(len(MAGIC)) != MAGIC:
            raise UnreadableSchemaError(path, "avro", "it does not begin as an Avro file")
        schema = json.loads(avro_metadata(file)[b"avro.schema"])
        return tuple(_fields_of(schema, {}, schema.get("namespace", "")))
    except (KeyError, ValueError, AttributeError, TypeError, RecursionError) as err:
        raise UnreadableSchemaError(path, "avro", f"its schema is damaged ({err})") from err


def avro_metadata(file: BinaryIO) -> dict[bytes, bytes]:
    """Read the metadata in the header of a file, after its magic bytes."""
    value_by_name: dict[bytes, bytes] = {}
    while count := avro_long(file):
        if count < 0:
            avro_long(file)  # the bytes of the block
        for _ in range(abs(count)):
            name = file.read(avro_long(file) or 0)
            value_by_name[name] = file.read(avro_long(file) or 0)
    return value_by_name


def avro_long(file: BinaryIO) -> int | None:
    """Read a number of variable length in zigzag order; None at the end of the file."""
    number = shift = 0
    while byte := file.read(1):
        number |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return number >> 1 ^ -(number & 1)
        shift += 7
    return None


def _fields_of(record: Mapping[str, Any], named: dict[str, _Schema], space: str) -> Iterator[Field]:
    """The fields of a record. `named`: the named types so far, which later types may refer to."""
    space = _note_name(record, named, space)
    for field in record["fields"]:
        yield Field(field["name"], _type_of(field["type"], named, space))


def _note_name(schema: Mapping[str, Any], named: dict[str, _Schema], space: str) -> str:
    """Note a named type. Returns the namespace of the names inside of it."""
    if "name" not in schema:
        return space
    name = schema["name"]
    space = name.rpartition(".")[0] or schema.get("namespace", space)
    named[f"{space}.{name.rpartition('.')[2]}".lstrip(".")] = schema
    return space


def _type_of(schema: _Schema, named: dict[str, _Schema], space: str) -> str:
    """Spark's type of a schema. Raises KeyError for an unknown name, and RecursionError for a type inside of itself."""
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return _PRIMITIVE[schema]
        return _type_of(named.get(f"{space}.{schema}") or named[schema], named, space)
    if not isinstance(schema, Mapping):
        return _type_of_union(schema, named, space)
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _type_of(kind, named, space)
    if kind == "record":
        return struct_name([(f.name, f.type) for f in _fields_of(schema, named, space)])
    if kind == "array":
        return array_name(_type_of(schema["items"], named, space))
    if kind == "map":
        return map_name("string", _type_of(schema["values"], named, space))
    _note_name(schema, named, space)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    return _LOGICAL.get((kind, logical or "")) or _type_of(kind, named, space)


def _type_of_union(schema: Sequence[Any], named: dict[str, _Schema], space: str) -> str:
    """The type of a union: NULL and one type, numbers of two sizes, or a struct with a member per type."""
    types = [_type_of(member, named, space) for member in schema if member != "null"]
    if len(types) == 1:
        return types[0]
    if sorted(types) == ["bigint", "int"]:
        return "bigint"
    if sorted(types) == ["double", "float"]:
        return "double"
    return struct_name([(f"member{i}", kind) for i, kind in enumerate(types)])
