"""The names in tussock.statestore.types of the types in Spark's plans."""

import re
from typing import TYPE_CHECKING

from tussock.statestore.types import array_name, map_name, struct_name

if TYPE_CHECKING:  # sources import this module also in processes without Spark
    from py4j.java_gateway import JavaObject

_BYTES_ONLY = (
    "string collate UTF8_BINARY"  # from an explicit COLLATE UTF8_BINARY; other columns have no collation in their type
)
_COLLATION = re.compile(r"\bstring collate (\w+)")


def name_of_type(kind: "JavaObject") -> str:
    """The name of a Catalyst DataType, whether or not values of it can be stored.

    `catalogString` alone is ambiguous: it does not quote the field names of a struct, so that a field named `a:int,b`
    reads as two fields.

    Cost: one round trip to the JVM, and several per level of a nested type.
    """
    text: str = kind.catalogString()
    if text.startswith("array<"):
        return array_name(name_of_type(kind.elementType()))
    if text.startswith("map<"):
        return map_name(name_of_type(kind.keyType()), name_of_type(kind.valueType()))
    if text.startswith("struct<"):
        return struct_name([(field.name(), name_of_type(field.dataType())) for field in kind.fields()])
    return "string" if text == _BYTES_ONLY else text


def collation_of(kind: str) -> str | None:
    """The collation in the name of a type or of a type nested in it.

    None for UTF8_BINARY, the only collation that can be stored.
    """
    match = _COLLATION.search(kind)
    return None if match is None else match[1]
