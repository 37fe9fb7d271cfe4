"""A worker, a fork server or a driver that stands still delays nothing beyond its deadline."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.support.waiting import eventually
from tests.unit.jobs.workers.test_pool import WORKERS, lives, ran, workers
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver import runner as runners
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline
from tussock.jobs.workers import pool, worker
from tussock.jobs.workers.line import Line, LineClosedError, SignOfLife
from tussock.jobs.workers.pool import WorkerLostError, WorkerPool
from tussock.jobs.workers.worker import End, WorkerProgress, WorkerTask
from tussock.statestore.meta.store import MetaStore

SHORT_S, SOON_S = 1.0, 15.0


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "WORTH_WORKERS_BYTES", 0)
    for name in ("GIVE_S", "SILENT_S", "EXIT_S"):
        monkeypatch.setattr(pool, name, SHORT_S)


def give_workers_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no worker stands still. A slow machine may take a second for a sign of life."""
    for name in ("GIVE_S", "SILENT_S"):
        monkeypatch.setattr(pool, name, 60.0)


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    meta = new_store(tmp_path / "store", units=2)
    append(meta, table("t"), view("v", counted(scan("t"), 1)))
    insert(meta, "t", (0, 0, 0))
    epoch(meta)
    insert(meta, "t", *((k, k % 40, k) for k in range(1, 300)))
    return meta


def seconds_until_lost(work: Callable[[], object]) -> tuple[float, str]:
    began = time.monotonic()
    with pytest.raises(WorkerLostError) as raised:
        work()
    return time.monotonic() - began, str(raised.value)


