"""Require UTF-8 strings in input, because kernels rely on it: one invalid byte terminates the whole DuckDB instance."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.sources.errors import BadInsertTextError, BadTextError

_SHOWN_BYTES = 60
# Unicode's table 3-7, over bytes: matched against binary columns, in which a character is a byte
_UTF8 = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]"
    r"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Relabel bytes of any width as strings, unchecked."""
    kinds = pa.types
    if kinds.is_fixed_size_binary(column.type) or kinds.is_binary_view(column.type):
        column = column.cast(pa.binary())
    if kinds.is_binary(column.type) or kinds.is_large_binary(column.type):
        text = pa.string() if kinds.is_binary(column.type) else pa.large_string()
        return pa.chunked_array([chunk.view(text) for chunk in column.chunks], text)
    return column


def first_bad_text(column: pa.ChunkedArray) -> int | None:
    """Return the first row whose string is not UTF-8.

    Cost: one pass over the bytes; if such a row exists, O(log rows) more over parts.
    """
    start = 0
    for chunk in column.chunks:
        if not _is_valid(chunk):
            low, high = 0, len(chunk)  # chunk[:low] is valid, chunk[:high] is not
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _is_valid(chunk.slice(low, middle - low)) else (low, middle)
            return start + low
        start += len(chunk)
    return None


def bad_texts(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.bool_]:
    """Return (rows,) True if a string is not UTF-8, at any depth.

    Cost: one pass over the bytes, two over chunks with such a string.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    masks = [np.zeros(len(c), np.bool_) if _is_valid(c) else _bad_in(c) for c in chunks]
    return np.concatenate([np.zeros(0, np.bool_), *masks])


def _bad_in(chunk: pa.Array) -> npt.NDArray[np.bool_]:
    """See `bad_texts`; for a chunk with at least one such string."""
    if pa.types.is_string(chunk.type):
        fits = pc.match_substring_regex(chunk.view(pa.binary()), _UTF8)
        is_bad: npt.NDArray[np.bool_] = ~pc.fill_null(fits, True).to_numpy(zero_copy_only=False)
        return is_bad
    if len(chunk) == 1:
        return np.ones(1, np.bool_)
    half = len(chunk) // 2  # nested: a few binary searches
    return np.concatenate([bad_texts(chunk.slice(0, half)), bad_texts(chunk.slice(half))])


def with_shown_bytes(column: pa.Array) -> pa.Array:
    """Show the bytes of strings that are not UTF-8 as \\xNN.

    Cost: as `bad_texts`, and one Python call per such string.
    """
    bad = bad_texts(column)
    if not bad.any():
        return column
    shown = [text.as_buffer().to_pybytes().decode(errors="backslashreplace") for text in column.filter(pa.array(bad))]
    return pc.replace_with_mask(column, pa.array(bad), pa.array(shown, pa.string()))


def with_shown_texts(rows: pa.Table) -> pa.Table:
    """Show the bytes of strings that are not UTF-8 as \\xNN, at any depth, so that rows can be printed.

    Cost: one pass over the bytes; Python calls per row in a nested column with such a string.
    """
    for i, (field, column) in enumerate(zip(rows.schema, rows.columns, strict=True)):
        if (pa.types.is_string(field.type) or pa.types.is_nested(field.type)) and bad_texts(column).any():
            shown = _nested_with_shown_bytes if pa.types.is_nested(field.type) else with_shown_bytes
            rows = rows.set_column(i, field, pa.chunked_array([shown(chunk) for chunk in column.chunks], field.type))
    return rows


def _nested_with_shown_bytes(column: pa.Array) -> pa.Array:
    values = column.view(_with_bytes(column.type)).to_pylist()
    return pa.array([_decode_value(value, column.type) for value in values], column.type)


def _with_bytes(kind: pa.DataType) -> pa.DataType:
    """The type with bytes in place of strings."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_bytes(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field.with_type(_with_bytes(kind.key_type)), _with_bytes(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_bytes(kind.value_type)))
    return pa.binary() if pa.types.is_string(kind) else kind


def _decode_value(value: Any, kind: pa.DataType) -> Any:
    """A value of the type `kind` from the same value with bytes in place of strings."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value.decode(errors="backslashreplace")
    if pa.types.is_struct(kind):
        return {field.name: _decode_value(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(_decode_value(key, kind.key_type), _decode_value(item, kind.item_type)) for key, item in value]
    if pa.types.is_list(kind):
        return [_decode_value(item, kind.value_type) for item in value]
    return value


def require_text(path: str, name: str, column: pa.ChunkedArray, first_record: int) -> None:
    """Raise BadTextError if a string of the column `name` is not UTF-8.

    `first_record`: number of the first row, from 1.
    """
    if (row := first_bad_text(column)) is not None:
        raise BadTextError(path, first_record + row, name, shown_bytes(column[row]))


def require_insert_text(table: str, rows: pa.Table) -> None:
    """Raise BadInsertTextError if a string of an INSERT is not UTF-8."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if (pa.types.is_string(column.type) or pa.types.is_nested(column.type)) and (
            row := first_bad_text(column)
        ) is not None:
            raise BadInsertTextError(table, row + 1, name, shown_bytes(column[row]))


def shown_bytes(text: pa.Scalar) -> str:
    """Return the first bytes of a string. A nested value cannot be shown, so its type is returned."""
    if pa.types.is_nested(text.type):
        return f"a string inside the {text.type}"
    return repr(text.as_buffer().to_pybytes()[:_SHOWN_BYTES])


def _is_valid(chunk: pa.Array) -> bool:
    try:
        chunk.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
