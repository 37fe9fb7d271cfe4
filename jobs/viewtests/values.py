"""Values of tests of views: from the text of a file to Arrow by the column's type, and back to text.

The type decides the meaning of a text. So `0.40` is an exact decimal, `007` stays a string, and a timestamp without an
offset is a time in the pipeline's time zone. `null`, `~` or nothing is NULL, and in quotes it is a string.
"""

import math
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tussock.jobs.viewtests.document import ViewTestError, WrittenRow, WrittenValue
from tussock.statestore.errors import did_you_mean
from tussock.statestore.months import given_rows
from tussock.statestore.types import MONTHS, VARIANT, arrow_type
from tussock.statestore.zones import name_of, tzinfo_of

Columns = Sequence[tuple[str, str]]  # name and type, as in the catalog

_FLOATS = {".nan": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}
_MONTHS = re.compile(r"([+-]?)(\d+)-(\d{1,2})")
_SPAN = re.compile(r"([+-]?)(\d+) (\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?")


def typed_rows(rows: Sequence[WrittenRow], columns: Columns, time_zone: str) -> pa.Table:
    """Rows as stored, with the columns that any of the rows names, in the order of `columns`.

    Raises: ViewTestError for a column that does not exist, or a value that its type does not have.
    """
    named = named_columns(rows, columns)
    arrays, fields = [], []
    for name, kind in named:
        values = [
            _read_value(cell, kind, time_zone) if (cell := _cell_of(row, name)) is not None else None for row in rows
        ]
        fields.append(pa.field(name, arrow_type(kind)))
        arrays.append(pa.array(values, fields[-1].type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields)) if named else _without_columns(len(rows))


def named_columns(rows: Sequence[WrittenRow], columns: Columns) -> Columns:
    """The columns that any of the rows names. Raises ViewTestError for an unknown one."""
    known = {name.lower() for name, _ in columns}
    column_names = set()
    for row in rows:
        for name, place in row.names.items():
            if name.lower() not in known:
                names = [name for name, _ in columns]
                raise ViewTestError(
                    place, f"the column {name!r}", f"one of {', '.join(names)}", did_you_mean(name, names)
                )
            column_names.add(name.lower())
    return [(name, kind) for name, kind in columns if name.lower() in column_names]


def plain_rows(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Stored rows as tuples of Python values, as users see them."""
    if rows.num_columns == 0:
        return [()] * rows.num_rows
    return list(zip(*(_to_pylist(column) for column in given_rows(rows).columns), strict=True))


def moment_of_value(written: WrittenValue, time_zone: str) -> datetime:
    """The instant of `now`. Raises ViewTestError."""
    moment = _read_value(written, "timestamp", time_zone)
    if not isinstance(moment, datetime):
        raise ViewTestError(written.place, written.describe_value(), "the value of now(), such as 2026-01-03 12:00:00")
    return moment


def text_of_value(value: Any, time_zone: str) -> str:
    """A value as a file of tests contains it, or nearly so."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case float():
            return "NaN" if math.isnan(value) else repr(value)
        case datetime():
            local = value if value.tzinfo is None else value.astimezone(tzinfo_of(time_zone)).replace(tzinfo=None)
            return str(local)
        case pa.MonthDayNano():
            years, months = divmod(abs(value.months), 12)
            return f"{'-' if value.months < 0 else ''}{years}-{months:02}"
        case timedelta():
            span = abs(value)
            clock = (datetime.min + timedelta(seconds=span.seconds, microseconds=span.microseconds)).time()
            return f"{'-' if value < timedelta() else ''}{span.days} {clock}"
        case dict():
            return "{" + ", ".join(f"{k}: {text_of_value(v, time_zone)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(text_of_value(v, time_zone) for v in value) + "]"
        case tuple():  # an entry of a map
            return ": ".join(text_of_value(v, time_zone) for v in value)
        case bytes():
            return "0x" + value.hex().upper()
        case _:
            return str(value)


def _without_columns(rows: int) -> pa.Table:
    return pa.table({"none": pa.nulls(rows)}).select([])


def _cell_of(row: WrittenRow, column: str) -> WrittenValue | None:
    return next((value for name, value in row.values.items() if name.lower() == column.lower()), None)


def _to_pylist(column: pa.ChunkedArray) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):  # a date or an instant outside of Python's years
        return [None if not value.is_valid else str(value.value) for value in column]


# --- from text --------------------------------------------------------------------------------------------------------


def _read_value(written: WrittenValue, kind: str, time_zone: str) -> Any:
    """A value of a type as pyarrow accepts it. Raises ViewTestError."""
    return _convert_value(written, arrow_type(kind), kind, time_zone)


