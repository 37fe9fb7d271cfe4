"""Instants and local times. A TIMESTAMP is an instant; its fields are those of its local time in the pipeline's time zone.

`zone` is the bound node's `timeZoneId`: UTC unless the pipeline says otherwise. Local times that a zone skips or repeats go as in
Java: a skipped one moves forward by the gap, a repeated one is the earlier instant.
"""

from tussock.jobs.kernels.duck import quote
from tussock.jobs.logical.nodes import Call

_UTC = ("UTC", "Etc/UTC", "Z", "GMT")


def zone_of(call: Call) -> str:
    """The time zone that the node was bound with."""
    return dict(call.params).get("timeZoneId", "UTC")


def is_utc(zone: str) -> bool:
    """Whether the zone's wall clock is that of instants."""
    return zone in _UTC


def local_of(instant: str, zone: str) -> str:
    """TIMESTAMPTZ text to TIMESTAMP text: the wall clock of `zone`."""
    if is_utc(zone):
        return f"make_timestamp(epoch_us({instant}))"
    return f"timezone({quote(zone)}, {instant})"


def instant_of(local: str, zone: str) -> str:
    """TIMESTAMP text to TIMESTAMPTZ text: when the wall clock of `zone` shows it, first."""
    if is_utc(zone):
        return f"make_timestamptz(epoch_us({local}))"
    name = quote(zone)
    instant = (
        f"timezone({name}, {local})"  # of a repeated hour, the later; of a skipped one, moved forward as Java does
    )
    # The offset a day earlier is the one before the change, so this is the earlier reading of a repeated hour.
    day = "INTERVAL 24 HOURS"
    earlier = f"({instant} - (timezone({name}, {instant} - {day}) - (timezone({name}, {instant}) - {day})))"
    return f"CASE WHEN timezone({name}, {earlier}) = {local} THEN least({earlier}, {instant}) ELSE {instant} END"


def moved_instant(moved: str, instant: str, zone: str) -> str:
    """When the wall clock of `zone` shows `moved`, a local time that was reached from `instant`.

    In a repeated hour it is the reading with the offset of the start, as Java's calendar arithmetic keeps it.
    """
    if is_utc(zone):
        return instant_of(moved, zone)
    kept = f"make_timestamptz(epoch_us({moved}) - (epoch_us({local_of(instant, zone)}) - epoch_us({instant})))"
    return f"CASE WHEN {local_of(kept, zone)} = {moved} THEN {kept} ELSE {instant_of(moved, zone)} END"


def year_text(local: str) -> str:
    """The year of a date or local time as Spark writes it: four digits, with a sign before 0 and beyond 9999."""
    year = f"year({local})"
    sign = f"CASE WHEN {year} < 0 THEN '-' WHEN {year} > 9999 THEN '+' ELSE '' END"
    digits = f"abs({year})::VARCHAR"
    return f"({sign} || CASE WHEN strlen({digits}) < 4 THEN lpad({digits}, 4, '0') ELSE {digits} END)"
