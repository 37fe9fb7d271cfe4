"""Texts of plain files as values: each function accepts only spellings that Spark's readers parse to the same value.

docs/design/plain-files.md lists the accepted spellings. A text may have another meaning in Spark, be an error there, or
be parsed differently in another release: then it is not plain, and the whole file is left to Spark.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.kernels.zones import convert_micros
from tussock.statestore.decimals import as_decimals
from tussock.statestore.types import arrow_type
from tussock.statestore.zones import instant_micros, is_utc, local_micros

Bytes = npt.NDArray[np.uint8]

_ZERO, _NINE = ord("0"), ord("9")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FIRST_DAY, _LAST_DAY = "1583-01-01", "9999-12-31"  # both calendars agree from 1583 on
_FIRST_TIME = "1900-01-01"  # Spark converts earlier times in some files between calendars
_TIME_DIGITS = (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18)
_DATE_DIGITS = _TIME_DIGITS[:8]
_DATE_BYTES, _TIME_BYTES, _OFFSET_BYTES = 10, 19, 6  # `2013-01-31`, `2013-01-31 05:00:00`, `+01:00`
_MAX_OFFSET_HOURS = 14

#: The words of csv files that Spark reads as floats without an option, and their values. `inf` and `+NaN` are others.
_NOT_FINITE = pa.array(["NaN", "Infinity", "-Infinity", "Inf", "-Inf"])
_VALUES_NOT_FINITE = pa.array([float(word) for word in _NOT_FINITE.to_pylist()], pa.float64())

#: Patterns of the options dateFormat and timestampFormat that are plain, with the character between day and time.
DATE_PATTERN = "yyyy-MM-dd"
TIME_PATTERNS = {"yyyy-MM-dd HH:mm:ss": " ", "yyyy-MM-dd'T'HH:mm:ss": "T"}


class NotPlain(Exception):
    """A file or a part of it is not plain, or not surely: Spark reads the file. The message is the reason."""


@dataclass(frozen=True, slots=True)
class TextForm:
    """The meaning of texts in a source's files.

    Args:
        time_zone: of times without an offset.
        timestamp_pattern, ntz_pattern: one of TIME_PATTERNS; empty: Spark's default.
    """

    time_zone: str = "UTC"
    timestamp_pattern: str = ""
    ntz_pattern: str = ""


def is_known_zone(zone: str) -> bool:
    """Return whether local times of a zone are plain: UTC, or a zone of the tz database by region and city."""
    return is_utc(zone) or "/" in zone


def is_plain_text_type(kind: str) -> bool:
    """Return whether `parse_texts` has spellings for a type (Spark's name)."""
    return kind in (*_INTEGERS, "boolean", "float", "double", "string", "date", "timestamp", "timestamp_ntz") or (
        kind.startswith("decimal(")
    )


def parse_texts(texts: pa.Array, kind: str, name: str, form: TextForm) -> pa.Array:
    """Parse texts as values of a type.

    Args:
        texts: (rows,) string, NULL for NULL.
        kind: a type of `is_plain_text_type`.
        name: the column's, for the reason.

    Returns: (rows,) the type's values.
    Raises: NotPlain. Cost: about two passes over the bytes.
    """
    if kind == "string":
        return texts
    try:
        if kind == "date":
            return parse_dates(texts)
        if kind in ("timestamp", "timestamp_ntz"):
            return parse_times(texts, kind, form)
        if kind in ("float", "double"):
            return _parse_floats(texts, kind)
        return _parse_booleans(texts) if kind == "boolean" else _parse_numbers(texts, kind)
    except (pa.ArrowInvalid, NotPlain) as err:
        raise NotPlain(f"column {name!r} has a value that is not spelled as a plain {kind}") from err


def _parse_floats(texts: pa.Array, kind: str) -> pa.Array:
    """Parse numbers and the words of `_NOT_FINITE`."""
    try:
        return _parse_numbers(texts, kind)
    except NotPlain:
        words = pc.index_in(texts, _NOT_FINITE)  # few files have them, so only such a block is searched
        numbers = _parse_numbers(pc.if_else(words.is_valid(), pa.scalar(None, pa.string()), texts), kind)
        return pc.coalesce(_VALUES_NOT_FINITE.take(words).cast(arrow_type(kind)), numbers)


def _parse_numbers(texts: pa.Array, kind: str) -> pa.Array:
    """Parse numbers of ASCII digits, signs, points and exponents. Words are not plain."""
    codes = _joined_bytes(texts)
    known = is_digit(codes) | (codes == ord("-"))
    if kind not in _INTEGERS:
        known |= codes == ord(".")
    if kind in ("float", "double"):
        known |= (codes == ord("e")) | (codes == ord("E")) | (codes == ord("+"))
    if not known.all():
        raise NotPlain
    if kind.startswith("decimal("):
        return as_decimals(texts, arrow_type(kind))
    values = texts.cast(arrow_type(kind))
    if kind in ("float", "double"):
        require_finite(values)
    return values


def require_finite(values: pa.Array) -> None:
    """Raise NotPlain unless all values are finite numbers or NULL."""
    if pc.all(pc.is_finite(values)).as_py() is False:
        raise NotPlain


def _parse_booleans(texts: pa.Array) -> pa.Array:
    lower = pc.ascii_lower(texts)
    is_true = pc.equal(lower, "true")
    if pc.all(pc.or_(is_true, pc.equal(lower, "false"))).as_py() is False:
        raise NotPlain
    return is_true


def parse_dates(texts: pa.Array) -> pa.Array:
    """Parse `2013-01-31`, from 1583 to 9999."""
    present_texts = texts.drop_null()
    starts, ends = _text_bounds(present_texts)
    if (ends - starts != _DATE_BYTES).any():
        raise NotPlain
    _require_dates(_all_bytes(present_texts), starts)
    days = texts.cast(pa.date32())
    _require_between(days, _FIRST_DAY, _LAST_DAY)
    return days


def parse_times(texts: pa.Array, kind: str, form: TextForm) -> pa.Array:
    """Parse `2013-01-31 05:00:00`, with `T`, 1 to 6 digits after a point, and an offset, or days only.

    Either all texts have an offset (`Z` or `+hh:mm`) or none has. A `timestamp_ntz` has none.
    """
    present_texts = texts.drop_null()
    starts, ends = _text_bounds(present_texts)
    if not len(starts):
        return pa.nulls(len(texts), arrow_type(kind))
    codes, lengths = _all_bytes(present_texts), ends - starts
    pattern = form.timestamp_pattern if kind == "timestamp" else form.ntz_pattern
    days_only = bool((lengths == _DATE_BYTES).all()) and not pattern
    _require_plain(bool(days_only or (lengths >= _TIME_BYTES).all()))
    _require_dates(codes, starts)
    zoned = not days_only and _require_clocks(codes, starts, ends, pattern)
    if pattern:
        _require_plain(bool((lengths == _TIME_BYTES).all()))
    if zoned:
        _require_plain(kind == "timestamp")
        instants = texts.cast(pa.timestamp("us", "UTC"))
        _require_between(instants, _FIRST_TIME, _LAST_DAY)
        return instants
    local = texts.cast(pa.timestamp("us"))
    if kind == "timestamp_ntz":
        _require_between(local, _FIRST_DAY, _LAST_DAY)
        return local
    if is_utc(form.time_zone):
        _require_between(local, _FIRST_TIME, _LAST_DAY)
        return local.cast(pa.timestamp("us", "UTC"))
    _require_between(local, _FIRST_TIME, _LAST_DAY)
    micros = local.cast(pa.int64())
    instants = convert_micros(micros, form.time_zone, instant_micros)
    _require_plain(convert_micros(instants, form.time_zone, local_micros).equals(micros))  # a skipped hour is not plain
    return instants.cast(pa.timestamp("us", "UTC"))


def _require_clocks(codes: Bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], pattern: str) -> bool:
    """Check the clock, the fraction and the offset of times. Returns whether all have an offset. Raises NotPlain."""
    between = codes[starts + 10]
    _require_plain(bool(((between == ord(" ")) | (between == ord("T"))).all()))
    if pattern:
        _require_plain(bool((between == ord(TIME_PATTERNS[pattern])).all()))
    _require_plain(all(bool(is_digit(codes[starts + i]).all()) for i in _TIME_DIGITS[8:]))
    _require_plain(all(bool((codes[starts + i] == ord(":")).all()) for i in (13, 16)))
    of_utc = codes[ends - 1] == ord("Z")
    long = ends - starts >= _TIME_BYTES + _OFFSET_BYTES
    sign = codes[np.where(long, ends - _OFFSET_BYTES, starts)]
    with_offset = long & ((sign == ord("+")) | (sign == ord("-")))
    if with_offset.any():
        at = ends[with_offset] - _OFFSET_BYTES
        _require_plain(bool((codes[at + 3] == ord(":")).all()))
        _require_plain(all(bool(is_digit(codes[at + i]).all()) for i in (1, 2, 4, 5)))
        hours = (codes[at + 1].astype(np.int16) - _ZERO) * 10 + (codes[at + 2] - _ZERO)
        _require_plain(bool((hours <= _MAX_OFFSET_HOURS).all()) and bool((codes[at + 4] <= ord("5")).all()))
    zoned = of_utc | with_offset
    _require_plain(bool(zoned.all() or not zoned.any()))
    fraction = ends - of_utc - with_offset * _OFFSET_BYTES - starts - _TIME_BYTES  # with its point
    _require_plain(bool(((fraction == 0) | ((fraction >= 2) & (fraction <= 7))).all()))
    longer = fraction > 0
    _require_plain(bool((codes[starts[longer] + _TIME_BYTES] == ord(".")).all()))
    for i in range(1, 7):
        there = starts[fraction > i] + _TIME_BYTES + i
        _require_plain(bool(is_digit(codes[there]).all()))
    return bool(zoned.any())


