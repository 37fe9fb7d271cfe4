"""Column types: Spark's names in plans and catalogs, Arrow's types in memory, one to one.

A plan, a catalog and a storage footer name a type by Spark's `catalogString` (`bigint`, `decimal(10,2)`,
`array<struct<a:int,b:string>>`), which is short, printable and stable. Arrow tables carry the Arrow type. The names
differ from Spark's in one way: a struct field is quoted unless its name is a plain word (``struct<`a b`:int>``). Every
name can therefore be parsed again, here and as Spark DDL.

Each nested type has exactly one Arrow type: its elements, fields and values are nullable, and a list's element is named
`item`.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from tussock.statestore.errors import InputError

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
#: A variant as Spark exports it to Arrow: the encoded value and its dictionary of names. The non-nullable fields
#: distinguish it from other structs.
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
_SIMPLE["variant"] = VARIANT
_NAMES = {arrow: name for name, arrow in _SIMPLE.items()}
_DURATION, _TIME = pa.duration("us"), pa.time64("ns")
_UNITS = ("day", "hour", "minute", "second")
#: Intervals of days to seconds are all stored as microseconds. The units in the name determine how Spark prints them.
INTERVALS = tuple(f"interval {u}" for u in _UNITS) + tuple(
    f"interval {a} to {b}" for i, a in enumerate(_UNITS) for b in _UNITS[i + 1 :]
)
#: Intervals of years and months are all stored as months. The units in the name determine how Spark prints them.
MONTH_INTERVALS = ("interval year", "interval month", "interval year to month")
#: The stored type (a count of months) and the type that users see; see statestore/months.py.
MONTHS, GIVEN_MONTHS = pa.duration("s"), pa.month_day_nano_interval()
#: Times of day are nanoseconds since midnight. The digits in the name determine how Spark prints them.
TIMES = tuple(f"time({digits})" for digits in range(7))
_NAMES |= {_DURATION: "interval day to second", MONTHS: "interval year to month", _TIME: "time(6)"}
_SIMPLE |= {
    **dict.fromkeys(INTERVALS, _DURATION),
    **dict.fromkeys(MONTH_INTERVALS, MONTHS),
    **dict.fromkeys(TIMES, _TIME),
}
_SHOWN = f"{', '.join(_NAMES.values())}, decimal(p,s), and array<…>, map<…> and struct<…> of them"
_NAMES[GIVEN_MONTHS] = "interval year to month"
_WORD = re.compile(r"[a-z_][a-z0-9_ ]*(?:\([^)]*\))?")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")


class UnsupportedTypeError(InputError):
    """A column has a type that state tables cannot store."""

    kind: str

    def __str__(self) -> str:
        return f"type {self.kind} is not supported. Supported types: {_SHOWN}. Cast the column to one of them."


@lru_cache(maxsize=4096)
def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a type name, e.g. `bigint` -> int64. Raises UnsupportedTypeError."""
    parser = _Parser(name)
    kind = parser.parse_type()
    parser.require_end()
    return kind


def is_stored_type(name: str) -> bool:
    """Return whether state tables support columns of a type."""
    try:
        arrow_type(name)
    except UnsupportedTypeError:
        return False
    return True


def type_name(arrow: pa.DataType) -> str:
    """Return the name of an Arrow type, stored or as users see it; the inverse of `arrow_type`.

    Raises: UnsupportedTypeError.
    """
    if (name := _NAMES.get(arrow)) is not None:
        return name
    if pa.types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return array_name(type_name(arrow.value_type))
    if pa.types.is_map(arrow):
        return map_name(type_name(arrow.key_type), type_name(arrow.item_type))
    if pa.types.is_struct(arrow):
        return struct_name([(field.name, type_name(field.type)) for field in arrow])
    raise UnsupportedTypeError(str(arrow))


def is_span(kind: pa.DataType) -> bool:
    """Whether a type is an interval or a time of day; the state store treats such values as int64 counts."""
    return bool(pa.types.is_duration(kind) or pa.types.is_time64(kind))


def holds_variant(kind: pa.DataType) -> bool:
    """Whether the type is a variant or contains one."""
    return bool(kind == VARIANT) or any(holds_variant(kind.field(i).type) for i in range(kind.num_fields))


def twice_named(kind: pa.DataType) -> str | None:
    """A name that two fields of one struct in the type have. Spark, DuckDB and Python do not exchange such a struct."""
    fields = [kind.field(i) for i in range(kind.num_fields)]
    names: list[str] = [f.name for f in fields]
    if pa.types.is_struct(kind) and len(set(names)) < len(names):
        return next(name for name in names if names.count(name) > 1)
    return next((name for f in fields if (name := twice_named(f.type)) is not None), None)


def array_name(element: str) -> str:
    """The name of an array type."""
    return f"array<{element}>"


def map_name(key: str, value: str) -> str:
    """The name of a map type."""
    return f"map<{key},{value}>"


def struct_name(fields: Sequence[tuple[str, str]]) -> str:
    """The name of a struct type with these (name, type) fields."""
    return f"struct<{','.join(f'{_quote_name(name)}:{kind}' for name, kind in fields)}>"


def _quote_name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    """A recursive-descent parser for one type name."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def parse_type(self) -> pa.DataType:
        if self._accept("array<"):
            element = self.parse_type()
            self._expect(">")
            return pa.list_(element)
        if self._accept("map<"):
            key = self.parse_type()
            self._expect(",")
            value = self.parse_type()
            self._expect(">")
            return pa.map_(key, value)
        if self._accept("struct<>"):
            return pa.struct([])
        if self._accept("struct<"):
            fields = [self._parse_field()]
            while self._accept(","):
                fields.append(self._parse_field())
            self._expect(">")
            return pa.struct(fields)
        return self._parse_simple()

    def require_end(self) -> None:
        if self._at < len(self._text):
            raise UnsupportedTypeError(self._text)

    def _parse_field(self) -> pa.Field:
        if (quoted := _QUOTED.match(self._text, self._at)) is not None:
            self._at, name = quoted.end(), quoted[1].replace("``", "`")
        elif (plain := _PLAIN.match(self._text, self._at)) is not None:
            self._at, name = plain.end(), plain[0]
        else:
            raise UnsupportedTypeError(self._text)
        self._expect(":")
        return pa.field(name, self.parse_type())

    def _parse_simple(self) -> pa.DataType:
        match = _WORD.match(self._text, self._at)
        word = "" if match is None else match[0]
        self._at += len(word)
        if (simple := _SIMPLE.get(word)) is not None:
            return simple
        if (decimal := _DECIMAL.fullmatch(word)) is not None:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        raise UnsupportedTypeError(self._text)

    def _accept(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise UnsupportedTypeError(self._text)
