"""A worker process: runs the levels of epochs on its units, until the driver closes the connection.

For each epoch the driver sends a WorkerTask, and then one socket for each other worker. The worker answers with
measurements and its progress, and at the end with its cells or with an error. A worker that gets nothing to do for
IDLE_S ends, which frees its memory.
"""

import os
import pickle
import socket
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recvfds

import pyarrow as pa

from tussock.jobs.exchange.mailbox import Mailbox
from tussock.jobs.exchange.peers import Peers
from tussock.jobs.flow.failure import TaskError
from tussock.jobs.settings.local_disk import LOCAL_DIRS
from tussock.jobs.settings.logs import configure_logging
from tussock.jobs.task.collector import collect_own_garbage
from tussock.jobs.task.stage import flushed, run_stage
from tussock.jobs.wire.cell import CELL_SCHEMA
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.measured import Measurement
from tussock.jobs.workers.budgets import Budgets
from tussock.statestore.allocator import keep_freed_memory

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
    """A worker could not do its part.

    Args:
        text: the error's text, with the error in it if `carried_failure` finds it.
        lost_peer: whether another worker's end is the reason. Then that worker's error says more.
    """

    text: str
    lost_peer: bool


Answer = WorkerProgress | Measurement | End | Failed


def serve(driver: Connection, rank: int, budgets: Budgets) -> None:
    """Run epochs as worker `rank`, until the driver closes the connection, or sends none for IDLE_S."""
    configure_logging()
    keep_freed_memory()
    budgets.apply()
    try:
        while driver.poll(IDLE_S):
            given: WorkerTask = pickle.loads(driver.recv_bytes())
            _adopt(given.environment)
            connections = _connections(driver, rank, given.count)
            driver.send(_answer(driver, rank, given, connections, budgets.mail))
            collect_own_garbage()
    except (EOFError, OSError):  # the driver is gone
        return


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
            return End(_stream(cells))
    except TaskError as err:
        return Failed(str(err), "PeerLostError" in str(err))
    except Exception:
        return Failed(traceback.format_exc(), lost_peer=False)


def _stream(cells: Iterator[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, CELL_SCHEMA) as writer:
        for batch in cells:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
