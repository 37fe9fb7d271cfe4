"""Comparisons in which the moment stands beside an expression of the row, with the moment alone on one side.

    datediff(current_date(), d) < 7       days(d) + 7        >  days(moment)
    now() - ts < INTERVAL 7 DAYS          micros(ts) + …     >  micros(moment)
    timestampdiff(HOUR, ts, now()) < 24   micros(ts) + 24 h  >  micros(moment)
    unix_timestamp() - s < 3600           s + 3600           >  seconds(moment)

Days, seconds and microseconds are whole numbers, so what moves to the other side is added there. A sum beyond 64 bits becomes the end of
them at which it left: the moment is far from either. Differences of timestamps are those of wall clocks, as in Spark, so local times are
counted.
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
    """A node of Catalyst that is `minuend - subtrahend`, both counted in one unit."""

    minuend: JavaObject
    subtrahend: JavaObject
    unit: str  # of a TimestampDiff, which cuts its result off to whole ones; else empty


def difference_of(node: JavaObject) -> Subtraction | None:
    """What the node takes from what; None where it is no difference that can be counted."""
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


def counted(node: JavaObject, value: Expr, time_zone: str) -> Expr:
    """An end of the difference `node` as a bigint, in the unit that the difference is counted in."""
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
    """What the difference is compared with, in the unit it is counted in, as a bigint; None where that is no known number.

    A TimestampDiff is cut off toward zero: one below 3 hours is any below 3 · 60 minutes, one of at most 3 any below 4 · 60.
    """
    if not unit:
        if other.type in _WHOLE:
            return comparison, _as_bigint(other)
        if isinstance(other, Literal) and isinstance(other.value, int) and other.type.startswith("interval"):
            return comparison, Literal(other.value, "bigint")
        return None
    if not isinstance(other, Literal) or not isinstance(other.value, int):
        return None
    least = other.value + (comparison in (Comparison.LESS_OR_EQUAL, Comparison.GREATER))  # below it, or from it on
    below = comparison in (Comparison.LESS, Comparison.LESS_OR_EQUAL)
    if least > 0:
        compared, whole = (Comparison.LESS if below else Comparison.GREATER_OR_EQUAL), least
    else:  # of what is cut off toward zero, -1 is the greatest below 0
        compared, whole = (Comparison.LESS_OR_EQUAL if below else Comparison.GREATER), least - 1
    micros = whole * _LENGTHS[unit]
    return (compared, Literal(micros, "bigint")) if _LEAST <= micros <= _MOST else None


def moved_over(end: Expr, by: Expr, adds: bool) -> Expr:
    """`end + by` or `end - by`, both bigint, at most and at least what 64 bits hold; NULL where one of them is."""
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
    """Whether two bigints of this kind have a sum that is one: what was an int, and constants that are no longer."""
    if isinstance(expr, Literal):
        return isinstance(expr.value, int) and abs(expr.value) < 1 << 62
    return isinstance(expr, Call) and expr.node == "Cast" and expr.args[0].type in _WHOLE - {"bigint"}


def _as_bigint(value: Expr) -> Expr:
    if isinstance(value, Literal):
        return Literal(value.value, "bigint")
    return value if value.type == "bigint" else Call("Cast", "bigint", (value,), "ANSI")