@pytest.mark.parametrize("stopped", [1, WORKERS])
def test_a_stopped_worker_fails_the_epoch_which_can_run_again(
    stopped: int, meta: MetaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier, before = inject_barrier(meta), workers()
    assert barrier is not None
    for pid in before[:stopped]:
        os.kill(pid, signal.SIGSTOP)
    seconds, text = seconds_until_lost(lambda: run_epoch(LocalRunner(workers=WORKERS), meta, barrier))
    assert seconds < SOON_S
    assert "worker process 0 (it is stopped)" in text
    eventually("the workers end", lambda: not any(map(lives, before)))
    give_workers_time(monkeypatch)
    run_epoch(LocalRunner(workers=WORKERS), meta, barrier)
    assert len(rows(meta, "t")) == 300


def test_a_stopped_worker_does_not_block_a_task_larger_than_its_buffer() -> None:
    started = WorkerPool(WORKERS)
    os.kill(started._worker_pids[0], signal.SIGSTOP)
    work = WorkerTask(b"x" * 3_000_000, WORKERS, dict(os.environ))  # type: ignore[arg-type]
    seconds, text = seconds_until_lost(lambda: started._send_work(work))
    assert seconds < SOON_S
    assert f"worker process 0 (it is stopped) of 2 did not take its part of an epoch within {SHORT_S:g} s" in text
    started.close(at_once=True)


@pytest.fixture
def stopped_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The next fork server stands still from its start on. Yields its process id."""
    found = list[int]()

    def start(*args, **more):  # type: ignore[no-untyped-def]
        process = subprocess.Popen(*args, **more)
        os.kill(process.pid, signal.SIGSTOP)
        found.append(process.pid)
        return process

    old = pool._of_process.pool
    if old is not None:
        old.close()
    monkeypatch.setattr(pool._of_process, "pool", None)
    monkeypatch.setattr(pool, "START_S", SHORT_S)
    with monkeypatch.context() as patched:
        patched.setattr(world, "start_process", start)
        yield found
    if pool._of_process.pool is not None:
        pool._of_process.pool.close(at_once=True)


def test_the_epoch_runs_in_the_driver_while_the_workers_start(
    meta: MetaStore, stopped_server: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    epoch(meta, LocalRunner(workers=WORKERS))
    assert time.monotonic() - began < SOON_S
    assert ran(meta) == "in the driver's process, because the workers have not started within 1 s"
    os.kill(stopped_server[0], signal.SIGCONT)
    starting = pool._of_process.pool
    assert starting is not None
    eventually("the workers start", lambda: starting.have_started(Deadline(0)))
    insert(meta, "t", *((k, k % 40, k) for k in range(300, 600)))
    give_workers_time(monkeypatch)
    epoch(meta, LocalRunner(workers=WORKERS))
    assert ran(meta) == "on 2 workers of the driver's host"
    assert len(stopped_server) == 1, "the first fork server is used"


def test_a_stopped_fork_server_is_killed_in_the_end(stopped_server: list[int]) -> None:
    started = WorkerPool(WORKERS)
    began = time.monotonic()
    started.close()
    assert time.monotonic() - began < SOON_S
    eventually("the fork server ends", lambda: not lives(stopped_server[0]))


def pool_of(*lines: Line) -> WorkerPool:
    """A pool whose workers are the other ends of these lines."""
    found = WorkerPool.__new__(WorkerPool)
    found.count, found._workers, found._pids_of_workers = len(lines), list(lines), [os.getpid()] * len(lines)
    return found


def pair() -> tuple[Line, Line]:
    one, other = socket.socketpair()
    return Line(one), Line(other)


def test_a_worker_that_computes_for_long_and_shows_life_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BEAT_S", 0.1)
    monkeypatch.setattr(pool, "SILENT_S", 1.5)
    driver, theirs = pair()

    def work() -> None:
        with worker._signs_of_life(theirs):
            deadline = Deadline(2.5)
            while not deadline.has_passed:
                sum(range(1000))
            worker._send_answer(theirs, End(b"cells"))

    thread = Thread(target=work)
    thread.start()
    answers = [answer for _, answer in pool_of(driver)._collect_answers(1)]
    thread.join(10)
    assert isinstance(answers[-1], End)
    assert sum(isinstance(one, SignOfLife) for one in answers) > 3


def test_a_worker_that_only_another_one_hears_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life of one worker are none of another."""
    monkeypatch.setattr(worker, "BEAT_S", 0.1)
    lines = [pair() for _ in range(2)]
    with worker._signs_of_life(lines[0][1]):
        seconds, text = seconds_until_lost(lambda: list(pool_of(*(driver for driver, _ in lines))._collect_answers(2)))
    assert seconds < SOON_S
    assert "worker process 1 of 2 gave no sign of life for 1 s" in text


def test_an_answer_that_stops_in_its_middle_is_lost() -> None:
    driver, theirs = pair()
    theirs.send(WorkerProgress(1), Deadline(5))
    theirs._channel.send([memoryview(b"\0" * 6 + b"\1\0half of a message")])
    answers = pool_of(driver)._collect_answers(1)
    assert next(answers) == (0, WorkerProgress(1))
    seconds, text = seconds_until_lost(lambda: next(answers))
    assert seconds < SOON_S
    assert "stopped in the middle of an answer" in text


def test_a_line_whose_other_end_takes_nothing_times_out() -> None:
    """So a worker ends whose driver stands still."""
    line, other = pair()
    with pytest.raises(TimeoutError):
        line.send(b"x" * 5_000_000, Deadline(0.2), renews=True)
    other.close()
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        line.send(b"x", Deadline(1))


def test_a_line_carries_messages_files_and_signs_of_life() -> None:
    line, other = pair()
    for message in (b"", {"a": 1}, b"y" * 100_000):
        line.send(message, Deadline(5))
        line.send_sign_of_life()
        assert other.receive(Deadline(5)) == message
        assert isinstance(other.receive(Deadline(5)), SignOfLife)
    one, far = socket.socketpair()
    line.send(b"with files", Deadline(5))
    line.send_files([one.fileno()], Deadline(5))
    assert other.receive(Deadline(5)) == b"with files"
    (copy,) = other.receive_files(1, Deadline(5))
    with socket.socket(fileno=copy) as received:
        received.sendall(b"hello")
    assert far.recv(10) == b"hello"
    assert not other.has_news(Deadline(0))
    line.close()
    assert other.has_news(Deadline(5))
    with pytest.raises(LineClosedError):
        other.receive(Deadline(5))
