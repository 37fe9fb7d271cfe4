"""The outcome of the last run, as a small object `runs/last.json` in the store.

The version log contains committed epochs only. This record also shows a run that failed, or that is still at work,
whatever started it: the command, a session or a scheduler. It is for people: nothing that decides about data depends
on it. Concurrent runs overwrite each other's record. A killed run leaves its last update behind, whose age shows that
it has died. Errors of the store are logged and never reach the run.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from threading import Event, Thread

import msgspec

from tussock.jobs.settings.process import clock_ms
from tussock.jobs.settings.redaction import without_secrets
from tussock.jobs.sources.listing import Interval
from tussock.statestore.decoding import decode_json
from tussock.statestore.errors import MustStopError, TussockError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""Seconds between the updates of a run at work. A shorter run writes one record, at its end."""

PATIENCE_S = 10.0
"""A run waits this long for its last record to be written."""

JOB_FAILED = (
    "The job could not start, or it ended before it recorded a reason. The log of the run's task has the reason."
)
"""The recorded error of such a job. The error itself may contain the command line, with credentials of the store."""

_NAME = "runs/last.json"
_MOST_CHARACTERS = 4_000  # of an error's text


class RecordedState(StrEnum):
    """The state of a run at its last update."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"  # its epochs are committed; RunRecord.undone tells how the whole run ended
    FAILED = "failed"


_TASKS_FAILED = "TasksFailed"  # RunRecord.kind of `record_failure`; stored


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run, as of its last update. Times are Unix milliseconds."""

    state: RecordedState
    what: str  # `epoch`, `restate orders`
    began: int
    at: int  # of this update
    writer: str
    run: dict[str, str] = {}  # as in barriers
    interval: tuple[str, str] | None = None  # ISO 8601
    kind: str = ""  # class of the error
    error: str = ""
    # What the whole run left undone after its epochs, for example input of a held source; empty: nothing. None: no
    # step after the epochs has recorded the end of the run.
    undone: tuple[str, ...] | None = None
    ended_until: str | None = None  # the end of the newest interval whose run has succeeded, of all runs; ISO 8601


@dataclass(slots=True)
class Recording:
    """Handed to the block of `recorded_run`.

    `ends`: False if another process goes on with the run, and records its end.
    """

    ends: bool = True


@contextmanager
def recorded_run(
    meta: MetaStore,
    what: str,
    run: Mapping[str, str] | None = None,
    interval: Interval | None = None,
    *,
    only_errors: bool = False,
) -> Iterator[Recording]:
    """Record the block's outcome in the store, and that it is at work if it takes longer than EVERY_S.

    A run that has lost to another one records nothing, because the other one does. The success of a short run without a
    name or an interval is recorded only if the last record shows something else, so that an idle session writes
    nothing.

    Args:
        run: the name of the run, given by a scheduler or a command.
        only_errors: the block is a part of a run, so only its error ends the run.

    Cost: one GET and one PUT, or without `run` and `interval` one GET, and both again per EVERY_S of a longer block.
        With `only_errors`, none if the block succeeds.
    """
    span = None if interval is None else (interval.start.isoformat(), interval.end.isoformat())
    record = RunRecord(
        state=RecordedState.RUNNING,
        what=what,
        began=clock_ms(),
        at=clock_ms(),
        writer=meta.writer,
        run=dict(run or {}),
        interval=span,
    )
    ended, is_shown = Event(), Event()

    def write_until_end() -> None:
        while not ended.wait(EVERY_S):
            is_shown.set()
            _write_record(meta.objects, msgspec.structs.replace(record, at=clock_ms()))

    follower = Thread(target=write_until_end, name="tussock-run-follower", daemon=True)
    if not only_errors:
        follower.start()
    outcome: RunRecord | None = None
    recording = Recording(ends=not only_errors)
    try:
        yield recording
        if recording.ends and (run or interval is not None or is_shown.is_set() or not _ended_well(meta.objects)):
            outcome = msgspec.structs.replace(record, state=RecordedState.SUCCEEDED)
    except MustStopError:
        raise
    except BaseException as err:
        outcome = _failed_record(record, err)
        raise
    finally:
        ended.set()
        if outcome is not None:
            _write_soon(meta, outcome, follower)


@contextmanager
def recorded_elsewhere(meta: MetaStore, what: str, run: Mapping[str, str]) -> Iterator[None]:
    """Record the error of a block that starts another process, unless that process has recorded the run since.

    Without this, a job that could not start would leave the success of the run before it. The text is JOB_FAILED,
    because everyone who sees the pipeline reads it, and the error of a scheduler quotes command lines and logs.

    Cost: none if the block succeeds; else a GET and a PUT.
    """
    began = clock_ms()
    try:
        yield
    except Exception as err:
        last = last_run(meta.objects)
        if last is None or last.run != run or last.at < began:
            _write_failure(meta, last, what, run, began, type(err).__name__, JOB_FAILED)
        raise


