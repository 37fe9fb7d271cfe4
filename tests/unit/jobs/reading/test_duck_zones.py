"""A query by DuckDB is refused if DuckDB has other rules of the store's time zone."""

import pytest

from tests.support.zone_rules import rules_of_python
from tussock.jobs.reading.duck_zones import DuckZoneError, require_same_rules
from tussock.statestore.zones import RuledZone, zone_rules


def test_equal_rules_are_accepted() -> None:
    require_same_rules(rules_of_python("Europe/Zurich").ruled_zone)
    require_same_rules(RuledZone("UTC"))
    require_same_rules(RuledZone("Europe/Zurich"))  # no statement yet


def test_other_rules_are_refused_with_a_day() -> None:
    real = rules_of_python("Europe/Zurich")
    later = zone_rules(real.name, "Java", real.first, [c for c in real.changes if c[0] < 1_792_890_000])
    with pytest.raises(DuckZoneError, match=r"for example on 2026-10-2.*without --duckdb"):
        require_same_rules(later.ruled_zone)
    with pytest.raises(DuckZoneError, match="does not know the time zone Mars/Olympus"):
        require_same_rules(zone_rules("Mars/Olympus", "Java", 0, ()).ruled_zone)
