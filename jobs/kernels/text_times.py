"""Parse text as dates and times: Cast from string, and to_date, to_timestamp and unix_timestamp with a pattern.

Spark's Cast accepts many unusual texts (time zone names, a time without a date). This module parses the usual forms as
Spark does. A text that Spark might parse differently raises in both modes, instead of giving NULL.
"""

import re
from collections.abc import Sequence

from tussock.jobs.kernels.duck import constant_value, quote_string, strict_cast, try_cast
from tussock.jobs.kernels.registry import constant_args, renders
from tussock.jobs.kernels.zones import instant_of, zone_of
from tussock.jobs.logical.nodes import Call

SPACE = r"[\x00-\x20\x7f]*"  # Spark strips these characters around dates and times
_DAY = r"\+?([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})%s)?)?"
_BEFORE_YEAR_1 = "^" + SPACE + r"(?:-[0-9]|\+?0000)"
_CLOCK = r"(?:[01]?[0-9]|2[0-3])(?::[0-5]?[0-9](?::[0-5]?[0-9])?)?"
# Digits beyond microseconds are truncated.
_TIME = r"\+?([0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2})[ T](" + _CLOCK + r")(?:(\.[0-9]{0,6})[0-9]*)?"
_USUAL_DAY = "^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$"
_USUAL_TIME = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?$"
_OFFSET = r"(Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])"
_OTHER_ZONE = r"[ T][^ ]*:.*[A-Za-z+-]|^" + SPACE + r"T?[0-9]{1,2}:"


def _extract_group(sql: str, pattern: str, group: int) -> str:
    return f"regexp_extract({sql}, {quote_string('(?s)^' + SPACE + pattern + SPACE + '$')}, {group})"


def _usual_branch(sql: str, pattern: str, value: str) -> str:
    """The first branch of a CASE, for texts in the usual form.

    DuckDB parses these like Spark, at a tenth of the cost.
    """
    return f"WHEN regexp_matches({sql}, {quote_string(pattern)}) THEN {value}"


def _guard_branch(sql: str) -> str:
    """A branch of a CASE for texts that are not supported."""
    return f"WHEN regexp_matches({sql}, {quote_string(_BEFORE_YEAR_1)}) THEN error('years before 1 are not supported')"


def _day_text(sql: str, tail: str) -> str:
    """The date `y-m-d` of a text that consists of `y`, `y-m` or `y-m-d` and `tail`; '' for other texts."""
    pattern = _DAY % tail
    year = _extract_group(sql, pattern, 1)
    parts = [year, *(f"coalesce(nullif({_extract_group(sql, pattern, group)}, ''), '1')" for group in (2, 3))]
    return f"CASE WHEN {year} <> '' THEN concat_ws('-', {', '.join(parts)}) ELSE '' END"


def string_to_date(call: Call, sql: str) -> str:
    """Parse a date. Any text after a blank or T is ignored."""
    text = (
        f"CASE {_usual_branch(sql, _USUAL_DAY, sql)} {_guard_branch(sql)} "
        f"WHEN {sql} IS NOT NULL THEN {_day_text(sql, '(?:[ T].*)?')} END"
    )
    return try_cast(text, "date") if call.mode == "TRY" else strict_cast(text, "date")


def string_to_time(call: Call, sql: str) -> str:
    """Parse a TIMESTAMP or TIMESTAMP_NTZ: a day, optionally with a time and an offset.

    TIMESTAMP_NTZ ignores the offset.
    """
    convert = try_cast if call.mode == "TRY" else strict_cast
    zoned = _TIME + _OFFSET
    offset = _extract_group(sql, zoned, 4)
    time, day = _time_text(sql, _TIME), _day_text(sql, "[ T]?")
    plain = f"CASE WHEN {_extract_group(sql, _TIME, 1)} <> '' THEN {time} ELSE {day} END"
    local, usual = convert(plain, "timestamp_ntz"), convert(sql, "timestamp_ntz")
    zoned_local = convert(_time_text(sql, zoned), "timestamp_ntz")
    unknown = f"regexp_matches({sql}, {quote_string(_OTHER_ZONE)}) AND {plain} = ''"
    unread = f"WHEN {unknown} THEN error('times without a day, and zones other than Z and +hh:mm, are not supported')"
    if call.type == "timestamp_ntz":
        zoneless, instant = local, zoned_local
    else:
        zoneless, usual = instant_of(local, zone_of(call)), instant_of(usual, zone_of(call))
        seconds = f"CASE WHEN {offset} = 'Z' THEN 0 ELSE {_offset_seconds(offset)} END"
        instant = f"make_timestamptz(epoch_us({zoned_local}) - 1000000::BIGINT * ({seconds}))"
    first = _usual_branch(sql, _USUAL_TIME, usual)
    return (
        f"CASE {first} {_guard_branch(sql)} WHEN {offset} <> '' THEN {instant} {unread} "
        f"WHEN {sql} IS NOT NULL THEN {zoneless} END"
    )


