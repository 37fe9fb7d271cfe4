"""Plain JSON records, one object per line: blocks of lines as columns, without Spark."""

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyarrow import json

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.plain import PIECE_BYTES, PlainTexts, longest_line
from tussock.jobs.sources.plain_values import (
    NotPlain,
    TextForm,
    is_digit,
    is_plain_text_type,
    parse_texts,
    require_finite,
)
from tussock.statestore.decimals import MAX_WIDE_DIGITS, as_decimals
from tussock.statestore.nested import is_nested, rebuild_leaves
from tussock.statestore.types import arrow_type, type_name
from tussock.statestore.vnode import one_array

_OPEN, _CLOSE, _LINE_FEED, _CARRIAGE_RETURN = ord("{"), ord("}"), 10, 13
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
#: Shorter lines stay within Jackson's limits: 1,000 levels, numbers of 1,000 characters, names of 50,000, strings of 20
#: million.
MAX_LINE_BYTES = 1_000
_MAX_LEVELS = 900
_MAX_NAME_BYTES = 10_000
_COLON = re.compile(rb"\s*:")
_LONG_NUMBER = re.compile(rb"[0-9.eE+-]{900}")
#: Words for numbers outside of strings, whose spelling differs between parsers.
_WORD = re.compile(rb"[:\[,]\s*-?(?:NaN|Inf(?:inity)?)\s*[,}\]]")
#: Zero with a sign: -0.0 for Arrow, 0.0 for Spark if a column has floats.
_NEGATIVE_ZERO = re.compile(rb"-0(?![.0-9eE])")
#: Longer numbers may need more digits than 256 bits have, with a decimal's scale and an exponent. Arrow's reader does
#: not notice that.
_MAX_NUMBER, _MAX_NUMBER_WITH_EXPONENT = 38, 28
_OF_NUMBERS = b"0123456789.+-eE"
_NUMBER = re.compile(rb"-?[0-9.]+([eE][+-]?[0-9]+)?")
_AROUND_NUMBERS = b' \t\r\n:,[]}"'
#: The place in Arrow's messages counts from the begin of a piece.
_PLACE = re.compile(r" in row \d+$")
_TEXTS = ("date", "timestamp", "timestamp_ntz")


def is_plain_json_type(kind: pa.DataType) -> bool:
    """Return whether values of a type may be plain."""
    if pa.types.is_map(kind) or pa.types.is_dictionary(kind):
        return False
    if is_nested(kind):
        inner = [kind.field(i).type for i in range(kind.num_fields)]
        return all(is_plain_json_type(one) and not pa.types.is_float32(one) for one in inner)
    return is_plain_text_type(type_name(kind))


def json_columns(block: bytes, fields: Sequence[Field], wanted: Collection[int], form: TextForm) -> list[pa.Array]:
    """Parse whole lines of UTF-8 without NULs and lone carriage returns. Arguments and errors: see `csv_columns`."""
    records = _require_objects(block)
    kinds = [arrow_type(f.type) for f in fields]
    if any(_has_type(kind, pa.types.is_floating) for kind in kinds) and _NEGATIVE_ZERO.search(block):
        raise NotPlain("a number is -0")
    if any(_has_type(kind, pa.types.is_decimal) for kind in kinds):
        _require_few_digits(block, np.frombuffer(block, np.uint8))
    read = _read_table(block, [_as_read(kind) for kind in kinds], fields)
    if read.num_rows != records:
        raise NotPlain("a line has more than one object")
    singles = _read_singles(block, fields, kinds)
    arrays = []
    for c, (field, kind) in enumerate(zip(fields, kinds, strict=True)):
        try:
            values = rebuild_leaves(one_array(read.column(c)), kind, partial(_parse_leaf, name=field.name, form=form))
        except NotPlain as err:
            raise NotPlain(str(err) or f"column {field.name!r} has a number that is not finite") from err
        if c in singles and not values.equals(singles[c]):
            raise NotPlain(f"column {field.name!r} has a number between two floats")
        if c in wanted:
            arrays.append(values)
    return arrays


def _read_table(block: bytes, kinds: Sequence[pa.DataType], fields: Sequence[Field]) -> pa.Table:
    schema = pa.schema([pa.field(f.name, kind) for f, kind in zip(fields, kinds, strict=True)])
    try:
        return json.read_json(
            pa.BufferReader(block),
            json.ReadOptions(block_size=max(PIECE_BYTES, longest_line(block))),
            json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        ).select(list(range(len(fields))))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as err:
        shown = "".join(c if c.isprintable() else "?" for c in str(err).split("\n")[0])
        raise NotPlain(_PLACE.sub("", shown)) from err


def _read_singles(block: bytes, fields: Sequence[Field], kinds: Sequence[pa.DataType]) -> dict[int, pa.Array]:
    """Parse columns with floats of single precision directly, without doubles in between: {column: (records,)}.

    A parser may round once or twice. Where both agree, the value is the same.
    """
    places = [c for c, kind in enumerate(kinds) if pa.types.is_float32(kind)]
    if not places:
        return {}
    read = _read_table(block, [kinds[c] for c in places], [fields[c] for c in places])
    return {c: one_array(read.column(n)) for n, c in enumerate(places)}


