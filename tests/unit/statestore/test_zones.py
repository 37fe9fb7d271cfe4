"""Conversions by recorded rules, against Python's zoneinfo."""

import pickle
import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from tests.support.zone_rules import rules_of_python
from tussock.statestore.zones import (
    NoRulesError,
    RecordedZone,
    YearlyChange,
    different_spans,
    instant_micros,
    local_micros,
    ruled_in,
    rules_of,
    table_of,
    tzinfo_of,
    zone_rules,
)

ZONES = ("Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: As Java has them: the last irregular change of Berlin, then yearly ones.
BERLIN = zone_rules(
    "Europe/Berlin",
    "Java",
    3600,
    ((828_234_000, 7200), (846_378_000, 3600)),
    (
        YearlyChange(3, -1, 7, 3600, "utc", 3600, 3600, 7200),
        YearlyChange(10, -1, 7, 3600, "utc", 3600, 7200, 3600),
    ),
)


def micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def moments(zone: str, seed: int = 7) -> list[datetime]:
    """Instants around each change and at random, from 1900 to 2100."""
    rng = random.Random(seed)
    around = [
        EPOCH + timedelta(seconds=int(at) + by)
        for at in table_of(rules_of_python(zone)).at
        for by in (-5400, -1, 0, 1799)
    ]
    return [*around, *(EPOCH + timedelta(seconds=rng.randrange(-2_208_988_800, 4_102_444_800)) for _ in range(500))]


@pytest.mark.parametrize("zone", ZONES)
def test_whole_columns_convert_as_python_does(zone: str) -> None:
    ruled, judge, instants = rules_of_python(zone).ruled_zone, ZoneInfo(zone), moments(zone)
    expected = [micros(at.astimezone(judge).replace(tzinfo=UTC)) for at in instants]
    assert local_micros(np.array([micros(at) for at in instants]), ruled).tolist() == expected
    locals_ = [at.replace(tzinfo=None) for at in instants]
    first = [micros(local.replace(tzinfo=judge).astimezone(UTC)) for local in locals_]  # skipped times move forward
    found = instant_micros(np.array([micros(local.replace(tzinfo=UTC)) for local in locals_]), ruled)
    assert found.tolist() == first


def test_utc_needs_no_rules() -> None:
    instants = np.array([0, 1_700_000_000_000_000])
    assert local_micros(instants, "UTC").tolist() == instant_micros(instants, "UTC").tolist() == instants.tolist()


@pytest.mark.parametrize("zone", ZONES)
def test_datetimes_convert_as_python_does(zone: str) -> None:
    own, judge = RecordedZone(rules_of_python(zone)), ZoneInfo(zone)
    for at in moments(zone):
        ours, theirs = at.astimezone(own), at.astimezone(judge)
        assert (ours.replace(tzinfo=None), ours.fold) == (theirs.replace(tzinfo=None), theirs.fold)
        assert ours.utcoffset() == theirs.utcoffset()
        for fold in (0, 1):
            wall = at.replace(tzinfo=None, fold=fold)
            assert wall.replace(tzinfo=own).utcoffset() == wall.replace(tzinfo=judge).utcoffset()


@pytest.mark.parametrize("year", [1997, 2026, 2037, 2038, 2099, 2437, 2438, 2439, 9999])
def test_yearly_changes_hold_for_ever(year: int) -> None:
    judge = ZoneInfo("Europe/Berlin")
    for month in range(1, 13):
        for day in range(1, 29, 3):
            at = datetime(year, month, day, 1, 30, tzinfo=UTC)
            if year < 9999 or month < 12:
                assert local_micros(np.array([micros(at)]), BERLIN.ruled_zone).tolist() == [
                    micros(at.astimezone(judge).replace(tzinfo=UTC))
                ]


def test_a_digest_is_that_of_the_offsets() -> None:
    repeated = zone_rules(BERLIN.name, "another", 3600, ((0, 3600), *BERLIN.changes), BERLIN.yearly)
    assert repeated.digest == BERLIN.digest
    assert zone_rules(BERLIN.name, "Java", 3600, BERLIN.changes).digest != BERLIN.digest


def test_zones_with_equal_rules_keep_their_names() -> None:
    """A process knows rules by their digest, and the first zone that has them may be of another store."""
    first = zone_rules("Asia/Kolkata", "Java", 19_800, ((0, 19_801),))
    second = zone_rules("Asia/Calcutta", "Java", 19_800, ((0, 19_801),))
    for rules in (first, second):
        assert rules_of(rules.ruled_zone) == rules


def test_rules_that_differ_are_told_by_their_spans() -> None:
    summer = zone_rules("X", "old", 0, ((100, 3600), (200, 0)))
    assert different_spans(summer, summer) == []
    assert different_spans(summer, zone_rules("X", "new", 0, ((100, 3600),))) == [(200, None)]
    assert different_spans(summer, zone_rules("X", "new", 60, ((150, 3600), (200, 0)))) == [(None, 150)]


def test_a_zone_without_recorded_rules_converts_no_column() -> None:
    zone = ruled_in((BERLIN,), "Europe/Oslo")
    with pytest.raises(NoRulesError, match="Europe/Oslo"):
        rules_of(zone)
    assert tzinfo_of(zone) == ZoneInfo("Europe/Oslo"), "it prints by Python's"
    assert tzinfo_of(ruled_in((BERLIN,), "Europe/Berlin")) == RecordedZone(BERLIN)


def test_a_time_out_of_range_is_an_error() -> None:
    with pytest.raises(OverflowError):
        local_micros(np.array([2**63 - 1]), BERLIN.ruled_zone)


def test_a_zone_travels_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(RecordedZone(BERLIN))) == RecordedZone(BERLIN)
