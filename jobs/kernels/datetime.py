"""Functions of dates and times. The fields of a TIMESTAMP are the fields of its local time in the node's time zone."""

import re
from collections.abc import Sequence

from tussock.jobs.kernels.duck import constant_value, quote_string, strict_cast
from tussock.jobs.kernels.registry import constant_args, renders
from tussock.jobs.kernels.text_times import parsed_instant, refuse_pattern
from tussock.jobs.kernels.zones import instant_of, local_of, moved_instant, year_text, zone_of
from tussock.jobs.logical.nodes import Call, Literal
from tussock.statestore.zones import is_utc

_DATE_TO_INT = [(("date",), "int")]
_MICROS = {"second": 1_000_000, "milli": 1_000, "micro": 1}
_DAY_MICROS = 86_400_000_000

_DATE_FIELDS = {
    "Year": "year({})",
    "Quarter": "quarter({})",
    "Month": "month({})",
    "DayOfMonth": "day({})",
    "DayOfYear": "dayofyear({})",
    "DayOfWeek": "dayofweek({}) + 1",  # Sunday is 1
    "WeekDay": "isodow({}) - 1",  # Monday is 0
    "WeekOfYear": "weekofyear({})",
    "UnixDate": "({} - DATE '1970-01-01')",
}


def _register_date_field(node: str, template: str) -> None:
    @renders(node, _DATE_TO_INT)
    def render_date_field(call: Call, args: Sequence[str]) -> str:
        return strict_cast(template.format(args[0]), "int")


for _node, _template in _DATE_FIELDS.items():
    _register_date_field(_node, _template)


def _to_local(call: Call, sql: str, place: int = 0) -> str:
    return local_of(sql, zone_of(call)) if call.args[place].type == "timestamp" else sql


def _register_time_field(node: str, function: str) -> None:
    @renders(node, [(("timestamp",), "int"), (("timestamp_ntz",), "int")])
    def render_time_field(call: Call, args: Sequence[str]) -> str:
        return strict_cast(f"{function}({_to_local(call, args[0])})", "int")


for _node, _function in (("Hour", "hour"), ("Minute", "minute"), ("Second", "second")):
    _register_time_field(_node, _function)


# Dates --------------------------------------------------------------------------------------------


@renders("DateAdd", [(("date", "int"), "date")], raises=True)
def date_add(call: Call, args: Sequence[str]) -> str:
    return f"{args[0]} + {args[1]}"


@renders("DateSub", [(("date", "int"), "date")], raises=True)
def date_sub(call: Call, args: Sequence[str]) -> str:
    return f"{args[0]} - {args[1]}"


@renders("DateDiff", [(("date", "date"), "int")])
def date_diff(call: Call, args: Sequence[str]) -> str:
    return strict_cast(f"({args[0]} - {args[1]})", "int")


def _add_months(call: Call, args: Sequence[str]) -> str:
    return strict_cast(
        f"({args[0]} + to_months({args[1]}))", "date"
    )  # a day beyond the month's end becomes its last day


renders("AddMonths", [(("date", "int"), "date")], raises=True)(_add_months)


@renders("DateAddYMInterval", [(("date", "interval months"), "date")], raises=True)
def date_add_months(call: Call, args: Sequence[str]) -> str:
    return _add_months(call, (args[0], strict_cast(args[1], "int")))


@renders("LastDay", [(("date",), "date")])
def last_day(call: Call, args: Sequence[str]) -> str:
    return f"last_day({args[0]})"


_WEEKDAY_NAMES = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")


def _weekday_number(name: object) -> int | None:
    """The number of a weekday (0 is Sunday, as in DuckDB), from its first two or three letters or its whole name."""
    text = str(name).strip().upper()
    return next((i for i, full in enumerate(_WEEKDAY_NAMES) if text in (full, full[:2], full[:3])), None)


def _refuse_weekday(call: Call) -> str | None:
    is_day = isinstance(call.args[1], Literal) and _weekday_number(call.args[1].value) is not None
    return None if is_day else "is supported only with the constant name of a weekday"


@renders("NextDay", [(("date", "string"), "date")], refuse=_refuse_weekday, raises=True)
def next_day(call: Call, args: Sequence[str]) -> str:
    """The first date after the given one that falls on this weekday."""
    wanted = _weekday_number(constant_value(call.args[1]))
    return f"{args[0]} + CAST(1 + ({wanted} + 6 - dayofweek({args[0]})) % 7 AS INTEGER)"


@renders("DateFromUnixDate", [(("int",), "date")], raises=True)
def date_from_unix_date(call: Call, args: Sequence[str]) -> str:
    return f"DATE '1970-01-01' + {args[0]}"


@renders("MakeDate", [(("int", "int", "int"), "date")], raises=True)
def make_date(call: Call, args: Sequence[str]) -> str:
    return f"make_date({', '.join(args)})"


_DATE_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    "week": "week",
}
_TIME_UNITS = {**_DATE_UNITS, "day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second"}
_TIME_UNITS |= {"millisecond": "milliseconds", "microsecond": "microseconds"}