def _as_read(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's reader gets: texts for dates and times, doubles for floats, wide decimals."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_read(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_read(kind.value_type))
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        return pa.decimal256(MAX_WIDE_DIGITS, kind.scale)
    return pa.string() if type_name(kind) in _TEXTS else kind


def _parse_leaf(values: pa.Array, kind: pa.DataType, *, name: str, form: TextForm) -> pa.Array:
    if pa.types.is_string(values.type):
        return parse_texts(values, type_name(kind), name, form)
    if pa.types.is_decimal(values.type):
        try:
            values = as_decimals(values, kind)  # Arrow's reader does not compare digits with the precision
        except pa.ArrowInvalid as err:
            raise NotPlain(f"column {name!r} has a value that is not spelled as a plain {type_name(kind)}") from err
    if pa.types.is_floating(values.type):
        require_finite(values)
        values = values.cast(kind, safe=False)
        require_finite(values)
    return values


def _has_type(kind: pa.DataType, is_one: Callable[[pa.DataType], bool]) -> bool:
    if is_nested(kind):
        return any(_has_type(kind.field(i).type, is_one) for i in range(kind.num_fields))
    return is_one(kind)


def _require_objects(block: bytes) -> int:
    """Require that each line that is not empty begins with `{` and ends with `}`. Return the number of these lines.

    Then no object spans lines: after a `}` at the end of a line, a `{` cannot continue the same object.
    """
    codes = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(codes == _LINE_FEED)
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(codes))
    starts = np.concatenate([[0], ends[:-1] + 1])
    last = ends - 1
    returns = (last >= starts) & (codes[np.maximum(last, 0)] == _CARRIAGE_RETURN)
    last = last - returns
    filled = last >= starts
    starts, last = starts[filled], last[filled]
    if not ((codes[starts] == _OPEN).all() and (codes[last] == _CLOSE).all()):
        raise NotPlain("a line is not an object from its first to its last character")
    longest = int((last - starts).max()) if len(starts) else 0
    if longest >= MAX_LINE_BYTES:
        _require_within_limits(block, codes, starts, last)
    if longest > _MAX_NAME_BYTES:
        _require_short_names(block, codes)
    if (b"NaN" in block or b"Inf" in block) and _WORD.search(block):
        raise NotPlain("a number is NaN or an infinity")
    return len(starts)


def _require_few_digits(block: bytes, codes: np.ndarray) -> None:
    """Require that no number, also as a text, may overflow 256 bits at a decimal's scale."""
    edges = np.flatnonzero(np.diff(_are_of(_OF_NUMBERS, codes), prepend=False, append=False))
    starts, ends = edges[0::2], edges[1::2]
    signs = np.flatnonzero((codes | 0x20) == ord("e"))
    signs = signs[is_digit(codes[signs - 1])]
    of = np.searchsorted(starts, signs, side="right") - 1
    is_negative = codes[signs + 1] == ord("-")
    digits = ends[of] - signs - 1 - (is_negative | (codes[signs + 1] == ord("+")))
    is_long = ends - starts > _MAX_NUMBER
    is_long[of] |= (ends - starts)[of] > _MAX_NUMBER_WITH_EXPONENT
    is_long[of] |= digits > np.where(is_negative, 2, 1)
    is_long &= _are_of(_AROUND_NUMBERS, codes[starts - 1]) & _are_of(_AROUND_NUMBERS, codes[ends])
    places = zip(starts[is_long].tolist(), ends[is_long].tolist(), strict=True)  # few: the first number ends the loop
    if any(_NUMBER.fullmatch(block, start, end) for start, end in places):
        raise NotPlain("a number may have more digits than a decimal")


def _are_of(characters: bytes, codes: np.ndarray) -> np.ndarray:
    """Return (bytes,) whether each byte is one of some characters."""
    chosen: np.ndarray = np.isin(np.arange(256), list(characters))
    return np.take(chosen, codes)


def _require_within_limits(block: bytes, codes: np.ndarray, starts: np.ndarray, last: np.ndarray) -> None:
    """Require that long lines are within the limits of Spark's parser, whatever they contain."""
    opens = np.flatnonzero((codes == _OPEN) | (codes == ord("[")))
    if int((np.searchsorted(opens, last) - np.searchsorted(opens, starts)).max()) > _MAX_LEVELS:
        raise NotPlain(f"a line has more than {_MAX_LEVELS} objects and arrays")
    if _LONG_NUMBER.search(block):
        raise NotPlain("a number is longer than 900 characters")


def _require_short_names(block: bytes, codes: np.ndarray) -> None:
    """Require that no name has more than _MAX_NAME_BYTES: no text of this length between two quotes and a colon.

    A quote after a backslash belongs to its string, unless the backslash is escaped itself. Long texts in a block with
    such a place are not plain either.
    """
    quotes = np.flatnonzero(codes == _QUOTE)
    quotes = quotes[codes[quotes - 1] != _BACKSLASH]
    ends = quotes[1:][np.diff(quotes) > _MAX_NAME_BYTES]
    if len(ends) and (b'\\\\"' in block or any(_COLON.match(block, end + 1) for end in ends.tolist())):
        raise NotPlain(f"a name may be longer than {_MAX_NAME_BYTES:,} characters")


class PlainJson(PlainTexts):
    """Reads plain files of JSON lines."""

    def is_plain_type(self, kind: str) -> bool:
        return is_plain_json_type(arrow_type(kind))

    def parse_columns(
        self, source: CreateSource, fields: Sequence[Field], block: bytes, wanted: Sequence[int], form: TextForm
    ) -> list[pa.Array]:
        return json_columns(block, fields, wanted, form)
