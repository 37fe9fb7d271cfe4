"""Epochs in worker processes: the same bytes as in this process, and a clear end if a worker dies."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.jobs.driver.embedded import NOW, after, append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.support.waiting import eventually
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.chunks.failure import TaskError, carried_by_spark
from tussock.jobs.driver import runner as runners
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.exchange.peers import PeerLostError
from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.compaction import compact_store
from tussock.jobs.upkeep.vacuum import clean_store
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.jobs.wire.measured import Measurement, MeasurementSum
from tussock.jobs.workers import pool, worker
from tussock.jobs.workers.budgets import Budgets
from tussock.jobs.workers.pool import WorkerLostError, WorkerPool, pool_runs, worker_pool
from tussock.statestore.local_disk import LOCAL_DIRS, LocalDiskError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

ROOT = Path(__file__).parents[4]
WORKERS = 2
EPOCHS = int(os.environ.get("TUSSOCK_TEST_EPOCHS", "1000"))
POLICIES = {
    "the driver flushes": FlushPolicy(),
    "units or the exchange flush": FlushPolicy(little_rows=-1, target_bytes=4096),
    "units upload at once": FlushPolicy(driver_bytes=3000, target_bytes=4096),
}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "WORTH_WORKERS_BYTES", 0)


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    meta = new_store(tmp_path / "store", units=3)
    append(meta, table("t"), view("v", counted(scan("t"), 1)))
    insert(meta, "t", (0, 0, 0))
    epoch(meta)
    insert(meta, "t", *((k, k % 40, k) for k in range(1, 300)))
    return meta


def workers() -> list[int]:
    """The process ids of the running workers."""
    with worker_pool(WORKERS) as found:
        assert isinstance(found, WorkerPool)
        return found._worker_pids


@pytest.mark.parametrize("count", [2, 3], ids=lambda count: f"{count} workers")
def test_workers_and_this_process_write_the_same_ssts(count: int, meta: MetaStore, tmp_path: Path) -> None:
    for name, policy in POLICIES.items():
        here = after(tmp_path / "store", tmp_path / f"here, {name}", LocalRunner(policy))
        assert after(tmp_path / "store", tmp_path / f"there, {name}", LocalRunner(policy, count)) == here, name


def ran(meta: MetaStore) -> str:
    sealed = meta.read_manifest(meta.read_latest().epoch)
    assert sealed is not None
    return sealed.ran


def test_the_manifest_says_where_the_levels_ran(meta: MetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch(meta, LocalRunner(workers=WORKERS))
    assert ran(meta) == "on 2 workers of the driver's host"
    pool._of_process.pool.close()  # type: ignore[union-attr]
    monkeypatch.setattr(runners, "WORTH_WORKERS_BYTES", 1 << 30)
    insert(meta, "t", (1000, 1, 1))
    epoch(meta, LocalRunner(workers=WORKERS))
    assert ran(meta) == "in the driver's process", "the epoch is not worth starting workers"


def test_workers_get_no_small_epoch(meta: MetaStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    epoch(meta, LocalRunner(workers=WORKERS))
    assert pool_runs(WORKERS)
    monkeypatch.setattr(runners, "WORTH_WORKERS_BYTES", 1 << 30)
    insert(meta, "t", *((k, k % 40, k) for k in range(1000, 1300)))
    for name, policy in (
        ("small", FlushPolicy()),
        ("more is sealed than expected", POLICIES["units upload at once"]),
    ):
        expected = after(tmp_path / "store", tmp_path / f"{name}, here", LocalRunner(policy))
        assert after(tmp_path / "store", tmp_path / name, LocalRunner(policy, WORKERS)) == expected
        assert (
            ran(MetaStore(open_object_store(str(tmp_path / name)), "the same", lambda: NOW))
            == "in the driver's process"
        ), name


class Deadly:
    """In place of `MeasurementSum.add_measurement`: when a worker has done a level, another one is killed."""

    def __init__(self, sent: signal.Signals, chance: float = 1.0, most: int = 1) -> None:
        self.sent, self.chance, self.most = sent, chance, most
        self.killed = 0

    def __call__(self, _: MeasurementSum, found: Measurement) -> None:
        if self.killed < self.most and random.SystemRandom().random() < self.chance:
            self.killed += 1
            assert pool._of_process.pool is not None
            os.kill(pool._of_process.pool._worker_pids[self.killed % WORKERS], self.sent)


def test_a_killed_worker_fails_the_epoch_which_can_run_again(
    meta: MetaStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, a worker may have done its part of the epoch before it is killed. Then the next one counts."""
    expected = after(tmp_path / "store", tmp_path / "here", LocalRunner())
    add, lost = MeasurementSum.add_measurement, list[WorkerLostError]()
    for attempt in range(10):
        there = MetaStore(
            open_object_store(str(shutil.copytree(tmp_path / "store", tmp_path / str(attempt)))),
            "the same",
            lambda: NOW,
        )
        before, barrier = there.read_latest(), inject_barrier(there)
        assert barrier is not None
        workers()
        deadly = Deadly(signal.SIGKILL)
        monkeypatch.setattr(MeasurementSum, "add_measurement", lambda own, found, deadly=deadly: deadly(own, found))
        try:
            run_epoch(LocalRunner(workers=WORKERS), there, barrier)
        except WorkerLostError as err:
            lost.append(err)
            break
        finally:
            monkeypatch.setattr(MeasurementSum, "add_measurement", add)
        assert there.read_latest() == expected
    assert re.search(r"worker process \d of 2 was killed by SIGKILL in the middle", str(lost))
    assert there.read_latest() == before, "nothing was committed"
    run_epoch(LocalRunner(workers=WORKERS), there, barrier)
    assert there.read_latest() == expected