@renders("TruncDate", [(("date", "string"), "date")], refuse=constant_args(1))
def trunc_date(call: Call, args: Sequence[str]) -> str:
    """Uses date arithmetic, because DuckDB's date_trunc converts to timestamps, whose range is much smaller."""
    date = args[0]
    match _DATE_UNITS.get(str(constant_value(call.args[1])).lower()):
        case "year":
            return f"({date} - CAST(dayofyear({date}) - 1 AS INTEGER))"
        case "quarter":
            return f"make_date(year({date}), 3 * quarter({date}) - 2, 1)"
        case "month":
            return f"({date} - CAST(day({date}) - 1 AS INTEGER))"
        case "week":
            return f"({date} - CAST(isodow({date}) - 1 AS INTEGER))"
        case _:
            return "CAST(NULL AS DATE)"


@renders("TruncTimestamp", [(("string", "timestamp"), "timestamp")], refuse=constant_args(0))
def trunc_timestamp(call: Call, args: Sequence[str]) -> str:
    """Truncate to the start of the unit in local time.

    For units within a day, the instant moves back by the local difference, so that a repeated hour is not confused.
    """
    unit = _TIME_UNITS.get(str(constant_value(call.args[0])).lower())
    if unit is None:
        return "CAST(NULL AS TIMESTAMPTZ)"
    zone = zone_of(call)
    local = local_of(args[1], zone)
    if unit in ("year", "quarter", "month", "week", "day"):
        return instant_of(f"date_trunc('{unit}', {local})", zone)
    return f"make_timestamptz(epoch_us({args[1]}) - (epoch_us({local}) - epoch_us(date_trunc('{unit}', {local}))))"


# Instants as numbers ------------------------------------------------------------------------------


def _register_unix(node: str, micros: int) -> None:
    @renders(node, [(("timestamp",), "bigint")])
    def render_unix(call: Call, args: Sequence[str]) -> str:
        return floor_micros(f"epoch_us({args[0]})", micros)


for _node, _unit in (("UnixSeconds", "second"), ("UnixMillis", "milli"), ("UnixMicros", "micro")):
    _register_unix(_node, _MICROS[_unit])


def floor_micros(micros: str, unit: int) -> str:
    """Convert microseconds to a longer unit, rounded down even before 1970."""
    return micros if unit == 1 else f"({micros} - ((({micros} % {unit}) + {unit}) % {unit})) // {unit}"


def _refuse_unix_timestamp(call: Call) -> str | None:
    return refuse_pattern(call) if call.args[0].type == "string" else None  # the pattern applies to text only


@renders(
    "UnixTimestamp",
    [((t, "string"), "bigint") for t in ("timestamp", "date", "string")],
    refuse=_refuse_unix_timestamp,
    raises=True,
)
def unix_timestamp(call: Call, args: Sequence[str]) -> str:
    if call.args[0].type == "string":
        return f"epoch_us({parsed_instant(call, args[0])}) // {_MICROS['second']}"
    instant = (
        args[0]
        if call.args[0].type == "timestamp"
        else instant_of(strict_cast(args[0], "timestamp_ntz"), zone_of(call))
    )
    return f"epoch_us({instant}) // {_MICROS['second']}"  # truncates, unlike unix_seconds


def _register_from_unix(node: str, micros: int) -> None:
    @renders(node, [(("bigint",), "timestamp"), (("int",), "timestamp")], raises=True)
    def from_unix(call: Call, args: Sequence[str]) -> str:
        return f"make_timestamptz({strict_cast(args[0], 'bigint')} * {micros}::BIGINT)"


for _node, _unit in (("SecondsToTimestamp", "second"), ("MillisToTimestamp", "milli"), ("MicrosToTimestamp", "micro")):
    _register_from_unix(_node, _MICROS[_unit])


# Intervals ----------------------------------------------------------------------------------------


@renders("TimestampAddInterval", [((t, "interval micros"), t) for t in ("timestamp", "timestamp_ntz")], raises=True)
def timestamp_add_interval(call: Call, args: Sequence[str]) -> str:
    """Whole days move the wall clock, the rest moves the instant, because a day is not always 24 hours long."""
    if call.type == "timestamp_ntz":
        return f"make_timestamp(epoch_us({args[0]}) + {args[1]})"
    zone = zone_of(call)
    if is_utc(zone):
        return f"make_timestamptz(epoch_us({args[0]}) + {args[1]})"
    days = f"({args[1]} // {_DAY_MICROS})"
    moved = f"({local_of(args[0], zone)} + to_days(CAST({days} AS INTEGER)))"
    return f"make_timestamptz(epoch_us({moved_instant(moved, args[0], zone)}) + {args[1]} - {days} * {_DAY_MICROS})"


@renders("TimestampAddYMInterval", [((t, "interval months"), t) for t in ("timestamp", "timestamp_ntz")], raises=True)
def timestamp_add_months(call: Call, args: Sequence[str]) -> str:
    moved = f"({_to_local(call, args[0])} + to_months({strict_cast(args[1], 'int')}))"
    return moved_instant(moved, args[0], zone_of(call)) if call.type == "timestamp" else moved


