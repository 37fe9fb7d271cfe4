"""How far the ends of RANGE frames over times go back, within the bounds that the plan states."""

import numpy as np
import pyarrow as pa
import pytest

from tests.support.zone_rules import ruled_by_python
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.logical.nodes import Call, Column, Literal
from tussock.jobs.plan.streams.window import setback_of
from tussock.statestore.types import arrow_type

_HOUR = 3_600_000_000
_DAY = 24 * _HOUR


@pytest.mark.parametrize("days", [-1, 1, 30])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Pacific/Apia", "America/Asuncion", "Australia/Lord_Howe", "UTC"])
def test_ends_by_days_go_back_where_the_clock_moves_and_not_farther_than_the_setback(zone: str, days: int) -> None:
    ruled = str(ruled_by_python(zone))
    moved_by = Literal(days * (_DAY + _HOUR // 2), "interval day to second")
    end = Call("TimestampAddInterval", "timestamp", (Column(0, "timestamp"), moved_by), params=(("timeZoneId", ruled),))
    assert _require_within(end) is (zone != "UTC")


@pytest.mark.parametrize("months", [-12, -1, 1, 3])
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_ends_by_months_go_back_at_the_ends_of_months_and_not_farther_than_the_setback(kind: str, months: int) -> None:
    zone = (("timeZoneId", str(ruled_by_python("America/Asuncion"))),)
    end = Call("TimestampAddYMInterval", kind, (Column(0, kind), Literal(months, "interval month")), params=zone)
    assert _require_within(end)


def test_ends_by_hours_and_dates_ascend() -> None:
    hours = Literal(23 * _HOUR, "interval hour")
    zone = (("timeZoneId", str(ruled_by_python("Europe/Berlin"))),)
    assert setback_of(Call("TimestampAddInterval", "timestamp", (Column(0, "timestamp"), hours), params=zone)) == 0
    assert setback_of(Call("DateAddYMInterval", "date", (Column(0, "date"), Literal(1, "interval month")))) == 0


def _require_within(end: Call) -> bool:
    """Whether the ends for each quarter of an hour of eight years go back. Fails if they do so beyond the setback."""
    times = 1_200_000_000_000_000 + np.arange(0, 8 * 366 * _DAY, _HOUR // 4, dtype=np.int64)
    rows = pa.table({"c0": pa.array(times).cast(arrow_type(end.type))})
    ends = thread_kernel().project_columns(rows, [end], [end.type]).column(0).cast(pa.int64()).to_numpy()
    greatest = np.maximum.accumulate(ends)
    goes_back = np.flatnonzero(ends < greatest)
    setback = setback_of(end)
    assert (greatest - ends).max() <= setback
    distances = times[goes_back] - times[np.searchsorted(greatest, ends[goes_back], side="right")]
    assert not len(distances) or distances.max() <= setback
    return bool(len(goes_back))
