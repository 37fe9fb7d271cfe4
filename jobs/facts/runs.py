"""The last run, from its record in the store, and the time of the run that a schedule has missed."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from tussock.jobs.driver import run_record
from tussock.jobs.settings.schedule import RunSchedule, RunTriggers
from tussock.jobs.settings.ticks import Ticks
from tussock.statestore.meta.epoch import time_of_ms
from tussock.statestore.meta.store import MetaStore

SILENT = timedelta(seconds=6 * run_record.EVERY_S)
"""A run at work that has not updated its record for this long has died."""

GRACE = timedelta(minutes=15)
"""A scheduled run that has not begun this long after its time is overdue."""


class RunState(StrEnum):
    """The state of the last run."""

    RUNNING = "running"
    COMMITTED = "committed"  # its epochs; the scheduler's tasks after them have not recorded the end of the run
    SUCCEEDED = "succeeded"
    INCOMPLETE = "incomplete"  # its epochs are committed, and it left something undone: red in the scheduler
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # its record ends in the middle: the process was killed, or its host


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The last run that has left a record. Runs of at most ten seconds leave one at their end only."""

    state: RunState
    what: str  # `epoch`, `restate orders`
    began: datetime
    at: datetime  # its end, or its last sign
    writer: str  # the process
    run: dict[str, str]  # the scheduler's name of the run; empty without a scheduler
    interval: tuple[str, str] | None  # ISO 8601
    kind: str  # class of its error
    error: str
    undone: tuple[str, ...] = ()  # of an incomplete run: each thing that it left undone
    ended_until: datetime | None = None  # the end of the newest interval whose run has ended; None: none is recorded

    @property
    def has_epochs(self) -> bool:
        """Whether its epochs are committed."""
        return self.state in (RunState.COMMITTED, RunState.SUCCEEDED, RunState.INCOMPLETE)

    @property
    def interval_end(self) -> datetime | None:
        """The end of its interval in UTC; None without one."""
        return None if self.interval is None else datetime.fromisoformat(self.interval[1]).astimezone(UTC)

    @property
    def name(self) -> str:
        """The run as people name it: its scheduler's name, or the process."""
        return self.run.get("run") or self.run.get("command") or f"of {self.writer}"


def last_run(meta: MetaStore, now: datetime) -> RunFacts | None:
    """Return the last run; None if no run has left a record. Cost: one GET."""
    if (record := run_record.last_run(meta.objects)) is None:
        return None
    began, at = (time_of_ms(ms) for ms in (record.began, record.at))
    state = RunState(record.state)
    if state is RunState.RUNNING and now - at > SILENT:
        state = RunState.INTERRUPTED
    elif state is RunState.SUCCEEDED and record.undone:
        state = RunState.INCOMPLETE
    elif state is RunState.SUCCEEDED and record.undone is None and "dag" in record.run:
        state = RunState.COMMITTED
    return RunFacts(
        state=state,
        what=record.what,
        began=began,
        at=at,
        writer=record.writer,
        run=record.run,
        interval=record.interval,
        kind=record.kind,
        error=record.error,
        undone=record.undone or (),
        ended_until=None if record.ended_until is None else datetime.fromisoformat(record.ended_until),
    )


def last_sign(opened: datetime, run: RunFacts | None, now: datetime) -> datetime | None:
    """Return the last sign of a process that works on the open epoch, if it has been silent since; None if not.

    A run that was killed in its first ten seconds has left no record. Its barrier is its only sign.

    Args:
        opened: when the barrier of the epoch was written.
        run: the last run that has left a record.
    """
    if run is not None and run.at >= opened and run.state not in (RunState.RUNNING, RunState.INTERRUPTED):
        return None  # it has ended, and its record has the reason
    at = opened if run is None else max(opened, run.at)
    return at if now - at > SILENT else None


def overdue_run(schedule: RunSchedule, time_zone: str, seen: datetime | None, now: datetime) -> datetime | None:
    """Return the time of the newest scheduled run that has not begun although GRACE is over; None without one.

    Args:
        seen: the last sign of any run; None if the pipeline has never run, so that its DAG may not be switched on yet.
    """
    if seen is None:
        return None
    ticks = Ticks(schedule.cron, time_zone)
    (due,) = ticks.latest_ticks(now - GRACE, 1)
    if schedule.end is not None:  # the last interval begins at `end` or before
        due = min(due, ticks.tick_after(*ticks.latest_ticks(schedule.end, 1)))
    first = ticks.tick_after(ticks.first_tick(schedule.start))  # a run begins when its interval ends
    return due if due >= first and seen < due else None


def overdue_repetition(triggers: RunTriggers, seen: datetime | None, now: datetime) -> datetime | None:
    """Return when the run after the last one was due, if `every` is set and GRACE is over since; None without one.

    Args:
        seen: as in `overdue_run`.
    """
    if seen is None or triggers.every_ms is None:
        return None
    due = seen + timedelta(milliseconds=triggers.every_ms)
    is_wanted = triggers.start <= due and (triggers.end is None or due <= triggers.end)
    return due if is_wanted and due + GRACE < now else None
