"""The types of columns: Spark's names in plans and catalogs, Arrow's types in memory, one to one.

A plan, a catalog and a storage footer name a type by Spark's `catalogString` (`bigint`, `decimal(10,2)`, `array<struct<a:int,b:string>>`),
which is short, printable and stable; Arrow tables carry the type itself. In one thing the names differ from Spark's: a field of a struct
whose name is no plain word is quoted (``struct<`a b`:int>``), so that every name can be read back, by us and as Spark's DDL.

Of a nested type one Arrow type stands for all: its elements, fields and values may be NULL, and the element of a list is called `item`.
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
#: A variant as Spark hands it to Arrow: its encoded value, and the names in it. That its fields are never NULL tells it from other structs.
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
#: Intervals of days to seconds: one kind of value, microseconds; which units one names decides how Spark writes it as text.
INTERVALS = tuple(f"interval {u}" for u in _UNITS) + tuple(
    f"interval {a} to {b}" for i, a in enumerate(_UNITS) for b in _UNITS[i + 1 :]
)
#: Intervals of years and months: one kind of value too, months, however Spark writes it.
MONTH_INTERVALS = ("interval year", "interval month", "interval year to month")
#: What holds them here, a count of months, and what users have them in; see statestore/months.py.
MONTHS, GIVEN_MONTHS = pa.duration("s"), pa.month_day_nano_interval()
#: Times of day: nanoseconds since midnight; the digits of a second decide how Spark writes one as text.
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
    """A type that no state table can hold yet."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return f"type {self.found} is not supported; supported are {_SHOWN}. Cast the column to one of them."


@lru_cache(maxsize=4096)
def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a type name, e.g. `bigint` -> int64. Raises UnsupportedTypeError."""
    parser = _Parser(name)
    kind = parser.type()
    parser.end()
    return kind


def type_name(arrow: pa.DataType) -> str:
    """The type name of an Arrow type; the inverse of `arrow_type`, also of types as users have them. Raises UnsupportedTypeError."""
    if (name := _NAMES.get(arrow)) is not None:
        return name
    if pa.types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return array_name(type_name(arrow.value_type))
    if pa.types.is_map(arrow):
        return map_name(type_name(arrow.key_type), type_name(arrow.item_type))
    if pa.types.is_struct(arrow) and arrow.num_fields:
        return struct_name([(field.name, type_name(field.type)) for field in arrow])
    raise UnsupportedTypeError(str(arrow))


def is_span(kind: pa.DataType) -> bool:
    """Whether values are intervals or times of day: counts of a unit of time, which below SQL are 64-bit integers."""
    return bool(pa.types.is_duration(kind) or pa.types.is_time64(kind))


def holds_variant(kind: pa.DataType) -> bool:
    """Whether values of the type are variants, or hold some."""
    return bool(kind == VARIANT) or any(holds_variant(kind.field(i).type) for i in range(kind.num_fields))


def array_name(element: str) -> str:
    """The name of a type of arrays."""
    return f"array<{element}>"


def map_name(key: str, value: str) -> str:
    """The name of a type of maps."""
    return f"map<{key},{value}>"


def struct_name(fields: Sequence[tuple[str, str]]) -> str:
    """The name of a type of structs, from the names and types of its fields."""
    return f"struct<{','.join(f'{_quoted(name)}:{kind}' for name, kind in fields)}>"


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    """Reads one type name from its start."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def type(self) -> pa.DataType:
        if self._accept("array<"):
            element = self.type()
            self._expect(">")
            return pa.list_(element)
        if self._accept("map<"):
            key = self.type()
            self._expect(",")
            value = self.type()
            self._expect(">")
            return pa.map_(key, value)
        if self._accept("struct<"):
            fields = [self._field()]
            while self._accept(","):
                fields.append(self._field())
            self._expect(">")
            return pa.struct(fields)
        return self._simple()

    def end(self) -> None:
        if self._at < len(self._text):
            raise UnsupportedTypeError(self._text)

    def _field(self) -> pa.Field:
        if (quoted := _QUOTED.match(self._text, self._at)) is not None:
            self._at, name = quoted.end(), quoted[1].replace("``", "`")
        elif (plain := _PLAIN.match(self._text, self._at)) is not None:
            self._at, name = plain.end(), plain[0]
        else:
            raise UnsupportedTypeError(self._text)
        self._expect(":")
        return pa.field(name, self.type())

    def _simple(self) -> pa.DataType:
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
