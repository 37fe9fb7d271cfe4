"""A process that imports the engine once, and forks the workers.

It is a process of its own because a process with threads, such as the driver's, must not fork. It reports how workers
end, and ends with them when the driver closes the connection, so also when the driver dies.
"""

import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterable
from contextlib import suppress
from selectors import EVENT_READ
from typing import NamedTuple, NoReturn

from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline
from tussock.jobs.workers.budgets import budgets_here
from tussock.jobs.workers.line import Line
from tussock.jobs.workers.worker import serve_driver
from tussock.statestore.local_disk import LOCAL_DIRS, TemporaryFolder

EXIT_S = 5.0  # for the workers to end after the driver
_TELL_S = 60.0  # for the driver to take a report


class _Worker(NamedTuple):
    rank: int
    pid: int


def main() -> None:
    """Fork a worker per file descriptor. Arguments: the server's own descriptor, then the workers'."""
    server_fd, *fds = map(int, sys.argv[1:])
    with TemporaryFolder("workers") as folder:
        tempfile.tempdir = os.environ[LOCAL_DIRS] = folder  # a worker that is killed leaves files behind
        workers: dict[int, _Worker] = {}  # by the end of a pipe whose other end is open while the worker lives
        for rank, fd in enumerate(fds):
            alive, held_end = os.pipe()
            if (pid := os.fork()) == 0:
                _become_worker(rank, fd, len(fds), {server_fd, alive, *workers, *fds} - {fd})
            os.close(held_end)
            workers[alive] = _Worker(rank, pid)
        for fd in fds:
            os.close(fd)
        _watch_workers(Line(socket.socket(fileno=server_fd)), workers)


def _watch_workers(driver: Line, workers: dict[int, _Worker]) -> None:
    """Report the end of each worker, until the driver closes the line. Then end all of them."""
    with suppress(OSError):
        driver.send([worker.pid for worker in workers.values()], Deadline(_TELL_S))
        while workers:
            ready = _wait_for_news([driver, *workers])
            for end in _reap_ended(workers, ready):
                driver.send(end, Deadline(_TELL_S))
            if driver in ready:
                break
    deadline = Deadline(EXIT_S)  # each worker sees the end of its line
    while workers and (ready := _wait_for_news([*workers], deadline)):
        _reap_ended(workers, ready)
    for worker in workers.values():
        world.kill_process(worker.pid, signal.SIGKILL)


def _wait_for_news(lines: Iterable[Line | int], deadline: Deadline | None = None) -> list[object]:
    """The lines and ends of pipes that have news; none after the deadline."""
    with world.Selector() as selector:
        for line in lines:
            selector.register(line, EVENT_READ)
        return [key.fileobj for key, _ in selector.select(None if deadline is None else deadline.left_s)]


def _reap_ended(workers: dict[int, _Worker], ready: Iterable[object]) -> list[tuple[int, int]]:
    """Rank and exit code of each worker that has ended; the code is negative for a signal."""
    exits = []
    for alive in workers.keys() & set(ready):
        rank, pid = workers.pop(alive)
        os.close(alive)
        exits.append((rank, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    return exits


def _become_worker(rank: int, own: int, count: int, others: set[int]) -> NoReturn:
    status = 1
    try:
        for fd in others:
            os.close(fd)
        serve_driver(Line(socket.socket(fileno=own)), rank, budgets_here(count))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # the exit handlers belong to the fork server