def _time_text(sql: str, pattern: str) -> str:
    """The time `y-m-d h:m:s.f` of a text that matches the pattern. Missing minutes and seconds become 0."""
    clock = _extract_group(sql, pattern, 2)
    filled = (
        f"({clock} || CASE length({clock}) - length(replace({clock}, ':', '')) WHEN 0 THEN ':00:00' "
        "WHEN 1 THEN ':00' ELSE '' END)"
    )
    return f"({_extract_group(sql, pattern, 1)} || ' ' || {filled} || rtrim({_extract_group(sql, pattern, 3)}, '.'))"


def _offset_seconds(offset: str) -> str:
    minutes = f"CAST(substring({offset}, 2, 2) AS INTEGER) * 60 + CAST(substring({offset}, 5, 2) AS INTEGER)"
    return f"({minutes}) * CASE WHEN left({offset}, 1) = '-' THEN -60 ELSE 60 END"


# With a pattern -----------------------------------------------------------------------------------

_FIELDS = {"yyyy": ("y", "[0-9]{4}"), "MM": ("m", "[0-9]{2}"), "dd": ("d", "[0-9]{2}"), "HH": ("H", "[01][0-9]|2[0-3]")}
_FIELDS |= {"mm": ("M", "[0-5][0-9]"), "ss": ("S", "[0-5][0-9]")}
_PIECE = re.compile(r"([A-Za-z])\1*|[-/:., _]+")


def refuse_pattern(call: Call) -> str | None:
    """The reason why the call's pattern is not supported, or None."""
    if (reason := constant_args(1)(call)) is not None:
        return reason
    pattern = constant_value(call.args[1])
    if not isinstance(pattern, str):
        return "is supported only with a pattern"
    pieces = [match[0] for match in _PIECE.finditer(pattern)]
    letters = [piece for piece in pieces if piece[0].isalpha()]
    known = "".join(pieces) == pattern and set(letters) <= set(_FIELDS) and len(set(letters)) == len(letters)
    if not known or not {"yyyy", "MM", "dd"} <= set(letters):
        return (
            "is supported only with patterns of yyyy, MM, dd and optionally HH, mm, ss, each once, separated by -/:., _"
        )
    return None


def _parse_exactly(call: Call, sql: str) -> str:
    """A TIMESTAMP_NTZ from a text that matches the call's pattern exactly.

    Other texts raise, or give NULL in TRY mode.
    """
    pattern, places = "", dict.fromkeys("ymdHMS", "")
    fields = 0
    for match in _PIECE.finditer(str(constant_value(call.args[1]))):
        if match[0] not in _FIELDS:
            pattern += re.escape(match[0])
            continue
        name, digits = _FIELDS[match[0]]
        fields += 1
        pattern += f"({digits})"
        places[name] = f"\\{fields}"
    pattern = f"^{pattern}$"
    clock = ":".join(places[name] or "00" for name in "HMS")
    text = f"{places['y']}-{places['m']}-{places['d']} {clock}"
    year_0 = (
        f"WHEN regexp_extract({sql}, {quote_string(pattern)}, {places['y'][1:]}) = '0000' "
        "THEN error('years before 1 are not supported')"
    )
    searched, replaced = quote_string(pattern), quote_string(text)
    matched = f"WHEN regexp_matches({sql}, {searched}) THEN regexp_replace({sql}, {searched}, {replaced})"
    return strict_cast(f"CASE {year_0} {matched} WHEN {sql} IS NOT NULL THEN '' END", "timestamp_ntz")


@renders(
    "GetTimestamp",
    [(("string", "string"), "timestamp")],
    refuse=refuse_pattern,
    raises=True,
    params=("suggestedFuncOnFail",),
)
def get_timestamp(call: Call, args: Sequence[str]) -> str:
    """to_timestamp with a pattern; also to_date, before its Cast."""
    return instant_of(_parse_exactly(call, args[0]), zone_of(call))


def parsed_instant(call: Call, sql: str) -> str:
    """The instant for unix_timestamp of a text."""
    return instant_of(_parse_exactly(call, sql), zone_of(call))
