"""Epochs without end: a process that looks for input again and again, and keeps its runner and caches warm.

One such process per store has the *turn*; others wait, and take over when it ends or dies. The turn only saves work:
two processes that both run epochs lose races, as any two runs do, and never rows.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import msgspec

from tussock.jobs.driver.run_record import error_text
from tussock.jobs.driver.runner import LevelRunner
from tussock.jobs.operations.runners import Where, runner_of
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.sources.parquet_footer import forget_old_footers
from tussock.statestore.decoding import decode_json
from tussock.statestore.errors import MustStopError, RetryableError, TussockError
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.meta.pages import PagedLevel
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.progress import Progress

RENEW_S = 20.0
"""Seconds between the signs of life of the process that has the turn. Each costs a GET and a PUT."""

DEAD_S = 3 * RENEW_S
"""A waiting process takes over from one that has shown no sign for this long, by the clock of the one that waits."""

MOST_PAUSE_S = 60.0
"""The longest pause after a RetryableError."""

_NAME = "runs/resident.json"


class TurnHolder(msgspec.Struct, frozen=True):
    """The process that has the turn. `sign`: counts its signs of life."""

    writer: str
    host: str
    pid: int
    sign: int = 0


class Turn:
    """The turn of one process of a store to run epochs.

    No clock of another host is compared: a waiting process measures how long the object has not changed.
    """

    def __init__(self, objects: ObjectStore, writer: str, progress: Progress) -> None:
        self._objects, self._writer, self._progress = objects, writer, progress
        self._lost = Event()
        self._lost.set()  # not taken yet

    def wait(self, stop: Event, look_s: float) -> bool:
        """Wait for the turn; False if `stop` was set before. Returns at once if this process has it."""
        seen, since, told = b"", time.monotonic(), False
        while self._lost.is_set():
            own = self._encode_sign(0)
            with suppress(RetryableError):  # the store does not answer: again
                now = self._read_holder()
                if not now and self._objects.put_if_absent(_NAME, own):
                    self._lost.clear()
                    break
                if now != seen:
                    seen, since = now, time.monotonic()
                if not now:  # another one was first
                    continue
                holder = decode_json(seen, TurnHolder)
                if time.monotonic() - since >= DEAD_S or _has_ended(holder):
                    self._objects.put(_NAME, own)
                    self._lost.clear()
                    break
                if not told:
                    self._progress(
                        f"process {holder.pid} on {holder.host} runs the epochs of this store; this one takes over "
                        "when it ends"
                    )
                    told = True
            if stop.wait(min(look_s, RENEW_S)):
                return False
        return not stop.is_set()

    def has_turn(self) -> bool:
        """Return whether no other process has taken over since the last sign."""
        return not self._lost.is_set()

    @contextmanager
    def keep_turn(self) -> Iterator[None]:
        """Show signs of life during the block, and give the turn back at its end."""
        ended = Event()
        follower = Thread(target=self._show_signs, args=(ended,), name="tussock-turn", daemon=True)
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()
            with suppress(TussockError):
                if self._is_ours():
                    self._objects.delete([_NAME])

    def _show_signs(self, ended: Event) -> None:
        sign = 0
        while not ended.wait(RENEW_S):
            with suppress(TussockError):  # the store does not answer: the next sign follows
                if not self._is_ours():
                    self._lost.set()
                    return
                self._objects.put(_NAME, self._encode_sign(sign := sign + 1))

    def _read_holder(self) -> bytes:
        """Return the object of the process that has the turn; empty if none has it. A GET costs less than a PUT."""
        try:
            return self._objects.get(_NAME)
        except ObjectNotFoundError:
            return b""

    def _is_ours(self) -> bool:
        now = self._read_holder()
        return bool(now) and decode_json(now, TurnHolder).writer == self._writer

    def _encode_sign(self, number: int) -> bytes:
        return msgspec.json.encode(TurnHolder(self._writer, socket.gethostname(), os.getpid(), number))


def _has_ended(holder: TurnHolder) -> bool:
    """Return whether a process of this host is known to have ended, so that a restart after a kill need not wait.

    A wrong answer, as for two containers with one host name, only costs a race.
    """
    if holder.host != socket.gethostname():
        return False
    if holder.pid == os.getpid():  # of an earlier container with this name
        return True
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it is another user's, so it lives
        pass
    return False


def run_repeatedly(
    store: PipelineStore, every_s: float, stop: Event, run: Callable[[LevelRunner], object], progress: Progress
) -> None:
    """Call `run` every `every_s` seconds until `stop` is set, while this process has the turn.

    A call that takes longer is followed by the next one at once. An error is printed once, until it changes or ends,
    and the next call tries again: after a race that another run won, after a correction of a file, when a server
    answers again. The pause grows while the same call may succeed later (RetryableError).

    Args:
        run: runs all waiting input with this runner, whose processes stay alive between the calls.
        progress: receives errors, and the process that has the turn.

    Raises: errors that are no TussockError, such as a full disk.
    """
    turn = Turn(store.meta.objects, store.meta.writer, progress)
    while turn.wait(stop, every_s):
        with turn.keep_turn(), runner_of(store, Where.AS_SET, "epochs", progress) as runner:
            _run_turn(turn, every_s, stop, lambda: run(runner), progress, _Leftovers(store.meta))


class _Leftovers:
    """The parts of this process's caches that no later epoch reads. Without end, they would fill their limits."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta, self._ssts = meta, frozenset[str]()

    def forget(self) -> None:
        """Forget the footers of files that are taken, and SSTs that the newest version does not have any more."""
        forget_old_footers()
        if (version := self._meta.newest_seen) is None:
            return
        unpaged = (level for level in version.levels if not isinstance(level, PagedLevel))  # pages would be read
        ssts = frozenset(sst.name for level in unpaged for sst in level)
        if gone := self._ssts - ssts:
            process_cache().forget_ssts(self._meta.objects.uri, gone)
        self._ssts = ssts


def _run_turn(
    turn: Turn, every_s: float, stop: Event, run: Callable[[], object], progress: Progress, leftovers: _Leftovers
) -> None:
    last_error, pause_s = "", every_s
    while turn.has_turn() and not stop.is_set():
        began = time.monotonic()
        try:
            run()
            if last_error:
                progress("the epochs run again")
            last_error, pause_s = "", every_s
        except MustStopError as err:  # another run was first, and did the same
            progress(str(err))
        except TussockError as err:
            if (text := f"error: {error_text(err)}") != last_error:
                progress(text)
            last_error = text
            pause_s = min(max(2 * pause_s, 1.0), MOST_PAUSE_S) if isinstance(err, RetryableError) else every_s
        leftovers.forget()
        stop.wait(max(0.0, began + pause_s - time.monotonic()))
