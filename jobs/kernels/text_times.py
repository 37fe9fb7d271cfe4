"""Parse text as dates and times: Cast from string, and to_date, to_timestamp and unix_timestamp with a pattern.

Spark's Cast accepts many unusual texts. This module parses the usual forms as Spark does. A text raises in both modes,
instead of giving NULL, if Spark reads a value that is not supported here: a year before 1, a time of today, or a time
in a zone with a name.
"""

import re
from collections.abc import Sequence

from tussock.jobs.kernels.duck import constant_value, quote_string, strict_cast, try_cast
from tussock.jobs.kernels.registry import constant_args, renders
from tussock.jobs.kernels.zones import instant_of, zone_of
from tussock.jobs.logical.nodes import Call

SPACE = r"[\x00-\x20\x7f]*"  # Spark strips these characters around dates and times
_DATE_YEAR, _TIME_YEAR = "{4,7}", "{4,6}"  # how many digits a year may have
_DAY = r"\+?([0-9]%s)(?:-([0-9]{1,2})(?:-([0-9]{1,2})%s)?)?"
_BEFORE_YEAR_1 = (
    "^"
    + SPACE
    + r"(?:-[0-9]%s|\+?0%s)(?:-(?:0?[1-9]|1[0-2])(?:-(?:0?[1-9]|[12][0-9]|3[01])(?:[ T].*)?)?)?"
    + SPACE
    + "$"
)
_HOUR, _SIXTIETH = "(?:[01]?[0-9]|2[0-3])", "[0-5]?[0-9]"
_SHORT_CLOCK = f"{_HOUR}(?::{_SIXTIETH})?"
_CLOCK = f"{_HOUR}:{_SIXTIETH}:{_SIXTIETH}"
_FRACTION = r"(?:(\.[0-9]{0,6})[0-9]*)?"  # digits beyond microseconds are truncated
_OFFSET = (
    "[+-](?:(?:0?[0-9]|1[0-7])(?::[0-9]|:[0-5][0-9](?::[0-5][0-9])?)?|(?:0[0-9]|1[0-7])[0-5][0-9](?:[0-5][0-9])?"
    "|18(?::0|:00(?::00)?|00(?:00)?)?)"
)
_FIXED_ZONE = f"(?:Z|(?:UTC|GMT|UT)(?:{_OFFSET})?|{_OFFSET})"
_AREAS = (
    "Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Brazil|Canada|Chile|Etc|Europe|Indian|Mexico|Pacific|"
    "SystemV|US"
)
_NAMES = (
    "ACT|AET|AGT|ART|AST|BET|BST|CAT|CET|CNT|CST|CST6CDT|CTT|Cuba|EAT|ECT|EET|EST|EST5EDT|Egypt|Eire|GB|GB-Eire|"
    "GMT0|Greenwich|HST|Hongkong|IET|IST|Iceland|Iran|Israel|JST|Jamaica|Japan|Kwajalein|Libya|MET|MIT|MST|MST7MDT|"
    "NET|NST|NZ|NZ-CHAT|Navajo|PLT|PNT|PRC|PRT|PST|PST8PDT|Poland|Portugal|ROC|ROK|SST|Singapore|Turkey|UCT|"
    "Universal|VST|W-SU|WET|Zulu"
)
_NAMED_ZONE = f"(?:(?:{_AREAS})/[A-Za-z0-9_/+-]+|{_NAMES})"
_BLANKS = r"[\x00-\x20]*"  # around a zone
#: Groups: the day, a clock without seconds, or one with them, its fraction, and a zone.
_TIME = (
    r"\+?([0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2})[ T]"
    f"(?:({_SHORT_CLOCK})|({_CLOCK}){_FRACTION}(?:{_BLANKS}({_FIXED_ZONE}))?)"
)
_IN_NAMED_ZONE = r"\+?[0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2}[ T]" + f"{_CLOCK}{_FRACTION}{_BLANKS}{_NAMED_ZONE}"
_WITHOUT_DAY = f"(?:T{_HOUR}|T?{_HOUR}:{_SIXTIETH}|T?{_CLOCK}{_FRACTION}(?:{_BLANKS}(?:{_FIXED_ZONE}|{_NAMED_ZONE}))?)"
_USUAL_DAY = "^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$"
_USUAL_TIME = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?$"
_USUAL_INSTANT = _USUAL_TIME[:-1] + "(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])$"


def extract_group(sql: str, pattern: str, group: int = 1, space: str = SPACE) -> str:
    """A group of a pattern that must match the whole text; '' if it does not match."""
    return f"regexp_extract({sql}, {quote_string('(?s)^' + space + pattern + space + '$')}, {group})"


def _usual_branch(sql: str, pattern: str, value: str) -> str:
    """The first branch of a CASE, for texts in the usual form.

    DuckDB parses these like Spark, at a tenth of the cost.
    """
    return f"WHEN regexp_matches({sql}, {quote_string(pattern)}) THEN {value}"


def _matches(sql: str, pattern: str) -> str:
    return f"regexp_matches({sql}, {quote_string('(?s)^' + SPACE + pattern + SPACE + '$')})"


def _guard_branch(sql: str, digits: str) -> str:
    """A branch of a CASE for texts that are not supported. `digits`: how many digits a year may have."""
    pattern = "(?s)" + _BEFORE_YEAR_1 % (digits, digits)
    return f"WHEN regexp_matches({sql}, {quote_string(pattern)}) THEN error('years before 1 are not supported')"


