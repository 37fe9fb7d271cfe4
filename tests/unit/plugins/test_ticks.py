"""The ticks of schedules equal Airflow's timetable, also in the hours that clocks repeat or skip. No JVM."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pendulum
import pytest
from tussock_timetable import IntervalsUntil

from tussock.jobs.facts.runs import GRACE, overdue_run
from tussock.jobs.quality.arrival import past_intervals
from tussock.jobs.settings.schedule import RunSchedule
from tussock.jobs.settings.ticks import Ticks

ROOT = Path(__file__).parents[3]
DAILY = ("0 2 * * *", "30 2 * * *", "15 1 * * *", "0 6 * * *", "@daily", "30 0 * * *")
OTHERS = (
    "@hourly",
    "30 * * * *",
    "*/20 * * * *",
    "30 1,2,3 * * *",
    "0 */2 * * *",
    "@weekly",
    "@monthly",
    "0 0 * * 1-5",
)
NIGHTS = {
    "Europe/Berlin": (datetime(2026, 3, 29), datetime(2026, 10, 25)),
    "America/New_York": (datetime(2026, 3, 8), datetime(2026, 11, 1)),
    "Australia/Lord_Howe": (datetime(2026, 4, 5), datetime(2026, 10, 4)),  # half an hour
    "America/Havana": (datetime(2026, 3, 8), datetime(2026, 11, 1)),  # at midnight
    "UTC": (datetime(2026, 3, 29),),
}
CASES = [(zone, night, cron) for zone, nights in NIGHTS.items() for night in nights for cron in (*DAILY, *OTHERS)]


def airflow_ticks(zone: str, cron: str, night: datetime) -> list[datetime]:
    """The ticks from some days before a night to some days after it, as Airflow's scheduler steps through them."""
    timetable = IntervalsUntil(cron, zone, None)
    time, end = pendulum.instance(night.replace(tzinfo=UTC) - timedelta(days=2)), night + timedelta(days=2)
    found = []
    while (time := timetable._get_next(time)) < end.replace(tzinfo=UTC):
        found.append(datetime.fromisoformat(time.astimezone(UTC).isoformat()))
    return found


@pytest.mark.parametrize(("zone", "night", "cron"), CASES)
def test_ticks_and_intervals_are_those_of_airflow(zone: str, night: datetime, cron: str) -> None:
    expected = airflow_ticks(zone, cron, night)
    if len(expected) < 2:
        pytest.skip("no interval of this schedule ends near the night")
    ticks = Ticks(cron, zone)
    assert [ticks.tick_after(one) for one in expected[:-1]] == expected[1:]
    for now in (expected[-1], expected[-1] + timedelta(minutes=1), expected[len(expected) // 2]):
        known = [one for one in expected if one <= now]
        assert ticks.latest_ticks(now, len(known)) == known
        found = past_intervals(RunSchedule(cron, expected[0]), zone, now, len(known))
        assert [(one.start.astimezone(UTC), one.end.astimezone(UTC)) for one in reversed(found)] == [*pairwise(known)]


@pytest.mark.parametrize(("zone", "night", "cron"), CASES)
def test_no_tick_of_the_hours_around_a_change_lies_in_the_future(zone: str, night: datetime, cron: str) -> None:
    expected = airflow_ticks(zone, cron, night)
    for minutes in range(-60, 6 * 60 + 1, 30):
        now = night.replace(tzinfo=UTC) + timedelta(minutes=minutes)
        if known := [one for one in expected if one <= now]:
            assert Ticks(cron, zone).latest_ticks(now, 1) == known[-1:]
        if later := [one for one in expected if one >= now]:
            assert Ticks(cron, zone).first_tick(now) == later[0]


def test_the_file_of_the_long_day_is_due_when_the_run_of_airflow_is() -> None:
    """An hour before, its run has not begun, so it is neither missing nor overdue."""
    start, before = datetime(2026, 10, 20, tzinfo=UTC), datetime(2026, 10, 25, 0, 45, tzinfo=UTC)
    schedule = RunSchedule("30 2 * * *", start)
    newest = past_intervals(schedule, "Europe/Berlin", before, 1)[0]
    assert newest.end == datetime(2026, 10, 24, 0, 30, tzinfo=UTC)
    assert overdue_run(schedule, "Europe/Berlin", newest.end, before + GRACE) is None
    assert overdue_run(schedule, "Europe/Berlin", newest.end, before + GRACE + timedelta(hours=1)) == datetime(
        2026, 10, 25, 1, 30, tzinfo=UTC
    )


def test_only_one_module_counts_ticks() -> None:
    importing = re.compile(r"^\s*(from|import) croniter\b", re.MULTILINE)
    folders = ("jobs", "plugins", "dags", "statestore", "tussock")
    found = {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if importing.search(path.read_text())
    }
    assert found == {"jobs/settings/ticks.py", "jobs/settings/values.py"}, "values.py only checks expressions"
