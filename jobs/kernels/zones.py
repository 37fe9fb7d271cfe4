"""Instants and local times.

A TIMESTAMP is an instant; its fields are those of its local time in the pipeline's time zone.

`zone` is the bound node's `timeZoneId`, UTC by default. Local times that a zone skips or repeats convert as in Java: a
skipped time moves forward by the gap, a repeated time is the earlier instant.
"""

from tussock.jobs.kernels.duck import quote
from tussock.jobs.logical.nodes import Call

_UTC = ("UTC", "Etc/UTC", "Z", "GMT")


def zone_of(call: Call) -> str:
    """The time zone of a bound node."""
    return dict(call.params).get("timeZoneId", "UTC")


def is_utc(zone: str) -> bool:
    """Whether the zone's local time equals UTC."""
    return zone in _UTC


def local_of(instant: str, zone: str) -> str:
    """Convert TIMESTAMPTZ text to TIMESTAMP text: the local time in `zone`."""
    if is_utc(zone):
        return f"make_timestamp(epoch_us({instant}))"
    return f"timezone({quote(zone)}, {instant})"


def instant_of(local: str, zone: str) -> str:
    """Convert TIMESTAMP text to TIMESTAMPTZ text: the first instant with this local time in `zone`."""
    if is_utc(zone):
        return f"make_timestamptz(epoch_us({local}))"
    name = quote(zone)
    # The later reading of a repeated hour; a skipped hour moves forward, as in Java.
    instant = f"timezone({name}, {local})"
    # A day earlier, the zone still has the offset from before the change, which gives the earlier reading.
    day = "INTERVAL 24 HOURS"
    earlier = f"({instant} - (timezone({name}, {instant} - {day}) - (timezone({name}, {instant}) - {day})))"
    return f"CASE WHEN timezone({name}, {earlier}) = {local} THEN least({earlier}, {instant}) ELSE {instant} END"


def moved_instant(moved: str, instant: str, zone: str) -> str:
    """The instant with local time `moved`, which was computed from the local time of `instant`.

    In a repeated hour, it is the reading that keeps the offset of `instant`, as in Java's calendar arithmetic.
    """
    if is_utc(zone):
        return instant_of(moved, zone)
    kept = f"make_timestamptz(epoch_us({moved}) - (epoch_us({local_of(instant, zone)}) - epoch_us({instant})))"
    return f"CASE WHEN {local_of(kept, zone)} = {moved} THEN {kept} ELSE {instant_of(moved, zone)} END"


def year_text(local: str) -> str:
    """The year of a date or local time in Spark's format: four digits, with a sign below 0 and above 9999."""
    year = f"year({local})"
    sign = f"CASE WHEN {year} < 0 THEN '-' WHEN {year} > 9999 THEN '+' ELSE '' END"
    digits = f"abs({year})::VARCHAR"
    return f"({sign} || CASE WHEN strlen({digits}) < 4 THEN lpad({digits}, 4, '0') ELSE {digits} END)"