_LENGTHS = {"MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000}
_LENGTHS |= {"DAY": _DAY_MICROS, "DAYOFYEAR": _DAY_MICROS, "WEEK": 7 * _DAY_MICROS}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _unit_of(call: Call) -> str:
    return dict(call.params).get("unit", "").upper()


def _refuse_unit(call: Call) -> str | None:
    unit = _unit_of(call)
    return (
        None
        if unit in _LENGTHS or unit in _MONTHS
        else f"is supported only with the units {', '.join([*_LENGTHS, *_MONTHS])}"
    )


@renders("TimestampDiff", [(("timestamp", "timestamp"), "bigint")], refuse=_refuse_unit, params=("unit",))
def timestamp_diff(call: Call, args: Sequence[str]) -> str:
    """The number of whole units between two wall-clock times, truncated toward zero."""
    start, end = (_to_local(call, sql, place) for place, sql in enumerate(args))
    if (length := _LENGTHS.get(_unit_of(call))) is not None:
        return f"(epoch_us({end}) - epoch_us({start})) // {length}"
    return f"{_whole_months(start, end)} // {_MONTHS[_unit_of(call)]}"


def _whole_months(start: str, end: str) -> str:
    """The number of whole months between two local times, truncated toward zero, as Java counts them.

    The end's date moves by a day toward the start if its time of day is not yet reached. Then the number of months is
    that of whole 32s in the difference of `32 * months + day`, since days of a month differ by less than 32. DuckDB's
    datesub differs: from January 31 to February 28, it counts a month.
    """
    (first, begin), (last, until) = ((strict_cast(at, "date"), f"CAST({at} AS TIME)") for at in (start, end))
    moved = (
        f"({last} + CASE WHEN {last} > {first} AND {until} < {begin} THEN -1"
        f" WHEN {last} < {first} AND {until} > {begin} THEN 1 ELSE 0 END)"
    )
    to, since = (f"((year({d}) * 12 + month({d})) * 32 + day({d}))" for d in (moved, first))
    return f"(({to} - {since}) // 32)"


@renders("TimestampAdd", [(("bigint", "timestamp"), "timestamp")], refuse=_refuse_unit, raises=True, params=("unit",))
def timestamp_add(call: Call, args: Sequence[str]) -> str:
    """Units below a day move the instant; longer units move the wall clock."""
    count, instant = args
    unit = _unit_of(call)
    if (length := _LENGTHS.get(unit, _DAY_MICROS)) < _DAY_MICROS:
        return f"make_timestamptz(epoch_us({instant}) + {count} * {length}::BIGINT)"
    whole = strict_cast(f"({count} * {_MONTHS.get(unit, length // _DAY_MICROS)}::BIGINT)", "int")
    moved = f"({_to_local(call, instant, 1)} + {'to_months' if unit in _MONTHS else 'to_days'}({whole}))"
    return moved_instant(moved, instant, zone_of(call))


# Text ---------------------------------------------------------------------------------------------

# Java's pattern letters and their strftime codes. Other letters, and other repetitions of these, are refused.
_FORMAT = {"MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "hh": "%I", "a": "%p"}
_FORMAT |= {"MMM": "%b", "MMMM": "%B", "E": "%a", "EEE": "%a", "EEEE": "%A", "SSS": "%g", "SSSSSS": "%f", "DDD": "%j"}
_YEAR = "yyyy"
_PATTERN = re.compile(r"([A-Za-z])\1*|[-/:., _]+")


def _refuse_format(call: Call) -> str | None:
    if (reason := constant_args(1)(call)) is not None:
        return reason
    pattern = constant_value(call.args[1])
    if not isinstance(pattern, str):
        return None
    parts = [match[0] for match in _PATTERN.finditer(pattern)]
    unknown = any(part[0].isalpha() and part not in _FORMAT and part != _YEAR for part in parts)
    if unknown or "".join(parts) != pattern:
        return f"is supported only with patterns of {', '.join([_YEAR, *sorted(_FORMAT)])} and -/:., _"
    return None


@renders("DateFormatClass", [(("timestamp", "string"), "string")], refuse=_refuse_format)
def date_format(call: Call, args: Sequence[str]) -> str:
    pattern = constant_value(call.args[1])
    if pattern is None:
        return "CAST(NULL AS VARCHAR)"
    local = _to_local(call, args[0])
    pieces = []
    for years, other in re.findall(f"({_YEAR})|((?:(?!{_YEAR}).)+)", str(pattern)):
        code = "".join(_FORMAT.get(match[0], match[0]) for match in _PATTERN.finditer(other))
        pieces.append(year_text(local) if years else f"strftime({local}, {quote_string(code)})")
    return " || ".join(pieces) if pieces else f"left({strict_cast(local, 'string')}, 0)"


def _register_name(node: str, code: str) -> None:
    @renders(node, [(("date",), "string")])
    def render_name(call: Call, args: Sequence[str]) -> str:
        return f"strftime({args[0]}, '{code}')"


_register_name("DayName", "%a")
_register_name("MonthName", "%b")
