"""The workers of this process, as the driver sees them: start them, give them an epoch, collect their cells.

driver ── a connection each ── workers ── a socket per pair and epoch ── workers
   └───── fork server (reports how a worker ended)
"""

import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import sendfds

import pyarrow as pa

from tussock.jobs.exchange import peers
from tussock.jobs.flow.failure import TaskError, carried_failure
from tussock.jobs.outside import world
from tussock.jobs.wire.epoch_task import EpochTask, cells_in
from tussock.jobs.wire.measured import Report
from tussock.jobs.workers.worker import IDLE_S, Answer, End, Failed, WorkerProgress, WorkerTask
from tussock.statestore.errors import RetryableError
from tussock.statestore.forks import close_in_child, new_lock, renew_in_child
from tussock.statestore.meta.work import HowFar

log = logging.getLogger(__name__)

_START_S = 60.0  # until the fork server has imported the engine
_REPORT_S = 2.0  # until the fork server has reported the end of a worker
_SERVER = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop())
from tussock.jobs.settings.arrow import leave_pandas
leave_pandas()
from tussock.jobs.workers.fork_server import main
main()
"""


class WorkerLostError(RetryableError):
    """A worker process ended while it ran an epoch, or the workers did not start."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.reason}. Nothing of the epoch was committed, and running it again is safe. If this repeats, the "
            "host may have too little memory: use fewer workers, with Session(…, workers=1) or with workers = 1 in "
            "[epoch] of pipeline.toml."
        )


