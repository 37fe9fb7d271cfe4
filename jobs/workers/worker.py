"""A worker process: runs the levels of epochs on its units, until the driver closes the connection.

For each epoch the driver sends a WorkerTask, and then one socket for each other worker. The worker answers with
measurements and its progress, and at the end with its cells or with an error. While it works, it sends a sign of life
every BEAT_S. A worker that gets nothing to do for IDLE_S ends, which frees its memory. So does one whose driver takes
nothing for so long.
"""

import os
import socket
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tussock.jobs.chunks.failure import TaskError
from tussock.jobs.exchange.channel import Channel
from tussock.jobs.exchange.mailbox import Mailbox
from tussock.jobs.exchange.peers import BEAT_S, Peers
from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline
from tussock.jobs.settings.logs import configure_logging
from tussock.jobs.task.collector import collect_own_garbage
from tussock.jobs.task.stage import run_stage
from tussock.jobs.wire.epoch_task import EpochTask, cells_of
from tussock.jobs.wire.measured import Measurement
from tussock.jobs.workers.budgets import Budgets
from tussock.jobs.workers.line import Line, SignOfLife
from tussock.statestore.allocator import keep_freed_memory
from tussock.statestore.local_disk import LOCAL_DIRS

IDLE_S = 600.0
GIVE_S = 60.0  # for the driver to give an epoch to all workers


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """An epoch. Unit `u` belongs to worker `u % count`. `environment`: the driver's variables, such as credentials."""

    task: EpochTask
    count: int
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """How many levels a worker has done, counted once per unit."""

    done: int


@dataclass(frozen=True, slots=True)
class End:
    """A worker has done its part. `cells`: those for the driver, as an Arrow stream."""

    cells: bytes


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A worker could not do its part. `text`: of the error, which `carried_failure` finds in it if it is ours."""

    text: str


Answer = WorkerProgress | Measurement | End | WorkerFailure | SignOfLife


def serve_driver(driver: Line, rank: int, budgets: Budgets) -> None:
    """Run epochs as worker `rank`, until the driver closes the line, or sends none for IDLE_S."""
    configure_logging()
    keep_freed_memory()
    budgets.apply_limits()
    try:
        while True:
            task: WorkerTask = driver.receive(Deadline(IDLE_S))
            _adopt_environment(task.environment)
            with _signs_of_life(driver):
                connections = _receive_connections(driver, rank, task.count)
                answer = _run_task(driver, rank, task, connections, budgets.mail)
                _send_answer(driver, answer)
            collect_own_garbage()
    except OSError:  # the driver is gone, or was idle for too long
        return


def _send_answer(driver: Line, answer: Answer) -> None:
    driver.send(answer, Deadline(IDLE_S), renews=True)


@contextmanager
def _signs_of_life(driver: Line) -> Iterator[None]:
    """Send signs of life to the driver during the block, from a thread."""
    over, is_over = world.Condition(), False

    def run() -> None:
        with over:
            while not over.wait_for(lambda: is_over, BEAT_S):
                driver.send_sign_of_life()

    thread = world.Thread(target=run, name="tussock-life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with over:
            is_over = True
            over.notify()
        thread.join()


def _adopt_environment(environment: Mapping[str, str]) -> None:
    """Use the driver's variables, except the folder for temporary files. They may have changed since the last epoch."""
    wanted = {**environment, LOCAL_DIRS: os.environ[LOCAL_DIRS]}
    if dict(os.environ) != wanted:
        os.environ.clear()
        os.environ.update(wanted)


def _receive_connections(driver: Line, own: int, count: int) -> dict[int, tuple[str, Channel]]:
    if not (ranks := [rank for rank in range(count) if rank != own]):
        return {}
    files = driver.receive_files(len(ranks), Deadline(GIVE_S))
    return {
        rank: (f"worker {rank}", Channel(socket.socket(fileno=file))) for rank, file in zip(ranks, files, strict=True)
    }


def _run_task(
    driver: Line, rank: int, given: WorkerTask, connections: dict[int, tuple[str, Channel]], mail_bytes: int
) -> End | WorkerFailure:
    task, owners = given.task, [unit % given.count for unit in range(given.task.unit_count)]
    peers = Peers(
        rank,
        owners,
        connections,
        Mailbox(connections, kept_bytes=mail_bytes),
        lambda done: _send_answer(driver, WorkerProgress(done)),
    )
    try:
        with peers:
            levels = range(len(task.schedule.levels))
            return End(cells_of(run_stage(task, levels, peers, report=partial(_send_answer, driver))))
    except TaskError as err:
        return WorkerFailure(str(err))
    except Exception:
        return WorkerFailure(traceback.format_exc())
