"""The workers of this process, as the driver sees them: start them, give them an epoch, collect their cells.

driver ── a line each ── workers ── a socket per pair and epoch ── workers
   └───── fork server (reports how a worker ended)

No wait is without a deadline: for the start, for giving an epoch to the workers, and for a worker's next sign of life.
"""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from selectors import EVENT_READ

import pyarrow as pa

from tussock.jobs.chunks.failure import TaskError, carried_failure
from tussock.jobs.exchange import peers
from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline
from tussock.jobs.wire.epoch_task import EpochTask, cells_in
from tussock.jobs.wire.measured import Report
from tussock.jobs.workers.fork_server import EXIT_S
from tussock.jobs.workers.line import Line, SignOfLife
from tussock.jobs.workers.worker import GIVE_S, IDLE_S, Answer, End, WorkerFailure, WorkerProgress, WorkerTask
from tussock.statestore.errors import RetryableError
from tussock.statestore.forks import new_lock, renew_in_child
from tussock.statestore.meta.work import HowFar

log = logging.getLogger(__name__)

START_S = 30.0  # until the fork server has imported the engine; then epochs run without it, until it has
SILENT_S = 60.0  # without a sign of life from a worker that runs an epoch
_REPORT_S = 2.0  # until the fork server has reported the end of a worker
_STATES = {"T": "it is stopped", "D": "it waits for a disk or a network file system", "Z": "it has ended"}
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

    reason: str

    def __str__(self) -> str:
        return (
            f"{self.reason}. Nothing of the epoch was committed, and running it again is safe. If this repeats, the "
            "host may have too little memory: use fewer workers, with Session(…, workers=1) or with workers = 1 in "
            "[epoch] of pipeline.toml."
        )


class WorkerPool:
    """Some worker processes. They run one epoch at a time."""

    def __init__(self, count: int) -> None:
        """Begin to start `count` workers. Cost: a second, for imports, until they have started."""
        self.count, self._pid, self._used = count, world.process_id(), world.now_s()
        self._pids_of_workers: list[int] = []
        self._starts = Deadline(START_S)
        own, theirs = zip(*(world.create_pair() for _ in range(count + 1)), strict=True)
        # A forked child closes these ends, as all channels: the workers end with the last of them.
        self._server, *self._workers = (Line(end) for end in own)
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

    def have_started(self, deadline: Deadline | None = None) -> bool:
        """Whether the workers have started. Wait for it until the deadline, by default START_S after their begin.

        Raises WorkerLostError if they cannot start.
        """
        if not self._pids_of_workers:
            try:
                if not self._server.has_news(self._starts if deadline is None else deadline):
                    return False
                self._pids_of_workers = self._server.receive(Deadline(_REPORT_S))
            except OSError as err:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_REPORT_S)
                status = self._process.returncode
                self.close(at_once=True)
                raise WorkerLostError(
                    f"the worker processes did not start: status {status}, and the reason is in the standard error "
                    "output"
                ) from err
        return True

    @property
    def _worker_pids(self) -> list[int]:
        """The process ids of the workers; empty if they do not start in time."""
        self.have_started()
        return self._pids_of_workers

    @property
    def is_usable(self) -> bool:
        """Whether all workers live in this process's pool, or start, and will live for a while without work."""
        if self._pid != world.process_id() or self._server.is_closed or world.now_s() - self._used >= IDLE_S / 2:
            return False
        return not self._pids_of_workers or not self._server.has_news(Deadline(0))

    def run(self, task: EpochTask, workers: int, far: HowFar, report: Report) -> pa.Table:
        """Run an epoch's levels, and the flush if units exchange it. Returns the cells for the driver.

        Args:
            workers: how many take part, at most as many as there are units.
            far, report: as in LevelsToRun.

        Raises: WorkerLostError; retryable errors of the store. Other errors are among the cells (Mail.FAILURE).
        """
        count = min(workers, task.unit_count)
        done, total = dict.fromkeys(range(count), 0), task.unit_count * len(task.schedule.levels)
        far.ask = lambda: (sum(done.values()), total)
        answer_by_rank: dict[int, End | WorkerFailure] = {}
        try:
            self._send_work(WorkerTask(task, count, dict(os.environ)))
            for rank, answer in self._collect_answers(count):
                match answer:
                    case SignOfLife():
                        pass
                    case WorkerProgress():
                        done[rank] = answer.done
                    case End() | WorkerFailure():
                        answer_by_rank[rank] = answer
                    case _:
                        report(answer)
        except BaseException:  # the others may be at work
            self.close(at_once=True)
            raise
        self._used = world.now_s()
        if failed := [answer.text for answer in answer_by_rank.values() if isinstance(answer, WorkerFailure)]:
            raise cause_of_failures(failed)
        return cells_in(answer.cells for answer in answer_by_rank.values() if isinstance(answer, End))

    def _send_work(self, work: WorkerTask) -> None:
        """Give workers their work, and to each pair a pair of sockets, within one deadline for all."""
        deadline = Deadline(GIVE_S)
        kept_streams: dict[tuple[int, int], socket.socket] = {}  # by owner and peer
        for rank in range(work.count):
            for later in range(rank + 1, work.count):
                kept_streams[rank, later], kept_streams[later, rank] = world.create_pair()
            ends = [kept_streams.pop((rank, peer)) for peer in range(work.count) if peer != rank]
            try:
                self._workers[rank].send(work, deadline)
                if ends:
                    self._workers[rank].send_files([end.fileno() for end in ends], deadline)
            except TimeoutError as err:
                raise self._silent_error([rank], f"did not take its part of an epoch within {deadline}") from err
            except OSError as err:
                raise self._lost_error(rank) from err
            finally:
                for end in ends:
                    end.close()

    def _collect_answers(self, count: int) -> Iterator[tuple[int, Answer]]:
        """The answers of workers until all have ended their part.

        Each answer and each sign of life shows that its worker runs. Once one worker has failed, the others meet its
        end at the latest after the patience of an exchange.
        """
        lives = {rank: Deadline(SILENT_S) for rank in range(count)}
        hurry: Deadline | None = None
        with world.Selector() as selector:
            for rank in lives:
                selector.register(self._workers[rank], EVENT_READ, rank)
            while lives:
                wait_s = min(life.left_s for life in lives.values())
                ready = [key.data for key, _ in selector.select(wait_s)]
                for rank in ready:
                    answer = self._answer_of(rank, lives[rank])
                    if isinstance(answer, WorkerFailure) and hurry is None:
                        hurry = Deadline(2 * peers.PATIENCE_S)
                    if isinstance(answer, End | WorkerFailure):
                        selector.unregister(self._workers[rank])
                        del lives[rank]
                    yield rank, answer
                if not ready and (silent := [rank for rank, life in lives.items() if life.has_passed]):
                    raise self._silent_error(silent, f"gave no sign of life for {SILENT_S:g} s")
                if hurry is not None and hurry.has_passed and lives:
                    raise self._silent_error(sorted(lives), f"did not end within {hurry} after another one had failed")

    def _answer_of(self, rank: int, life: Deadline) -> Answer:
        life.renew()
        try:
            answer: Answer = self._workers[rank].receive(life)
        except TimeoutError as err:
            raise self._silent_error([rank], f"stopped in the middle of an answer for {life}") from err
        except OSError as err:
            raise self._lost_error(rank) from err
        return answer

    def _silent_error(self, ranks: Sequence[int], reason: str) -> WorkerLostError:
        shown = [f"{rank}{_state_of(self._pids_of_workers[rank])}" for rank in ranks if self._pids_of_workers]
        return WorkerLostError(f"worker process {' and '.join(shown)} of {self.count} {reason}")

    def _lost_error(self, rank: int) -> WorkerLostError:
        ended, deadline = "ended", Deadline(_REPORT_S)
        with suppress(OSError):
            while self._server.has_news(deadline):
                one, code = self._server.receive(Deadline(_REPORT_S))
                if one == rank:
                    ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
                    break
        return WorkerLostError(f"worker process {rank} of {self.count} {ended} in the middle of an epoch")

    def close(self, *, at_once: bool = False) -> None:
        """End the workers. `at_once`: even if they are at work."""
        if self._pid != world.process_id():
            return
        if at_once:
            for pid in self._pids_of_workers:
                with suppress(ProcessLookupError):
                    world.kill_process(pid, signal.SIGKILL)
        for line in (*self._workers, self._server):
            line.close()
        try:
            self._process.wait(2 * EXIT_S)
        except subprocess.TimeoutExpired:  # it stands still, or has not started
            with suppress(ProcessLookupError):
                world.kill_process(-self._process.pid, signal.SIGKILL)  # and all of its group
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT_S)


