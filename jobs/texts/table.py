"""Tables as text."""

from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo
from typing import Any

import pyarrow as pa

from tussock.jobs.settings.terminal import pad_cell, terminal_width
from tussock.statestore.months import format_given_value, shown_values
from tussock.statestore.types import VARIANT
from tussock.statestore.zones import tzinfo_of

# A line break in a cell would break the table, and an escape sequence would reach the terminal.
_CONTROL = {n: repr(chr(n))[1:-1] for n in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}


def text_table(table: pa.Table, time_zone: str = "UTC") -> str:
    r"""A table as aligned text: one line per row. Numbers are right-aligned; instants are shown in `time_zone` with
    their offset. Control characters are shown as in Python's strings, such as \n.
    """
    columns = zip(table.column_names, cell_texts(table, time_zone), strict=True)
    texts = [
        [text.translate(_CONTROL) for text in (name, *("NULL" if text is None else text for text in column))]
        for name, column in columns
    ]
    right = [
        pa.types.is_integer(f.type) or pa.types.is_floating(f.type) or pa.types.is_decimal(f.type) for f in table.schema
    ]
    return align_cells(zip(*texts, strict=True), right)


def cell_texts(table: pa.Table, time_zone: str) -> list[list[str | None]]:
    """The text of each cell, by column; None for NULL. Instants are in `time_zone`, with their offset."""
    zone = tzinfo_of(time_zone)
    return [
        [None if value is None else _cell_text(value, column.type, zone) for value in shown_values(column)]
        for column in table.columns
    ]


def _cell_text(value: Any, kind: pa.DataType, zone: tzinfo) -> str:
    if isinstance(value, str):  # also for a value that Python lacks
        return value
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return str(_to_zone(value, zone))
    if kind != VARIANT:
        return _value_text(value, zone)
    from pyspark.sql.types import VariantVal  # a slow import that few tables need

    return str(VariantVal(**value))


def _value_text(value: Any, zone: tzinfo) -> str:
    """Format a value as Python does, but a value inside of a struct, an array or a map as in a column of its type."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {_value_text(part, zone)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value_text(part, zone) for part in value) + "]"
    if isinstance(value, tuple) and not isinstance(value, pa.MonthDayNano):  # of a map
        return f"({', '.join(_value_text(part, zone) for part in value)})"
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = _to_zone(value, zone)
    return (
        "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(format_given_value(value))
    )


def _to_zone(instant: datetime, zone: tzinfo) -> datetime:
    """The instant in another time zone, or unchanged if the result exceeds the years that Python supports."""
    try:
        return instant.astimezone(zone)
    except OverflowError:
        return instant


def align_cells(rows: Iterable[Sequence[str]], right: Sequence[bool]) -> str:
    """Aligned lines of cells. The first row is the header; `right` marks the right-aligned columns."""
    lines = list(rows)
    widths = [max(map(terminal_width, column)) for column in zip(*lines, strict=True)]
    shown = ((pad_cell(*cell) for cell in zip(row, widths, right, strict=True)) for row in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in shown)