def record_failure(meta: MetaStore, what: str, run: Mapping[str, str], began: int, error: str) -> None:
    """Record the failure of a run that could not record it, for example because its process did not reach the store.

    A failure that the run itself has recorded since `began` stays, as does the record of a later run.

    Args:
        began: Unix milliseconds.
        error: for everyone who sees the pipeline, so without command lines.

    Cost: a GET, and a PUT if nothing was recorded.
    """
    last = last_run(meta.objects)
    own_error = last is None or (last.state is not RecordedState.SUCCEEDED and last.kind != _TASKS_FAILED)
    if last is None or last.at < began or (last.run == run and not own_error):
        _write_failure(meta, last, what, run, began, _TASKS_FAILED, error)


def _write_failure(
    meta: MetaStore, last: RunRecord | None, what: str, run: Mapping[str, str], began: int, kind: str, error: str
) -> None:
    """Write a failed run. A record of the same run tells its interval, which only the run itself knows."""
    record = RunRecord(
        state=RecordedState.FAILED,
        what=what,
        began=began,
        at=clock_ms(),
        writer=meta.writer,
        run=dict(run),
        interval=last.interval if last is not None and run and last.run == run else None,
        kind=kind,
        error=_storable_text(error),
    )
    _write_after(meta.objects, last, record)


def record_end(meta: MetaStore, what: str, run: Mapping[str, str], began: int, undone: Sequence[str]) -> None:
    """Record that the whole run has ended, and what it left undone.

    It follows the record of the run's epochs. It ends a failure that `record_failure` has recorded, because the failed
    tasks have run again. An error of the epochs stays, as does the record of a later run.

    Args:
        run: the name of the run; empty: this process's run.
        began: Unix milliseconds.
        undone: for everyone who sees the pipeline; empty: nothing.

    Cost: a GET, and a PUT unless a later record stays, or an unnamed run has recorded nothing and left nothing undone.
    """
    last, left = last_run(meta.objects), tuple(map(_storable_text, undone))
    if last is not None and last.run == run and (run or last.writer == meta.writer):
        if last.state is RecordedState.SUCCEEDED or last.kind == _TASKS_FAILED:
            ended = msgspec.structs.replace(
                last, state=RecordedState.SUCCEEDED, at=clock_ms(), kind="", error="", undone=left
            )
            _write_after(meta.objects, last, ended)
    elif (run or left) and (last is None or last.at < began):
        record = RunRecord(
            state=RecordedState.SUCCEEDED,
            what=what,
            began=began,
            at=clock_ms(),
            writer=meta.writer,
            run=dict(run),
            undone=left,
        )
        _write_after(meta.objects, last, record)


def error_text(err: BaseException) -> str:
    """Return an error as records contain it: its text, and its notes."""
    return "\n".join([str(err) or type(err).__name__, *getattr(err, "__notes__", ())])


def last_run(objects: ObjectStore) -> RunRecord | None:
    """Return the record of the last run; None without one, or if it cannot be read. Cost: one GET."""
    try:
        return decode_json(objects.get(_NAME), RunRecord)
    except ObjectNotFoundError:
        return None
    except (TussockError, msgspec.DecodeError) as err:
        log.warning("could not read the record of the last run: %s", err)
        return None


def _failed_record(record: RunRecord, err: BaseException) -> RunRecord:
    text = _storable_text(error_text(err))
    return msgspec.structs.replace(record, state=RecordedState.FAILED, kind=type(err).__name__, error=text)


def _ended_well(objects: ObjectStore) -> bool:
    """Return whether the record of the last run shows no failure, nothing left undone, and no run at work."""
    last = last_run(objects)
    return last is None or (last.state is RecordedState.SUCCEEDED and not last.undone)


def _write_soon(meta: MetaStore, record: RunRecord, follower: Thread) -> None:
    """Write the last record of a run, in a thread, because a store that does not answer must not keep the run."""
    began = time.monotonic()
    if follower.is_alive():
        follower.join(PATIENCE_S)  # its last update must not follow this one
    last = msgspec.structs.replace(record, at=clock_ms())
    writing = Thread(target=_write_record, args=(meta.objects, last), name="tussock-run-record", daemon=True)
    with suppress(RuntimeError):  # the process is ending and starts no threads
        writing.start()
        writing.join(max(0.1, PATIENCE_S - (time.monotonic() - began)))


def _write_record(objects: ObjectStore, record: RunRecord) -> None:
    _write_after(objects, last_run(objects), record)


def _write_after(objects: ObjectStore, last: RunRecord | None, record: RunRecord) -> None:
    """Write a record, which keeps the newest interval of the record before it."""
    try:
        ends = [None if last is None else last.ended_until]
        if record.state is RecordedState.SUCCEEDED and record.interval is not None:
            ends.append(record.interval[1])
        until = max((end for end in ends if end is not None), key=datetime.fromisoformat, default=None)
        objects.put(_NAME, msgspec.json.encode(msgspec.structs.replace(record, ended_until=until)))
    except Exception as err:  # a record is not worth a run
        log.warning("could not record the state of the run: %s: %s", type(err).__name__, err)


def _storable_text(text: str) -> str:
    """The text without credentials, as UTF-8: a name of a file in an error may contain bytes that are not."""
    # First hidden, then cut: half of a key would not be recognised.
    return without_secrets(text)[:_MOST_CHARACTERS].encode("utf-8", "backslashreplace").decode()
