"""Rules of time zones for tests, from Python's database."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from tussock.statestore.zones import RuledZone, ZoneRules, is_utc, zone_rules

_FIRST, _END = datetime(1800, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_STEP = timedelta(days=10)


@lru_cache
def rules_of_python(name: str) -> ZoneRules:
    """The changes of a zone's offset from 1800 to 2200, found by bisection."""
    zone = ZoneInfo(name)

    def offset(at: datetime) -> int:
        found = at.astimezone(zone).utcoffset()
        assert found is not None
        return round(found.total_seconds())

    changes, at = [], _FIRST
    while at < _END:
        low, high = at, at + _STEP
        if offset(low) != offset(high):
            while high - low > timedelta(seconds=1):
                middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
                low, high = (middle, high) if offset(middle) == offset(at) else (low, middle)
            changes.append((round(high.timestamp()), offset(high)))
        at += _STEP
    return zone_rules(name, "Python", offset(_FIRST), changes)


def ruled_by_python(name: str) -> RuledZone:
    """A zone with the rules of Python's database."""
    return RuledZone(name) if is_utc(name) else rules_of_python(name).ruled_zone
