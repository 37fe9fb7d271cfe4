"""Instants and local times. A TIMESTAMP is an instant; its fields are those of its local time in the pipeline's time zone.

`zone` is the bound node's `timeZoneId`: UTC unless the pipeline says otherwise. Local times that a zone skips or repeats go as in
Java: a skipped one moves forward by the gap, a repeated one is the earlier instant.
"""

from jobs.kernels.duck import quote
from jobs.sql.logical import Call

_UTC = ("UTC", "Etc/UTC", "Z", "GMT")


def zone_of(call: Call) -> str:
    """The time zone that the node was bound with."""
    return dict(call.params).get("timeZoneId", "UTC")


def local_of(instant: str, zone: str) -> str:
    """TIMESTAMPTZ text to TIMESTAMP text: the wall clock of `zone`."""
    if zone in _UTC:
        return f"make_timestamp(epoch_us({instant}))"
    return f"timezone({quote(zone)}, {instant})"


def instant_of(local: str, zone: str) -> str:
    """TIMESTAMP text to TIMESTAMPTZ text: when the wall clock of `zone` shows it, first."""
    if zone in _UTC:
        return f"make_timestamptz(epoch_us({local}))"
    name = quote(zone)
    instant = f"timezone({name}, {local})"  # of a repeated hour, the later; of a skipped one, moved forward as Java does
    # The offset a day earlier is the one before the change, so this is the earlier reading of a repeated hour.
    day = "INTERVAL 24 HOURS"
    earlier = f"({instant} - (timezone({name}, {instant} - {day}) - (timezone({name}, {instant}) - {day})))"
    return f"CASE WHEN timezone({name}, {earlier}) = {local} THEN least({earlier}, {instant}) ELSE {instant} END"
