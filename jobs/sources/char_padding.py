"""Columns of type char(n): Spark strings, padded with spaces to n characters.

Spark stores such a column as a string, and its type as a note in the schema. Spark's writers store the spaces. Other
writers may not, so Spark pads the values on read. Longer values stay unchanged, and varchar(n) is an ordinary string.
The rule follows Spark's CharVarcharUtils (spark.sql.readSideCharPadding, true by default), and applies to fields,
elements, keys and values of nested columns.
"""

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.logical.quoting import quote_name
from tussock.statestore.nested import rebuild_leaves
from tussock.statestore.types import VARIANT

_LEAF = re.compile(r"[^<>,()]+(?:\([^)]*\))?")
_CHAR = re.compile(r"char\((\d+)\)")


def pad_column(column: pa.ChunkedArray, note: str, table: pa.DataType | None = None) -> pa.ChunkedArray:
    """Pad a column to the widths of its declared type.

    Args:
        column: strings, or nested values that contain strings.
        note: the declared type in the table's log: `char(5)`, `struct<a:char(5),b:array<varchar(3)>>`.
        table: the type that the note describes. The column may have a subset of the fields of its structs, in any
            order. None: the column's type.

    Raises: LookupError if the note does not describe the type. Cost: one pass over the strings of char types.
    """
    widths = widths_of(column.type, note, column.type if table is None else table)
    if not any(widths):
        return column
    return pa.chunked_array([_pad_chunk(chunk, widths) for chunk in column.chunks], column.type)


def widths_of(kind: pa.DataType, note: str, table: pa.DataType) -> list[int]:
    """Return the width of each leaf of a type, 0 if the leaf is not char(n).

    `note`, `table`: see `pad_column`. Raises LookupError.
    """
    widths, end = _leaf_widths(table, note, 0)
    if end != len(note):
        raise LookupError(f"the schema contains the type {note} for a column of {table}")
    return _choose_widths(kind, table, iter(widths))


def _choose_widths(kind: pa.DataType, table: pa.DataType, widths: Iterator[int]) -> list[int]:
    """Select the widths of the leaves of `kind`; struct fields match by name, ignoring case.

    `widths`: of the leaves of `table`.
    """
    if not pa.types.is_nested(table):
        return [next(widths)]
    inner = [table.field(i) for i in range(table.num_fields)]
    if pa.types.is_map(table):
        inner = [table.key_field, table.item_field]
    if not pa.types.is_struct(table) or table == VARIANT:
        wanted = (
            [kind.key_field, kind.item_field]
            if pa.types.is_map(kind)
            else [kind.field(i) for i in range(kind.num_fields)]
        )
        return [width for k, t in zip(wanted, inner, strict=True) for width in _choose_widths(k.type, t.type, widths)]
    wanted_types = {field.name.lower(): field.type for field in kind}
    widths_by_name = {
        t.name.lower(): _choose_widths(wanted_types.get(t.name.lower(), t.type), t.type, widths) for t in inner
    }
    return [
        width for field in kind for width in widths_by_name.get(field.name.lower(), [0] * _count_leaves(field.type))
    ]


def _count_leaves(kind: pa.DataType) -> int:
    return sum(_count_leaves(kind.field(i).type) for i in range(kind.num_fields)) if pa.types.is_nested(kind) else 1


def _pad_chunk(chunk: pa.Array, widths: list[int]) -> pa.Array:
    left = iter(widths)

    def pad_leaf(values: pa.Array, kind: pa.DataType) -> pa.Array:
        width = next(left)
        return pc.utf8_rpad(values, width=width, padding=" ") if width else values

    return rebuild_leaves(chunk, chunk.type, pad_leaf)


def _leaf_widths(kind: pa.DataType, note: str, at: int) -> tuple[list[int], int]:
    """Return the width of each leaf in the order of `rebuild_leaves`, and the end of the type's note.

    A width is 0 unless char(n).
    """
    if kind == VARIANT:
        return [0] * VARIANT.num_fields, _position_after("variant", note, at)
    if pa.types.is_struct(kind):
        widths, at = [], _position_after("struct<", note, at)
        for n, field in enumerate(kind):
            at = _position_after("," if n else "", note, at)
            named = f"{quote_name(field.name)}:".lower()
            at = _position_after(named if note[at : at + len(named)].lower() == named else f"{field.name}:", note, at)
            inner, at = _leaf_widths(field.type, note, at)
            widths += inner
        return widths, _position_after(">", note, at)
    if pa.types.is_map(kind):
        keys, at = _leaf_widths(kind.key_type, note, _position_after("map<", note, at))
        values, at = _leaf_widths(kind.item_type, note, _position_after(",", note, at))
        return keys + values, _position_after(">", note, at)
    if pa.types.is_list(kind):
        widths, at = _leaf_widths(kind.value_type, note, _position_after("array<", note, at))
        return widths, _position_after(">", note, at)
    if (leaf := _LEAF.match(note, at)) is None:
        raise LookupError(f"the schema contains the type {note}, which cannot be read at character {at + 1}")
    char = _CHAR.fullmatch(leaf[0])
    return [int(char[1]) if char else 0], leaf.end()


def _position_after(text: str, note: str, at: int) -> int:
    if note[at : at + len(text)].lower() != text.lower():
        raise LookupError(f"the schema contains the type {note}, which has no {text!r} at character {at + 1}")
    return at + len(text)
