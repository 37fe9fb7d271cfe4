"""Cast, in ANSI and TRY mode: one function per pair of families.

DuckDB's casts round values that Spark truncates, accept texts that Spark refuses, and format some values differently.
The casts that use DuckDB's unchanged were tested to be equal. Text is checked by a pattern first. Spark strips bytes up
to 0x20, and 0x7f, around it.
"""

import unicodedata
from collections.abc import Callable, Sequence

from tussock.jobs.kernels.duck import decimal_of, fail_when, int_range, quote_string, strict_cast, try_cast
from tussock.jobs.kernels.registry import FLOATS, INTEGERS, family_of, renders
from tussock.jobs.kernels.text_times import extract_group, string_to_date, string_to_time
from tussock.jobs.kernels.zones import instant_of, local_of, year_text, zone_of
from tussock.jobs.logical.nodes import Call

_JAVA_SPACE = r"[\x00-\x20]*"  # around floats and decimals
_DOUBLE = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_HEXADECIMAL = r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[dDfF]?"
_MAX_FLOAT_SCALE = 20  # beyond it, digits that Java 17 prints differently could be visible
_OTHER_DIGITS = "".join(chr(c) for c in range(0x80, 0x10000) if unicodedata.decimal(chr(c), None) is not None)
_LAST_EXACT_INTEGER = 2**53
_WHOLE_NUMBER = "decimal(38,0)"
_FLOAT_OVERFLOW = "3.4028235677973366e38::DOUBLE"  # 2^128 - 2^103

_Cast = Callable[[Call, str], str]
_CASTS: dict[tuple[str, str], _Cast] = {}


def _register_casts(sources: Sequence[str], targets: Sequence[str]) -> Callable[[_Cast], _Cast]:
    def register(function: _Cast) -> _Cast:
        _CASTS.update({(s, t): function for s in sources for t in targets if s != t or s == "decimal"})
        return function

    return register


def _plain_cast(call: Call, sql: str) -> str:
    """DuckDB's cast: for a value that does not fit it raises, or in TRY mode returns NULL."""
    return try_cast(sql, call.type) if call.mode == "TRY" else strict_cast(sql, call.type)


# Numbers and booleans ------------------------------------------------------------------------------------------------


@_register_casts(INTEGERS, (*INTEGERS, *FLOATS, "decimal", "string"))
@_register_casts(("float",), ("double",))
@_register_casts(("boolean",), (*INTEGERS, *FLOATS, "string"))
def _render_plain(call: Call, sql: str) -> str:
    return _plain_cast(call, sql)


@_register_casts(("double",), ("float",))
def _double_to_float(call: Call, sql: str) -> str:
    """Values beyond the greatest float plus half a step become infinity. DuckDB would raise."""
    return (
        f"CASE WHEN abs({sql}) >= {_FLOAT_OVERFLOW} AND isfinite({sql}) THEN sign({sql}) * 'inf'::FLOAT "
        f"ELSE {strict_cast(sql, 'float')} END"
    )


@_register_casts(("boolean",), ("decimal",))
def _boolean_to_decimal(call: Call, sql: str) -> str:
    return _plain_cast(call, strict_cast(sql, "int"))


@_register_casts((*INTEGERS, *FLOATS, "decimal"), ("boolean",))
def _number_to_boolean(call: Call, sql: str) -> str:
    return f"{sql} <> 0"  # NaN is true


@_register_casts(FLOATS, INTEGERS)
def _float_to_integer(call: Call, sql: str) -> str:
    """Truncate. The double 2^63, just above the range of bigint, saturates in Spark instead of raising."""
    truncated = _plain_cast(call, f"trunc({sql})")
    if call.type == "bigint":
        return f"CASE WHEN {sql} = 9223372036854775808 THEN {int_range('bigint')[1]} ELSE {truncated} END"
    return truncated


@_register_casts(("decimal",), INTEGERS)
def _decimal_to_integer(call: Call, sql: str) -> str:
    return _plain_cast(call, f"trunc({sql})")


@_register_casts(("decimal",), ("decimal",))
def _decimal_to_decimal(call: Call, sql: str) -> str:
    return _plain_cast(call, sql)  # HALF_UP