class WorkerPool:
    """Some worker processes. They run one epoch at a time."""

    def __init__(self, count: int) -> None:
        """Start `count` workers. Cost: a second, for imports. Raises WorkerLostError."""
        self.count, self._pid, self._used = count, world.process_id(), world.now_s()
        own, theirs = zip(*(world.create_pair() for _ in range(count + 1)), strict=True)
        # A forked child must not hold these ends: the workers end with the last of them.
        self._server, *self._workers = (close_in_child(Connection(end.detach())) for end in own)
        fds = [end.fileno() for end in theirs]
        self._process = world.start_process(
            [sys.executable, "-c", _SERVER, *map(str, fds), json.dumps(sys.path)],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            stdout=2,  # prints of users' functions must not mix with the driver's output
            start_new_session=True,  # Ctrl-C reaches the driver only
        )
        for end in theirs:
            end.close()
        try:
            if not self._server.poll(_START_S):
                raise WorkerLostError(f"the worker processes did not start within {_START_S:.0f} s")
            self._pids: list[int] = self._server.recv()
        except (EOFError, OSError) as err:
            status = self._process.wait(_REPORT_S)
            raise WorkerLostError(
                f"the worker processes did not start: status {status}, and the reason is in the standard error output"
            ) from err

    @property
    def usable(self) -> bool:
        """Whether all workers live in this process's pool and will live for a while without work."""
        idle = world.now_s() - self._used
        return (
            self._pid == world.process_id()
            and not self._server.closed
            and not self._server.poll(0)
            and idle < IDLE_S / 2
        )

    def run(
        self, task: EpochTask, workers: int, far: HowFar, report: Report, before: tuple[int, int] = (0, 0)
    ) -> pa.Table:
        """Run an epoch's levels, and the flush if units exchange it. Returns the cells for the driver.

        Args:
            workers: how many take part, at most as many as there are units.
            far, report: as in LevelsToRun.
            before: the progress of an attempt, which counts too.

        Raises: WorkerLostError; retryable errors of the store. Other errors are among the cells (Mail.FAILURE).
        """
        count = min(workers, task.unit_count)
        done, total = dict.fromkeys(range(count), 0), task.unit_count * len(task.schedule.levels)
        far.ask = lambda: (before[0] + sum(done.values()), before[1] + total)
        try:
            self._send(WorkerTask(task, count, dict(os.environ)))
            found: dict[int, End | Failed] = {}
            while len(found) < count:
                for rank, answer in self._answers(found, count):
                    match answer:
                        case WorkerProgress():
                            done[rank] = answer.done
                        case End() | Failed():
                            found[rank] = answer
                        case _:
                            report(answer)
        except BaseException:  # the others may be at work
            self.close(at_once=True)
            raise
        self._used = world.now_s()
        if failed := [answer.text for answer in found.values() if isinstance(answer, Failed)]:
            raise cause_of_failures(failed)
        return cells_in(answer.cells for answer in found.values() if isinstance(answer, End))

    def _send(self, work: WorkerTask) -> None:
        """Give workers their work, and to each pair a pair of sockets."""
        data = pickle.dumps(work, pickle.HIGHEST_PROTOCOL)
        kept: dict[tuple[int, int], socket.socket] = {}  # by owner and peer
        for rank in range(work.count):
            for later in range(rank + 1, work.count):
                kept[rank, later], kept[later, rank] = world.create_pair()
            ends = [kept.pop((rank, peer)) for peer in range(work.count) if peer != rank]
            try:
                self._workers[rank].send_bytes(data)
                if ends:
                    with socket.socket(fileno=os.dup(self._workers[rank].fileno())) as channel:
                        sendfds(channel, [end.fileno() for end in ends])
            except OSError as err:
                raise self._lost(rank) from err
            finally:
                for end in ends:
                    end.close()

    def _answers(self, found: dict[int, End | Failed], count: int) -> Iterator[tuple[int, Answer]]:
        """The next answers of workers that have not ended their part.

        Once one has failed, the others meet its end at the latest after the patience of an exchange.
        """
        waiting = {self._workers[rank]: rank for rank in range(count) if rank not in found}
        hurry = any(isinstance(answer, Failed) for answer in found.values())
        if not (ready := wait(list(waiting), 2 * peers.PATIENCE_S if hurry else None)):
            raise WorkerLostError(f"worker processes {sorted(waiting.values())} do not answer")
        for connection in ready:
            assert isinstance(connection, Connection)
            try:
                yield waiting[connection], connection.recv()
            except (EOFError, OSError) as err:
                raise self._lost(waiting[connection]) from err

    def _lost(self, rank: int) -> WorkerLostError:
        ended = "ended"
        with suppress(EOFError, OSError):
            while self._server.poll(_REPORT_S):
                one, code = self._server.recv()
                if one == rank:
                    ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
                    break
        return WorkerLostError(f"worker process {rank} of {self.count} {ended} in the middle of an epoch")

    def close(self, *, at_once: bool = False) -> None:
        """End the workers. `at_once`: even if they are at work."""
        if self._pid != world.process_id():
            return
        if at_once:
            for pid in self._pids:
                with suppress(ProcessLookupError):
                    world.kill_process(pid, signal.SIGKILL)
        for connection in (*self._workers, self._server):
            connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_START_S)


def cause_of_failures(texts: Sequence[str]) -> Exception:
    """The error of an epoch in which workers failed: the loss of another worker only if there is no other cause."""
    errors = [carried_failure(error) or error for error in map(TaskError, texts)]
    return min(errors, key=lambda error: isinstance(error, peers.PeerLostError))


class _OfProcess:
    """The pool of this process, and a lock that is held while an epoch uses it."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.pool: WorkerPool | None = None

    def forget(self) -> None:
        """Leave the pool to the parent, in a forked child."""
        self.pool = None


_of_process = _OfProcess()
renew_in_child(_of_process.forget)


@contextmanager
def worker_pool(count: int) -> Iterator[WorkerPool | None]:
    """This process's pool of at least `count` workers, started on first use. None if another thread uses the pool.

    Raises WorkerLostError.
    """
    if not _of_process.lock.acquire(blocking=False):
        yield None
        return
    try:
        pool = _of_process.pool
        if pool is None or pool.count < count or not pool.usable:
            if pool is not None:
                pool.close()
            started = world.now_s()
            pool = _of_process.pool = WorkerPool(count)
            log.info("started %d worker processes in %.1f s", count, world.now_s() - started)
        yield pool
    finally:
        _of_process.lock.release()


def pool_runs(count: int) -> bool:
    """Whether at least `count` workers run already and no epoch uses them."""
    pool = _of_process.pool
    return pool is not None and pool.count >= count and not _of_process.lock.locked() and pool.usable