def test_a_worker_adopts_the_environment_of_its_driver() -> None:
    """Credentials may be set after the workers have started."""
    with patch.dict(os.environ, {LOCAL_DIRS: "/own", "OLD": "1", "SAME": "2"}, clear=True):
        worker._adopt_environment({LOCAL_DIRS: "/drivers", "SAME": "2", "NEW": "3"})
        assert dict(os.environ) == {LOCAL_DIRS: "/own", "SAME": "2", "NEW": "3"}


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_a_thousand_epochs_with_killed_workers_write_the_same_ssts(
    meta: MetaStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compactions of both stores must write the same SSTs too. They keep each epoch as cheap as the first ones."""
    here, there = (
        MetaStore(open_object_store(str(shutil.copytree(tmp_path / "store", tmp_path / name))), "the same", lambda: NOW)
        for name in ("here", "there")
    )
    deadly = Deadly(signal.SIGKILL, 0.004, EPOCHS)
    monkeypatch.setattr(MeasurementSum, "add_measurement", lambda own, found: deadly(own, found))
    rng, lost = random.Random(11), 0
    for number in range(EPOCHS):
        new = [(rng.randrange(500), rng.randrange(40), number) for _ in range(20)]
        barriers = []
        for store in (here, there):
            insert(store, "t", *new)
            barriers.append(inject_barrier(store))
        assert barriers[0] is not None
        assert barriers[1] is not None
        run_epoch(LocalRunner(), here, barriers[0])
        while there.read_latest().epoch != barriers[1].epoch:
            try:
                run_epoch(LocalRunner(workers=WORKERS), there, barriers[1])
            except WorkerLostError:
                lost += 1
        assert here.read_latest() == there.read_latest()
        if number % 10 == 9:
            for store in (here, there):
                store.publish(store.read_latest().epoch)
                compact_store(store, full=True)
                clean_store(store, Retention(keep_epochs=2, keep_ms=0))
            assert here.read_latest() == there.read_latest()
    assert lost
    assert rows(here, "t") == rows(there, "t")


def test_an_interrupted_driver_ends_its_workers(meta: MetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: MeasurementSum, __: Measurement) -> None:
        raise KeyboardInterrupt

    before = workers()
    with monkeypatch.context() as patched:
        patched.setattr(MeasurementSum, "add_measurement", interrupt)
        with pytest.raises(KeyboardInterrupt):
            epoch(meta, LocalRunner(workers=WORKERS))
    eventually("the workers end", lambda: not any(map(lives, before)))
    (barrier,) = filter(None, [inject_barrier(meta)])
    run_epoch(LocalRunner(workers=WORKERS), meta, barrier)
    assert len(rows(meta, "t")) == 300


def lives(pid: int) -> bool:
    """Whether a process runs. A process that ended and was not waited for does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_workers_end_with_their_driver() -> None:
    code = (
        "import os, signal\n"
        "from tussock.jobs.workers.pool import WorkerPool\n"
        "pool = WorkerPool(2)\n"
        "print(*pool._worker_pids, pool._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    driver = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    found = [int(pid) for pid in driver.stdout.split()]
    assert len(found) == WORKERS + 1, driver.stderr
    eventually("the processes end", lambda: not any(map(lives, found)))


def test_the_processes_end_with_a_killed_driver_while_a_child_of_it_lives() -> None:
    code = (
        "import os, signal\n"
        "from tussock.jobs.workers.pool import WorkerPool\n"
        f"pool = WorkerPool({WORKERS})\n"
        "child = os.fork()\n"
        "if not child: signal.pause()\n"
        "print(*pool._worker_pids, pool._process.pid, child, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        *found, child = map(int, driver.stdout.readline().split())
        try:
            eventually("the processes end", lambda: not any(map(lives, found)))
            assert lives(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_the_epoch_of_another_thread_runs_in_this_process(meta: MetaStore) -> None:
    with worker_pool(WORKERS) as found:
        assert isinstance(found, WorkerPool)
        found_there = []
        other = threading.Thread(target=lambda: found_there.append(epoch(meta, LocalRunner(workers=WORKERS))))
        other.start()
        other.join(60)
    assert found_there
    assert ran(meta) == "in the driver's process, because another epoch uses the workers"
    assert pool_runs(WORKERS)


def test_workers_that_were_idle_too_long_are_replaced(meta: MetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before = workers()
    monkeypatch.setattr(pool, "IDLE_S", 0.0)
    assert not pool_runs(WORKERS)
    assert workers() != before
    epoch(meta, LocalRunner(workers=WORKERS))


def test_a_worker_that_ended_between_epochs_is_replaced(meta: MetaStore) -> None:
    os.kill(workers()[1], signal.SIGKILL)
    eventually("the end is known", lambda: not pool_runs(WORKERS))
    epoch(meta, LocalRunner(workers=WORKERS))
    assert ran(meta) == "on 2 workers of the driver's host"


def test_workers_that_cannot_start_are_reported(meta: MetaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool._of_process, "pool", None)
    monkeypatch.setattr(pool, "_SERVER", "raise SystemExit(3)")
    with pytest.raises(WorkerLostError, match="the worker processes did not start: status 3"):
        epoch(meta, LocalRunner(workers=WORKERS))


def test_the_cause_of_a_failure_comes_before_its_consequence() -> None:
    texts = []
    for error in (PeerLostError("worker 1", "it closed the connection"), LocalDiskError("/d", 5, "no space")):
        with pytest.raises(TaskError) as raised, carried_by_spark("exchange"):
            raise error
        texts.append(str(raised.value))
    assert isinstance(pool.cause_of_failures(texts), LocalDiskError)
    assert isinstance(pool.cause_of_failures(texts[:1]), PeerLostError)
    assert "Traceback" in str(pool.cause_of_failures([texts[0], "Traceback: a fault of ours"]))


def test_workers_share_the_memory_of_their_host() -> None:
    memory = 16 << 30
    alone, one_of_64 = Budgets.for_workers(1, memory), Budgets.for_workers(64, memory)
    assert (alone.blocks, alone.rows, alone.kernel, alone.mail) == (1 << 30, 256 << 20, 512 << 20, 256 << 20)
    assert one_of_64.blocks == one_of_64.rows == 64 << 20, "a cache has a useful size"
    for workers in (2, 4, 8, 16):
        one = Budgets.for_workers(workers, memory)
        assert workers * (one.blocks + one.rows + one.kernel + one.mail) < memory / 2