def _state_of(pid: int) -> str:
    """Why a process may be silent, in parentheses, if the system shows it."""
    with suppress(OSError, IndexError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return f" ({_STATES[state]})" if state in _STATES else ""
    return ""


def cause_of_failures(texts: Sequence[str]) -> Exception:
    """The error of an epoch in which workers failed: the loss of another worker only if there is no other cause."""
    errors = [carried_failure(error) or error for error in map(TaskError, texts)]
    return min(errors, key=lambda error: isinstance(error, peers.PeerLostError))


class _OfProcess:
    """The pool of this process, and a lock that is held while an epoch uses it."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.pool: WorkerPool | None = None

    def forget_pool(self) -> None:
        """Leave the pool to the parent, in a forked child."""
        self.pool = None


_of_process = _OfProcess()
renew_in_child(_of_process.forget_pool)


@contextmanager
def worker_pool(count: int) -> Iterator[WorkerPool | str]:
    """This process's pool of at least `count` workers, started on first use; or the reason why it cannot be used.

    Raises WorkerLostError.
    """
    if not _of_process.lock.acquire(blocking=False):
        yield "another epoch uses the workers"
        return
    try:
        pool = _of_process.pool
        if pool is None or pool.count < count or not pool.is_usable:
            if pool is not None:
                pool.close()
            pool = _of_process.pool = WorkerPool(count)
        if pool.have_started():
            yield pool
        else:
            log.warning("the worker processes have not started within %.0f s", START_S)
            yield f"the workers have not started within {START_S:.0f} s"
    finally:
        _of_process.lock.release()


def pool_runs(count: int) -> bool:
    """Whether at least `count` workers run already and no epoch uses them."""
    pool = _of_process.pool
    if pool is None or pool.count < count or _of_process.lock.locked() or not pool.is_usable:
        return False
    try:
        return pool.have_started(Deadline(0))
    except WorkerLostError:  # the next epoch that is worth workers tries again, and raises it
        return False