def _day_text(sql: str, digits: str, tail: str) -> str:
    """The date `y-m-d` of a text that consists of `y`, `y-m` or `y-m-d` and `tail`; '' for other texts."""
    pattern = _DAY % (digits, tail)
    year = extract_group(sql, pattern, 1)
    parts = [year, *(f"coalesce(nullif({extract_group(sql, pattern, group)}, ''), '1')" for group in (2, 3))]
    return f"CASE WHEN {year} <> '' THEN concat_ws('-', {', '.join(parts)}) ELSE '' END"


def string_to_date(call: Call, sql: str) -> str:
    """Parse a date. Any text after a blank or T is ignored."""
    text = (
        f"CASE {_usual_branch(sql, _USUAL_DAY, sql)} {_guard_branch(sql, _DATE_YEAR)} "
        f"WHEN {sql} IS NOT NULL THEN {_day_text(sql, _DATE_YEAR, '(?:[ T].*)?')} END"
    )
    return try_cast(text, "date") if call.mode == "TRY" else strict_cast(text, "date")


def string_to_time(call: Call, sql: str) -> str:
    """Parse a TIMESTAMP or TIMESTAMP_NTZ: a day, optionally with a time, and after seconds with an offset.

    TIMESTAMP_NTZ ignores the offset. A time without a day is one of today as a TIMESTAMP, and none as a TIMESTAMP_NTZ.
    """
    convert = try_cast if call.mode == "TRY" else strict_cast
    day = _day_text(sql, _TIME_YEAR, "")
    plain = f"CASE WHEN {extract_group(sql, _TIME, 1)} <> '' THEN {_time_text(sql)} ELSE {day} END"
    local, usual = convert(plain, "timestamp_ntz"), convert(sql, "timestamp_ntz")
    named = f"WHEN {_matches(sql, _IN_NAMED_ZONE)} THEN error('zones with a name are not supported in a text')"
    branches = [_usual_branch(sql, _USUAL_INSTANT, usual), _guard_branch(sql, _TIME_YEAR), named]
    if call.type == "timestamp":
        zone = extract_group(sql, _TIME, 5)
        instant = f"make_timestamptz(epoch_us({local}) - 1000000::BIGINT * ({_offset_seconds(zone)}))"
        parsed = f"make_timestamptz(epoch_us({usual}) - 60000000::BIGINT * {_usual_offset_minutes(sql)})"
        branches[0] = _usual_branch(sql, _USUAL_INSTANT, parsed)
        today = f"WHEN {_matches(sql, _WITHOUT_DAY)} THEN error('times without a day are not supported')"
        branches += [today, f"WHEN {zone} <> '' THEN {instant}"]
        local, usual = instant_of(local, zone_of(call)), instant_of(usual, zone_of(call))
    first = _usual_branch(sql, _USUAL_TIME, usual)
    return f"CASE {first} {' '.join(branches)} WHEN {sql} IS NOT NULL THEN {local} END"


def _time_text(sql: str) -> str:
    """The time `y-m-d h:m:s.f` of a text that matches `_TIME`. Missing minutes and seconds become 0."""
    day, short, whole, fraction = (extract_group(sql, _TIME, group) for group in (1, 2, 3, 4))
    filled = f"{short} || CASE WHEN contains({short}, ':') THEN ':00' ELSE ':00:00' END"
    clock = f"CASE WHEN {short} <> '' THEN {filled} ELSE {whole} || rtrim({fraction}, '.') END"
    return f"({day} || ' ' || {clock})"


def _usual_offset_minutes(sql: str) -> str:
    """The minutes of the offset at the end of a text in the usual form. DuckDB's cast to TIMESTAMP skips the offset."""
    minutes = f"(CAST(left(right({sql}, 5), 2) AS INTEGER) * 60 + CAST(right({sql}, 2) AS INTEGER))"
    signed = f"CASE WHEN left(right({sql}, 6), 1) = '-' THEN -{minutes} ELSE {minutes} END"
    return f"CASE WHEN right({sql}, 1) = 'Z' THEN 0 ELSE {signed} END"


def _offset_seconds(zone: str) -> str:
    """The seconds of a zone like `Z`, `UTC`, `+2`, `+2:00`, `GMT-0230` or `+02:00:30`."""
    offset = f"regexp_replace({zone}, '^(?:UTC|GMT|UT|Z)', '')"
    digits = f"substring({offset}, 2)"
    parts = f"string_split({digits}, ':')"
    in_one = [
        f"CASE WHEN length({digits}) <= 2 THEN {digits} ELSE left({digits}, 2) END",
        f"substring({digits}, 3, 2)",
        f"substring({digits}, 5, 2)",
    ]
    texts = [f"CASE WHEN contains({digits}, ':') THEN {parts}[{i}] ELSE {text} END" for i, text in enumerate(in_one, 1)]
    numbers = [f"CAST(coalesce(nullif({text}, ''), '0') AS INTEGER)" for text in texts]
    seconds = f"{numbers[0]} * 3600 + {numbers[1]} * 60 + {numbers[2]}"
    return f"CASE WHEN {offset} = '' THEN 0 WHEN left({offset}, 1) = '-' THEN -({seconds}) ELSE {seconds} END"


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
