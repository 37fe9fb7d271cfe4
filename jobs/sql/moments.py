"""Moments as Spark converts and shifts them in window() and session_window(), by nodes that have kernels."""

from tussock.jobs.logical.nodes import Call, Expr, Literal

_DAY_MICROS = 86_400_000_000


def micros_or_moment(value: Expr, kind: str) -> Expr:
    """PreciseTimestampConversion: microseconds since 1970 (of a local time as if it were UTC), or the reverse."""
    utc = (("timeZoneId", "UTC"),)
    if kind == "bigint":
        instant = Call("Cast", "timestamp", (value,), "ANSI", utc) if value.type == "timestamp_ntz" else value
        return Call("UnixMicros", kind, (instant,))
    instant = Call("MicrosToTimestamp", "timestamp", (value,))
    return Call("Cast", kind, (instant,), "ANSI", utc) if kind == "timestamp_ntz" else instant


def move_moment(moment: Expr, months: int, days: int, micros: int, time_zone: str) -> Expr:
    """A moment plus a calendar interval, part by part: months and days by the wall clock, the rest by the instant.

    So 25 hours are not the same as a day and an hour.
    """
    zone = (("timeZoneId", time_zone),)
    if months:
        moment = Call("TimestampAddYMInterval", moment.type, (moment, Literal(months, "interval month")), None, zone)
    if days:
        moment = Call(
            "TimestampAddInterval", moment.type, (moment, Literal(days * _DAY_MICROS, "interval day")), None, zone
        )
    if micros:
        later = Call("Add", "bigint", (micros_or_moment(moment, "bigint"), Literal(micros, "bigint")), "ANSI")
        moment = micros_or_moment(later, moment.type)
    return moment