@_register_casts(("decimal",), ("string",))
def _decimal_to_string(call: Call, sql: str) -> str:
    precision, scale = decimal_of(call.args[0].type)
    text = strict_cast(sql, "string")
    # DuckDB omits the zero before the point if the type has no digits there.
    return f"replace({text}, '.', '0.')" if precision == scale else text


@_register_casts(("decimal",), FLOATS)
def _decimal_to_float(call: Call, sql: str) -> str:
    """Correctly rounded: by division while both operands are exact doubles, otherwise through the text."""
    precision, scale = decimal_of(call.args[0].type)
    if call.type == "double" and precision <= 15 and scale <= 22:
        return strict_cast(sql, call.type)
    return strict_cast(strict_cast(sql, "string"), call.type)


@_register_casts(FLOATS, ("decimal",))
def _float_to_decimal(call: Call, sql: str) -> str:
    """Convert the shortest text that represents the double, as Spark does.

    From 2^53 on, versions of Java choose different texts, so a value that may fit raises if the shortest text is not
    its exact value. Each version writes a text that is exact. NaN and infinities are NULL, also in ANSI mode.
    """
    wide, (precision, scale) = strict_cast(sql, "double"), decimal_of(call.type)
    text = strict_cast(wide, "string")
    converted = _plain_cast(call, text)
    if precision - scale < len(str(_LAST_EXACT_INTEGER)):  # all values that fit are smaller
        return f"CASE WHEN isfinite({wide}) THEN {converted} END"
    is_great = f"abs({wide}) >= {_LAST_EXACT_INTEGER}::DOUBLE AND abs({wide}) < 1e{precision - scale}"
    exact, shortest = try_cast(f"TRY_CAST({wide} AS HUGEINT)", _WHOLE_NUMBER), try_cast(text, _WHOLE_NUMBER)
    other = "error('doubles from 2^53 on whose shortest text is not exact are not supported as decimals')"
    return f"CASE WHEN {is_great} AND {exact} <> {shortest} THEN {other} WHEN isfinite({wide}) THEN {converted} END"


# From text -----------------------------------------------------------------------------------------------------------


@_register_casts(("string",), INTEGERS)
def _string_to_integer(call: Call, sql: str) -> str:
    return _plain_cast(call, extract_group(sql, "([+-]?[0-9]+)"))


@_register_casts(("string",), FLOATS)
def _string_to_float(call: Call, sql: str) -> str:
    """Parse a double as Java does, with the suffixes d and f and Spark's words.

    Hexadecimal floats, such as `0x1p3`, are not supported.
    """
    number = extract_group(sql, f"({_DOUBLE})[dDfF]?", space=_JAVA_SPACE)
    word = extract_group(sql, r"((?i)[+-]?inf(?:inity)?|nan)", space=_JAVA_SPACE)
    hexadecimal = f"{extract_group(sql, f'({_HEXADECIMAL})', space=_JAVA_SPACE)} <> ''"
    text = (
        f"CASE WHEN {hexadecimal} THEN error('hexadecimal numbers are not supported') "
        f"WHEN {number} <> '' THEN {number} ELSE {word} END"
    )
    return _plain_cast(call, text)


@_register_casts(("string",), ("binary",))
def _string_to_binary(call: Call, sql: str) -> str:
    return f"encode({sql})"


