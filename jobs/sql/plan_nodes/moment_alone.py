"""Rewrite comparisons of the moment and an expression of the row, so that the moment is alone on one side.

    datediff(current_date(), d) < 7       days(d) + 7        >  days(moment)
    now() - ts < INTERVAL 7 DAYS          micros(ts) + …     >  micros(moment)
    timestampdiff(HOUR, ts, now()) < 24   micros(ts) + 24 h  >  micros(moment)
    unix_timestamp() - s < 3600           s + 3600           >  seconds(moment)

Days, seconds and microseconds are whole numbers, so they can be added on the other side. A sum beyond 64 bits is
clamped to the minimum or maximum, from which every moment is far away. As in Spark, differences of timestamps are
differences of wall clocks, so local times are counted.
"""

from dataclasses import dataclass

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.nodes import Call, Comparison, Expr, Literal
from tussock.jobs.sql.moments import micros_or_moment

_MOST, _LEAST = (1 << 63) - 1, -(1 << 63)
_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_DIFFERENCES = frozenset({"DateDiff", "SubtractDates", "SubtractTimestamps", "Subtract", "TimestampDiff"})
_LENGTHS = {"MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000}
_LENGTHS |= {"DAY": 86_400_000_000, "DAYOFYEAR": 86_400_000_000, "WEEK": 604_800_000_000}


@dataclass(frozen=True, slots=True)
class Subtraction:
    """A Catalyst node that is `minuend - subtrahend`, both counted in one unit."""

    minuend: JavaObject
    subtrahend: JavaObject
    unit: str  # of a TimestampDiff, which truncates to whole units; otherwise empty


def difference_of(node: JavaObject) -> Subtraction | None:
    """The operands of a difference. None if the node is not a difference in whole units."""
    name = node.productPrefix()
    if name not in _DIFFERENCES:
        return None
    if name == "TimestampDiff":
        unit = node.unit().upper()
        return Subtraction(node.endTimestamp(), node.startTimestamp(), unit) if unit in _LENGTHS else None
    first, second = node.children().apply(0), node.children().apply(1)
    if name == "Subtract" and node.dataType().catalogString() not in _WHOLE:
        return None
    return Subtraction(first, second, "")


def count_in_unit(node: JavaObject, value: Expr, time_zone: str) -> Expr:
    """An operand of the difference `node` as a bigint, in the unit of the difference."""
    match node.productPrefix():
        case "DateDiff":
            return _as_bigint(Call("UnixDate", "int", (value,)))
        case "Subtract":
            return _as_bigint(value)
        case _:
            if value.type != "timestamp_ntz":
                zone = (("timeZoneId", time_zone),) if value.type == "timestamp" else ()
                value = Call("Cast", "timestamp_ntz", (value,), "ANSI", zone)
            return micros_or_moment(value, "bigint")


def length_of(other: Expr, comparison: Comparison, unit: str) -> tuple[Comparison, Expr] | None:
    """The other side of the comparison, as a bigint in the unit of the difference. None if it is not a known number.

    A TimestampDiff truncates toward zero: less than 3 hours means less than 3 · 60 minutes, at most 3 means less than
    4 · 60.
    """
    if not unit:
        if other.type in _WHOLE:
            return comparison, _as_bigint(other)
        if isinstance(other, Literal) and isinstance(other.value, int) and other.type.startswith("interval"):
            return comparison, Literal(other.value, "bigint")
        return None
    if not isinstance(other, Literal) or not isinstance(other.value, int):
        return None
    least = other.value + (comparison in (Comparison.LESS_OR_EQUAL, Comparison.GREATER))  # compare with < or >= this
    below = comparison in (Comparison.LESS, Comparison.LESS_OR_EQUAL)
    if least > 0:
        compared, whole = (Comparison.LESS if below else Comparison.GREATER_OR_EQUAL), least
    else:  # with truncation toward zero, -1 is the greatest result below 0
        compared, whole = (Comparison.LESS_OR_EQUAL if below else Comparison.GREATER), least - 1
    micros = whole * _LENGTHS[unit]
    return (compared, Literal(micros, "bigint")) if _LEAST <= micros <= _MOST else None


def moved_over(end: Expr, by: Expr, adds: bool) -> Expr:
    """`end + by` or `end - by` of bigints, clamped to 64 bits. NULL if an operand is NULL."""
    node = "Add" if adds else "Subtract"
    if _is_short(end) and _is_short(by):
        return Call(node, "bigint", (end, by), "ANSI")
    zero, most, least = (Literal(n, "bigint") for n in (0, _MOST, _LEAST))
    up, down = ("GreaterThan", "LessThan") if adds else ("LessThan", "GreaterThan")
    whens = (
        Call("IsNull", "boolean", (end,)),
        Literal(None, "bigint"),
        Call(up, "boolean", (by, zero)),
        most,
        Call(down, "boolean", (by, zero)),
        least,
    )
    total = Call(node, "bigint", (end, by), "TRY")
    return Call("Coalesce", "bigint", (total, Call("CaseWhen", "bigint", whens)))


def _is_short(expr: Expr) -> bool:
    """Whether the sum of two such bigints fits: former ints, and constants of similar size."""
    if isinstance(expr, Literal):
        return isinstance(expr.value, int) and abs(expr.value) < 1 << 62
    return isinstance(expr, Call) and expr.node == "Cast" and expr.args[0].type in _WHOLE - {"bigint"}


def _as_bigint(value: Expr) -> Expr:
    if isinstance(value, Literal):
        return Literal(value.value, "bigint")
    return value if value.type == "bigint" else Call("Cast", "bigint", (value,), "ANSI")