def _convert_value(written: WrittenValue, arrow: pa.DataType, kind: str, time_zone: str) -> Any:
    if written.is_null:
        return None
    if arrow == VARIANT:
        raise ViewTestError(written.place, "a value of type variant", "a column of another type: omit this column")
    if pt.is_list(arrow):
        if written.items is None:
            raise ViewTestError(written.place, written.describe_value(), f"a list of values ({kind})")
        return [_convert_value(item, arrow.value_type, kind, time_zone) for item in written.items]
    if pt.is_map(arrow):
        if written.entries is None:
            raise ViewTestError(written.place, written.describe_value(), f"a mapping ({kind})")
        return [
            (
                _convert_value(key, arrow.key_type, kind, time_zone),
                _convert_value(value, arrow.item_type, kind, time_zone),
            )
            for key, value in written.entries
        ]
    if pt.is_struct(arrow):
        return _read_struct(written, arrow, kind, time_zone)
    if written.text is None:
        raise ViewTestError(written.place, written.describe_value(), f"one value ({kind})")
    return _read_scalar(written, written.text, arrow, kind, time_zone)


def _read_struct(written: WrittenValue, arrow: pa.DataType, kind: str, time_zone: str) -> dict[str, Any]:
    if written.entries is None:
        raise ViewTestError(written.place, written.describe_value(), f"a mapping ({kind})")
    names = {field.name.lower(): field for field in arrow}
    value_by_field: dict[str, Any] = {}
    for key, value in written.entries:
        name = (key.text or "").lower()
        if name not in names:
            known = [field.name for field in arrow]
            raise ViewTestError(
                key.place, f"the field {key.text!r}", f"one of {', '.join(known)}", did_you_mean(name, known)
            )
        value_by_field[names[name].name] = _convert_value(value, names[name].type, kind, time_zone)
    return value_by_field


def _read_scalar(written: WrittenValue, text: str, arrow: pa.DataType, kind: str, time_zone: str) -> Any:
    read, expected = _scalar_reader(written, arrow, time_zone)
    try:
        value = read(text)
        pa.array([value], arrow)  # finds numbers outside of the type
    except (ValueError, OverflowError, InvalidOperation, Base64Error, pa.ArrowInvalid, pa.ArrowTypeError) as err:
        raise ViewTestError(written.place, repr(text), f"{expected} ({kind})") from err
    return value


def _scalar_reader(written: WrittenValue, arrow: pa.DataType, time_zone: str) -> tuple[Callable[[str], Any], str]:
    """The function that reads a scalar's text, and a description of the texts that it accepts."""
    if pt.is_string(arrow):
        return str, "a text"
    if pt.is_boolean(arrow):
        return _parse_boolean, "true or false"
    if pt.is_integer(arrow):
        return _parse_integer, "a whole number within the type's range"
    if pt.is_floating(arrow):
        return _parse_float, "a number, NaN or Infinity"
    if pt.is_decimal(arrow):
        return Decimal, f"a number with at most {arrow.scale} digits after the point and {arrow.precision} in total"
    if pt.is_date(arrow):
        return date.fromisoformat, "a date such as 2026-01-31"
    if pt.is_timestamp(arrow):
        if arrow.tz is None:
            return _parse_local, "a time without an offset, such as 2026-01-31 08:00:00"
        zone = tzinfo_of(time_zone)
        return lambda text: _parse_instant(
            text, zone
        ), f"a time such as 2026-01-31 08:00:00 (in {name_of(time_zone)}) or …+02:00"
    if pt.is_binary(arrow):
        return (
            (b64decode, "base64")
            if written.is_binary
            else (_parse_hex, "bytes such as 0x1F00, or !!binary with base64")
        )
    if arrow == MONTHS:
        return _parse_months, "years and months such as 1-06"
    if pt.is_time(arrow):
        return _parse_time, "a time of day such as 08:00:00"
    return _parse_span, "days and a time such as 1 02:30:00"


def _parse_boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _refuse_text(text)


def _parse_integer(text: str) -> int:
    return int(text.replace("_", "")) if re.fullmatch(r"[+-]?\d[\d_]*", text) else _refuse_text(text)


def _parse_float(text: str) -> float:
    return _FLOATS[text.lower()] if text.lower() in _FLOATS else float(text)


def _parse_local(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is None else _refuse_text(text)


def _parse_instant(text: str, zone: tzinfo) -> datetime:
    moment = datetime.fromisoformat(text)
    return (moment.replace(tzinfo=zone) if moment.tzinfo is None else moment).astimezone(UTC)


def _parse_hex(text: str) -> bytes:
    return bytes.fromhex(text[2:]) if text.lower().startswith("0x") else _refuse_text(text)


def _parse_months(text: str) -> timedelta:
    match = _MONTHS.fullmatch(text) or _refuse_text(text)
    months = int(match[2]) * 12 + int(match[3])
    return timedelta(seconds=-months if match[1] == "-" else months)  # stored as a count, see statestore/types.py


def _parse_span(text: str) -> timedelta:
    match = _SPAN.fullmatch(text) or _refuse_text(text)
    days, hours, minutes, seconds = (int(match[i]) for i in range(2, 6))
    micros = int((match[6] or "0").ljust(6, "0"))
    span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)
    return -span if match[1] == "-" else span


def _parse_time(text: str) -> time:
    match = _TIME.fullmatch(text) or _refuse_text(text)
    return time(int(match[1]), int(match[2]), int(match[3] or 0), int((match[4] or "0").ljust(6, "0")))


def _refuse_text(text: str) -> Any:
    raise ValueError(text)