@_register_casts(("string",), ("decimal",))
def _string_to_decimal(call: Call, sql: str) -> str:
    """Java reads the decimal digits of every script."""
    other, ascii_digits = (
        quote_string(digits) for digits in (_OTHER_DIGITS, "0123456789" * (len(_OTHER_DIGITS) // 10))
    )
    digits = f"CASE WHEN strlen({sql}) = length({sql}) THEN {sql} ELSE translate({sql}, {other}, {ascii_digits}) END"
    return _plain_cast(call, extract_group(digits, f"({_DOUBLE})", space=_JAVA_SPACE))


@_register_casts(("string",), ("boolean",))
def _string_to_boolean(call: Call, sql: str) -> str:
    word = f"lower({extract_group(sql, '([A-Za-z01]+)')})"
    value = (
        f"CASE WHEN {word} IN ('t', 'true', 'y', 'yes', '1') THEN TRUE "
        f"WHEN {word} IN ('f', 'false', 'n', 'no', '0') THEN FALSE END"
    )
    return fail_when(f"{sql} IS NOT NULL AND ({value}) IS NULL", "the text is not a boolean", value, call)


@_register_casts(("string",), ("date",))
def _string_to_date(call: Call, sql: str) -> str:
    return string_to_date(call, sql)


@_register_casts(("string",), ("timestamp", "timestamp_ntz"))
def _string_to_time(call: Call, sql: str) -> str:
    return string_to_time(call, sql)


# Dates and times -----------------------------------------------------------------------------------------------------


@_register_casts(("date",), ("timestamp",))
def _date_to_timestamp(call: Call, sql: str) -> str:
    return instant_of(strict_cast(sql, "timestamp_ntz"), zone_of(call))


@_register_casts(("date",), ("timestamp_ntz",))
@_register_casts(("timestamp_ntz",), ("date",))
def _same_day(call: Call, sql: str) -> str:
    return strict_cast(sql, call.type)


@_register_casts(("timestamp",), ("date", "timestamp_ntz"))
def _timestamp_to_local(call: Call, sql: str) -> str:
    return strict_cast(local_of(sql, zone_of(call)), call.type)


@_register_casts(("timestamp_ntz",), ("timestamp",))
def _local_to_timestamp(call: Call, sql: str) -> str:
    return instant_of(sql, zone_of(call))


@_register_casts(("date", "timestamp", "timestamp_ntz"), ("string",))
def _time_to_string(call: Call, sql: str) -> str:
    """Format a time as `2020-01-31` or `2020-01-31 10:00:00.5`, without trailing zeros in the fraction."""
    local = local_of(sql, zone_of(call)) if call.args[0].type == "timestamp" else sql
    rest = f"strftime({local}, '-%m-%d')"
    if call.args[0].type != "date":
        rest = f"strftime({local}, '-%m-%d %H:%M:%S') || rtrim(rtrim(strftime({local}, '.%f'), '0'), '.')"
    usual = f"{local} >= DATE '0001-01-01' AND {local} < DATE '10000-01-01'"  # DuckDB formats other years differently
    return f"CASE WHEN {usual} THEN {strict_cast(local, 'string')} ELSE {year_text(local)} || {rest} END"


@_register_casts(("timestamp",), ("double",))
def _timestamp_to_double(call: Call, sql: str) -> str:
    return f"epoch_us({sql}) / 1000000::DOUBLE"


@_register_casts(("timestamp",), ("bigint",))
def _timestamp_to_seconds(call: Call, sql: str) -> str:
    micros = f"epoch_us({sql})"
    return f"({micros} - ((({micros} % 1000000) + 1000000) % 1000000)) // 1000000"  # rounds down, even before 1970


@_register_casts(("bigint", "int"), ("timestamp",))
def _seconds_to_timestamp(call: Call, sql: str) -> str:
    """Convert seconds since 1970. Spark saturates if the microseconds overflow 64 bits."""
    low, high = int_range("bigint")
    micros = f"CAST({sql} AS HUGEINT) * 1000000"
    return (
        f"CASE WHEN {sql} IS NOT NULL THEN "
        f"make_timestamptz({strict_cast(f'greatest(least({micros}, {high}), {low})', 'bigint')}) END"
    )


def _cast_shapes() -> list[tuple[tuple[str], str]]:
    return [((source,), target) for source, target in _CASTS]


def _render_cast(call: Call, args: Sequence[str]) -> str:
    return _CASTS[family_of(call.args[0].type), family_of(call.type)](call, args[0])


def _refuse_cast(call: Call) -> str | None:
    if (
        call.args[0].type in FLOATS
        and family_of(call.type) == "decimal"
        and decimal_of(call.type)[1] > _MAX_FLOAT_SCALE
    ):
        return f"is supported only with at most {_MAX_FLOAT_SCALE} digits after the point"
    return None


renders("Cast", _cast_shapes(), refuse=_refuse_cast, raises=True)(_render_cast)
renders("Cast", _cast_shapes(), mode="TRY", refuse=_refuse_cast, raises=True)(_render_cast)
