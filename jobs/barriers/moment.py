"""The moment of an epoch: the value of now() in its views. Every barrier that moves it takes it from `next_moment`.

    an interval                  the end of the interval, or the requested time if this is later
    a request                    the given time, or the clock
    neither, by intervals        the store's moment: a restatement, an `apply` or an epoch between intervals keeps it
    neither, by the clock        the clock

A store runs by intervals from its first interval on, or from its first epoch on if its pipeline has a schedule. It
follows the clock again once a user requests it. The moment never goes back. So a jump over intervals that have not run
cannot be undone: their rows would come late. It is refused without a request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

from tussock.jobs.catalog.definition import follows_moment
from tussock.jobs.sources.listing import Interval
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import TimeSpan
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.version import HummockVersion


class Clock(Enum):
    """A request for the clock as the moment."""

    NOW = auto()  # from this epoch on, also in later epochs without an interval


@dataclass(frozen=True, slots=True)
class Pace:
    """How a pipeline's runs advance.

    Args:
        first: the start of the first interval of its schedule, Unix microseconds; the moment until an interval has run.
            None: no schedule.
        catchup: the scheduler runs every interval from there on. If False, it begins with the newest.
        is_scheduled: the scheduler chose this run's interval. Without catchup, it may have left out others.
    """

    first: int | None = None
    catchup: bool = True
    is_scheduled: bool = False

    def may_pass_over(self, moment: int) -> bool:
        """Return whether a run may leave out intervals without a request. `moment`: before the run."""
        return not self.catchup and (self.is_scheduled or moment == self.first)


@dataclass(frozen=True, slots=True)
class InputRequest:
    """The input that a run requests.

    Args:
        interval: take only this data interval's files from sources with a path template; None: files of any interval.
        moment: the requested value of now() in views, in Unix microseconds; None: see the module. It never goes back.
        run: the run that an injected barrier belongs to; stored with it.
        pace: the pipeline's.
        clock: the clock when the run began, Unix microseconds; None: the clock at each barrier.
        resting: sources that stay held without another attempt, because they failed an epoch of this run repeatedly.
    """

    interval: Interval | None = None
    moment: int | Clock | None = None
    run: Mapping[str, str] = field(default_factory=dict)
    pace: Pace = Pace()
    clock: int | None = None
    resting: frozenset[str] = frozenset()


ALL_INPUT = InputRequest()
"""All waiting input."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of an epoch.

    Args:
        at: Unix microseconds; 0: the previous epoch's, as are the other fields.
        by_intervals: the store runs by intervals.
        passed_over: the time before it whose intervals have not run.
    """

    at: int = 0
    by_intervals: bool = False
    passed_over: TimeSpan | None = None


UNMOVED = Moment()


def next_moment(version: HummockVersion, request: InputRequest, clock: int) -> Moment:
    """Return the moment of the epoch after `version`.

    Args:
        clock: Unix microseconds, if the request has none.

    Raises: IntervalsNotRunError.
    """
    clock = clock if request.clock is None else request.clock
    by_intervals = version.by_intervals or request.pace.first is not None or request.interval is not None
    asked = clock if request.moment is Clock.NOW else request.moment
    if request.interval is not None:
        at = max(micros_of(request.interval.end), asked or 0)
    elif asked is not None:
        at, by_intervals = asked, by_intervals and request.moment is not Clock.NOW
    elif by_intervals:
        at = version.moment or request.pace.first or 0
    else:
        at = clock
    at = max(at, version.moment)
    return Moment(at, by_intervals, _passed_over(version, request, at))


def _passed_over(version: HummockVersion, request: InputRequest, at: int) -> TimeSpan | None:
    """Return the time that the epoch passes over, if views follow the moment. Raises IntervalsNotRunError."""
    end = at if request.interval is None else micros_of(request.interval.start)
    start = version.moment
    if not version.by_intervals or not start < end or not (views := following_views(version.catalog)):
        return None
    if request.moment is None and not request.pace.may_pass_over(start):
        interval = (
            () if request.interval is None else (request.interval.start.isoformat(), request.interval.end.isoformat())
        )
        raise IntervalsNotRunError(start, end, at, views, interval)
    return TimeSpan(start, end)


def following_views(catalog: Catalog) -> tuple[str, ...]:
    """Return the views whose rows change with the moment, except paused ones."""
    return tuple(r.name for r in catalog.live_relations() if r.paused is None and follows_moment(r))


def micros_of(moment: datetime) -> int:
    """Return Unix microseconds. Requires: the moment has a time zone."""
    return (moment - _UNIX_EPOCH) // timedelta(microseconds=1)


def time_of_micros(micros: int) -> datetime:
    """Return Unix microseconds as a time in UTC."""
    return _UNIX_EPOCH + timedelta(microseconds=micros)


def passed_over_text(span: TimeSpan) -> str:
    """Describe the time that an epoch passed over."""
    return f"the intervals from {_format_utc(span.start)} to {_format_utc(span.end)}, which have not run"


def moment_text(moment: int) -> str:
    """Describe the moment of an epoch."""
    return f"now() in views is {_format_utc(moment)}"


def _format_utc(micros: int) -> str:
    return f"{time_of_micros(micros).isoformat(' ').removesuffix('+00:00')} UTC"


_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class IntervalsNotRunError(InputError, hides_row_values=True):
    """An epoch would move now() over intervals that have not run."""

    def __init__(self, start: int, end: int, at: int, views: tuple[str, ...], interval: tuple[str, ...]) -> None:
        super().__init__(start, end, at, tuple(views), tuple(interval))
        self.start, self.end, self.at, self.views, self.interval = start, end, at, tuple(views), tuple(interval)

    def __str__(self) -> str:
        of = f"--interval {' '.join(self.interval)} " if self.interval else ""
        passed = passed_over_text(TimeSpan(self.start, self.end))
        return (
            f"this epoch would move now() in {', '.join(self.views)} over {passed}. now() never goes back, so their "
            "rows would come late. Nothing was changed. Run these intervals first. To leave them out, run "
            f"`tussock epoch {of}--moment {time_of_micros(self.at).isoformat()}`. In Airflow, set the field `moment` "
            "of the trigger form."
        )
