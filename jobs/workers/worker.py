"""A worker process: runs the levels of epochs on its units, until the driver closes the connection.

For each epoch the driver sends a WorkerTask, and then one socket for each other worker. The worker answers with
measurements and its progress, and at the end with its cells or with an error. A worker that gets nothing to do for
IDLE_S ends, which frees its memory.
"""

import os
import pickle
import socket
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recvfds

from tussock.jobs.exchange.mailbox import Mailbox
from tussock.jobs.exchange.peers import Peers
from tussock.jobs.flow.failure import TaskError
from tussock.jobs.settings.logs import configure_logging
from tussock.jobs.task.collector import collect_own_garbage
from tussock.jobs.task.stage import flushed, run_stage
from tussock.jobs.wire.epoch_task import EpochTask, cells_of
from tussock.jobs.wire.measured import Measurement
from tussock.jobs.workers.budgets import Budgets
from tussock.statestore.allocator import keep_freed_memory
from tussock.statestore.local_disk import LOCAL_DIRS

IDLE_S = 600.0


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
class Failed:
    """A worker could not do its part. `text`: of the error, which `carried_failure` finds in it if it is ours."""

    text: str


Answer = WorkerProgress | Measurement | End | Failed


def serve(driver: Connection, rank: int, budgets: Budgets) -> None:
    """Run epochs as worker `rank`, until the driver closes the connection, or sends none for IDLE_S."""
    configure_logging()
    keep_freed_memory()
    budgets.apply()
    while (given := _received(driver)) is not None:
        _adopt(given.environment)
        connections = _connections(driver, rank, given.count)
        answer = _answer(driver, rank, given, connections, budgets.mail)
        try:
            driver.send(answer)
        except BrokenPipeError:  # the driver is gone
            return
        collect_own_garbage()


def _received(driver: Connection) -> WorkerTask | None:
    """The next task; None if the driver is gone, or was idle for too long."""
    try:
        return pickle.loads(driver.recv_bytes()) if driver.poll(IDLE_S) else None
    except (EOFError, ConnectionResetError):
        return None


def _adopt(environment: Mapping[str, str]) -> None:
    """Use the driver's variables, except the folder for temporary files. They may have changed since the last epoch."""
    wanted = {**environment, LOCAL_DIRS: os.environ[LOCAL_DIRS]}
    if dict(os.environ) != wanted:
        os.environ.clear()
        os.environ.update(wanted)


def _connections(driver: Connection, own: int, count: int) -> dict[int, tuple[str, socket.socket]]:
    ranks = [rank for rank in range(count) if rank != own]
    if not ranks:
        return {}
    with socket.socket(fileno=os.dup(driver.fileno())) as channel:
        return {
            rank: (f"worker {rank}", socket.socket(fileno=fd))
            for rank, fd in zip(ranks, recvfds(channel, len(ranks)), strict=True)
        }


def _answer(
    driver: Connection, rank: int, given: WorkerTask, connections: dict[int, tuple[str, socket.socket]], mail_bytes: int
) -> End | Failed:
    task, owners = given.task, [unit % given.count for unit in range(given.task.unit_count)]
    peers = Peers(
        rank,
        owners,
        connections,
        Mailbox(connections, kept_bytes=mail_bytes),
        lambda done: driver.send(WorkerProgress(done)),
    )
    try:
        with peers:
            cells = run_stage(task, range(len(task.schedule.levels)), peers, iter(()), driver.send)
            if task.policy.may_exchange(task.expected, task.unit_count):
                cells = flushed(task, cells, peers, driver.send)
            return End(cells_of(cells))
    except TaskError as err:
        return Failed(str(err))
    except Exception:
        return Failed(traceback.format_exc())
