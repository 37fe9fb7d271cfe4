"""The ticks of a cron expression in a time zone, as Airflow's timetables count them.

The scheduler creates one run per tick. So whatever names an interval or a due run takes its ticks from here:

- A local time that clocks repeat is the second one.
- A local time that clocks skip is as far after the change as it would have been.
- An expression that matches every hour follows elapsed time, so it has a tick in both of the repeated hours.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo


class Ticks:
    """The ticks of one cron expression. All times have a time zone; results are in UTC.

    Python compares two times of one zone by their local times, so times in the zone would not be ordered in a repeated
    hour.
    """

    def __init__(self, cron: str, time_zone: str) -> None:
        """
        Args:
            cron: five fields, or a preset such as `@daily`.
        """
        from croniter import croniter  # a dependency of Airflow that Spark's workers do not need

        self._cron, self._zone = croniter(cron), ZoneInfo(time_zone)

    def tick_after(self, time: datetime) -> datetime:
        """Return the tick after a tick."""
        local = self._to_local(time)
        tick: datetime = self._cron.get_next(datetime, start_time=local)
        if self._cron.expanded[_HOURS] == ["*"]:
            return time.astimezone(UTC) + (tick - local)
        return self._time_of(tick)

    def latest_ticks(self, time: datetime, most: int) -> list[datetime]:
        """Return the last `most` ticks that are not after a time, oldest first."""
        return [*self._ticks_around(time, most)][:-1][-most:]

    def first_tick(self, time: datetime) -> datetime:
        """Return the first tick that is not before a time."""
        *_, last, after = self._ticks_around(time, 1)
        return last if last == time.astimezone(UTC) else after

    def _ticks_around(self, time: datetime, most: int) -> Iterator[datetime]:
        """Yield ticks in order: at least `most` before a time, and those up to the first one after it.

        Near a change of clocks, a step back may find another tick than a step forward. So all results are steps forward
        from a tick that lies some steps further back.
        """
        time = time.astimezone(UTC)
        self._cron.set_current(self._to_local(time), force=True)
        for _ in range(most + _SPARE):
            begin = self._cron.get_prev(datetime)
        tick = self._time_of(begin)
        while tick <= time:
            yield tick
            tick = self.tick_after(tick)
        yield tick

    def _to_local(self, time: datetime) -> datetime:
        return time.astimezone(self._zone).replace(tzinfo=None, fold=0)

    def _time_of(self, local: datetime) -> datetime:
        """Return the later of both readings: the second of a repeated time, and a skipped time moved forward."""
        return max(local.replace(tzinfo=self._zone, fold=fold).astimezone(UTC) for fold in (0, 1))


_HOURS = 1  # the field of a cron expression
_SPARE = 6  # steps further back: more ticks than clocks repeat or skip at once
