"""Types of Spark's plans by the names of tussock.statestore.types."""

import re
from typing import TYPE_CHECKING

from tussock.statestore.types import array_name, map_name, struct_name

if TYPE_CHECKING:  # sources import this room, also in a process without Spark
    from py4j.java_gateway import JavaObject

_BYTES_ONLY = "string collate UTF8_BINARY"  # as COLLATE UTF8_BINARY says, and no type of a column that says nothing
_COLLATION = re.compile(r"\bstring collate (\w+)")


def name_of_type(kind: "JavaObject") -> str:
    """The name of a Catalyst DataType, whether it can be kept or not. Cost: one round trip to the JVM; some per level of a nested type.

    `catalogString` alone will not do: it writes the fields of a struct as they are, so that one named `a:int,b` reads as two.
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
    """The collation that a type's name, or one within it, has: of those other than UTF8_BINARY, the only one by which values are kept."""
    found = _COLLATION.search(kind)
    return None if found is None else found[1]