def _require_dates(codes: Bytes, starts: npt.NDArray[np.int64]) -> None:
    _require_plain(all(bool(is_digit(codes[starts + i]).all()) for i in _DATE_DIGITS))
    _require_plain(all(bool((codes[starts + i] == ord("-")).all()) for i in (4, 7)))


def _require_between(values: pa.Array, first: str, last: str) -> None:
    bounds = pc.min_max(values)
    low, high = (pa.scalar(text).cast(pa.date32()).cast(values.type) for text in (first, last))
    if bounds["min"].is_valid:
        _require_plain(pc.greater_equal(bounds["min"], low).as_py() and pc.less_equal(bounds["max"], high).as_py())


def _require_plain(condition: bool) -> None:
    if not condition:
        raise NotPlain


def is_digit(codes: Bytes) -> npt.NDArray[np.bool_]:
    """Return (bytes,) whether each byte is an ASCII digit."""
    return (codes - np.uint8(_ZERO)) <= _NINE - _ZERO


def _all_bytes(texts: pa.Array) -> Bytes:
    """Return the whole buffer of a string column, which `_text_bounds` points into."""
    data = texts.buffers()[2]
    return np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _text_bounds(texts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (rows,) the start and the end of each text in the buffer of `_all_bytes`."""
    if not len(texts):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    places = offsets.astype(np.int64)
    return places[:-1], places[1:]


def _joined_bytes(texts: pa.Array) -> Bytes:
    """Return the bytes of all texts, joined. NULLs have none."""
    present_texts = texts.drop_null()
    starts, ends = _text_bounds(present_texts)
    return _all_bytes(present_texts)[starts[0] : ends[-1]] if len(starts) else np.zeros(0, np.uint8)
