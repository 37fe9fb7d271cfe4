"""The timetables of epoch DAGs: a run per interval of a cron expression, or a run per time span, up to an end."""

from datetime import datetime, timedelta
from typing import Any

from airflow.plugins_manager import AirflowPlugin
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.timetables.trigger import DeltaTriggerTimetable
from pendulum import DateTime
from tussock_airflow import HAS_DEADLINES


class IntervalsUntil(CronDataIntervalTimetable):
    """Intervals of a cron expression. The last one starts no later than `last`.

    A DAG's `end_date` would also remove every task from later manual runs, which would then succeed without doing
    anything.
    """

    def __init__(self, cron: str, zone: str, last: datetime | None) -> None:
        """
        Args:
            cron: five fields, or a preset such as `@daily`.
            zone: name of the time zone in which days begin.
            last: with a time zone; None: no end.
        """
        super().__init__(cron, timezone=zone)
        self._zone, self._last = zone, last

    def serialize(self) -> dict[str, Any]:
        return {
            "cron": self._expression,
            "zone": self._zone,
            "last": None if self._last is None else self._last.isoformat(),
        }

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "IntervalsUntil":
        return cls(data["cron"], data["zone"], None if data["last"] is None else datetime.fromisoformat(data["last"]))

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """Return an empty interval: a manual run has no interval unless the trigger form sets one.

        Airflow's default, the last interval before `run_after`, would look like an interval that a user set.
        """
        return DataInterval.exact(run_after)

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        following = super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )
        if (
            following is None
            or self._last is None
            or following.data_interval is None
            or following.data_interval.start <= self._last
        ):
            return following
        return None


class RunsUntil(DeltaTriggerTimetable):
    """A run per time span, up to `last`. Runs have no interval, so each takes all waiting files.

    A missed run is not repeated: the next one takes its files.
    """

    def __init__(self, seconds: float, last: datetime | None) -> None:
        """
        Args:
            seconds: from one run to the next.
            last: with a time zone; None: no end.
        """
        super().__init__(timedelta(seconds=seconds))
        self._seconds, self._last = seconds, last

    def serialize(self) -> dict[str, Any]:
        return {"seconds": self._seconds, "last": None if self._last is None else self._last.isoformat()}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> "RunsUntil":
        return cls(data["seconds"], None if data["last"] is None else datetime.fromisoformat(data["last"]))

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        following = super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )
        is_over = following is not None and self._last is not None and following.run_after > self._last
        return None if is_over else following


def _deadline_references() -> list[type]:
    if not HAS_DEADLINES:
        return []
    from tussock_deadline import IntervalEnd

    return [IntervalEnd]


class TussockTimetables(AirflowPlugin):
    """Register the timetables and the deadline reference, so that the scheduler can restore them from stored DAGs."""

    name = "tussock_timetables"
    timetables = [IntervalsUntil, RunsUntil]  # noqa: RUF012  Airflow's attribute name
    deadline_references = _deadline_references()
