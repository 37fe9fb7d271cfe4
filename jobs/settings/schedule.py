"""`[schedule]` and `[watch.SOURCE]` of pipeline.toml: when a pipeline runs in Airflow.

- cron: a run per interval, which takes the files of its interval.
- every: a run per time span, which takes all waiting files.
- assets: a run after events of assets, which takes all waiting files. It combines with either of the others.
- [watch.SOURCE]: a trigger of Airflow that emits such events, for example from messages of an object store.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from tussock.jobs.settings.values import (
    CRON_OR_NONE,
    SPAN,
    TABLE,
    YES,
    CronOrNone,
    PipelineError,
    Span,
    Texts,
    describe_value,
)

_ASSET = re.compile(r"\w+(\.\w+){0,2}|[a-z][\w+.-]*://\S+")
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class AssetsNeeded(StrEnum):
    """The events that start a run."""

    ANY = "any"  # of one of the assets
    ALL = "all"  # of each asset, since the previous run


class ScheduleTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table as the file has it."""

    cron: Annotated[CronOrNone, CRON_OR_NONE] = CronOrNone()
    start: Any = None  # a date or a datetime; msgspec does not support their union
    end: Any = None
    catchup: Annotated[bool, YES] = False
    partitions: Annotated[bool, YES] = False
    every: Annotated[Span, SPAN] | None = None
    assets: Texts | None = None
    needs: Annotated[AssetsNeeded, Meta(description='"any" or "all"')] = AssetsNeeded.ANY


class WatchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trigger of Airflow by its import path, and the arguments of its class."""

    trigger: Annotated[str, Meta(pattern=r"^\w+(\.\w+)+$", description="a class, by its module and name")]
    arguments: Annotated[dict[str, Any], TABLE] = {}


@dataclass(frozen=True, slots=True)
class RunSchedule:
    """The schedule of runs with intervals.

    `start` and `end` are the starts of the first and the last interval. If `partitions`, asset events contain the day
    of a run's interval.
    """

    cron: str
    start: datetime
    end: datetime | None = None
    catchup: bool = False
    partitions: bool = False


@dataclass(frozen=True, slots=True)
class RunTriggers:
    """The causes of runs without an interval.

    `every_ms`: milliseconds from one run to the next, from `start` to `end`; None: none.
    `assets`: own sources, relations of other pipelines with their pipeline, or URIs.
    """

    every_ms: int | None = None
    start: datetime = _LONG_AGO
    end: datetime | None = None
    assets: tuple[str, ...] = ()
    needs: AssetsNeeded = AssetsNeeded.ANY

    @property
    def sources(self) -> tuple[str, ...]:
        """The own sources among the assets."""
        return tuple(name for name in self.assets if "." not in name and "://" not in name)


NO_TRIGGERS = RunTriggers()


def read_schedule(
    table: ScheduleTable | None, watch: Mapping[str, WatchSettings], zone: ZoneInfo, file: str
) -> tuple[RunSchedule | None, RunTriggers]:
    """Return the schedule of intervals, and the other causes of runs. Raises PipelineError."""
    if table is None:
        table = ScheduleTable()
    start = None if table.start is None else _parse_moment(table.start, zone, file, "schedule.start")
    end = None if table.end is None else _parse_moment(table.end, zone, file, "schedule.end")
    if end is not None and end < (start or _LONG_AGO):
        raise PipelineError(
            file, "schedule.end", end.isoformat(), f"not before start, {(start or _LONG_AGO).isoformat()}"
        )
    schedule = _interval_schedule(table, start, end, file)
    every_ms = None if table.every is None else int(table.every)
    if every_ms == 0:
        raise PipelineError(file, "schedule.every", "no time", "a time span of at least 1s")
    assets = table.assets or ()
    for name in assets:
        if _ASSET.fullmatch(name) is None:
            expected = "a source of this pipeline, pipeline.relation, or the URI of an asset"
            raise PipelineError(file, "schedule.assets", repr(name), expected)
    triggers = RunTriggers(every_ms, start or _LONG_AGO, end, assets, table.needs)
    for source in watch:
        if source not in triggers.sources:
            raise PipelineError(file, f"watch.{source}", "a trigger", f"{source!r} in schedule.assets too")
    return schedule, triggers


def _interval_schedule(
    table: ScheduleTable, start: datetime | None, end: datetime | None, file: str
) -> RunSchedule | None:
    if not table.cron:
        for key, value in (("catchup", table.catchup), ("partitions", table.partitions)):
            if value and table.every is not None:
                raise PipelineError(file, f"schedule.{key}", "true", "false, since `every` has no intervals")
        return None
    if table.every is not None:
        raise PipelineError(file, "schedule.every", "a time span", "either `every` or `cron`, and not both")
    if start is None:
        raise PipelineError(file, "schedule.start", "nothing", "a value: the key is required")
    return RunSchedule(str(table.cron), start, end, table.catchup, table.partitions)


def _parse_moment(value: Any, zone: ZoneInfo, file: str, key: str) -> datetime:
    if not isinstance(value, date):  # datetime is a subclass of date
        raise PipelineError(file, key, describe_value(value), "a date, e.g. 2013-01-01, or a date with a time")
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    try:
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
    except OverflowError as err:  # such as 0001-01-01 east of Greenwich
        raise PipelineError(file, key, describe_value(value), "a moment of the years 1 to 9999 in UTC") from err
