"""The choice of the runner for an epoch. All runners write the same bytes."""

import os
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from threading import Thread
from typing import Self

import pyarrow as pa
import pytest
from pyspark import SparkConf, SparkContext, inheritable_thread_target
from pyspark.sql import SparkSession

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.jobs.driver import runner as shared
from tests.support.jobs.driver.embedded import NOW, after, epoch, insert
from tests.support.waiting import eventually
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver import one_stage
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.exchange.meeting import Meeting, Rendezvous
from tussock.jobs.spark.session import tasks_done
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

meta = shared.meta

EPOCHS = int(os.environ.get("TUSSOCK_TEST_EPOCHS", "1000"))


@pytest.mark.spark
@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(FlushPolicy(), id="the driver flushes"),
        pytest.param(FlushPolicy(little_rows=-1, target_bytes=4096), id="units or the exchange flush"),
        pytest.param(FlushPolicy(driver_bytes=3000, target_bytes=4096), id="units upload at once"),
    ],
)
def test_spark_and_this_process_write_the_same_ssts(
    policy: FlushPolicy, meta: MetaStore, spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(7)
    insert(meta, "t", *((k, rng.randrange(40), k) for k in range(300)))
    epoch(meta)
    insert(meta, "t", *((rng.randrange(500), rng.randrange(40), k) for k in range(300)))
    here = after(tmp_path / "store", tmp_path / "here", LocalRunner(policy))
    there = after(tmp_path / "store", tmp_path / "there", SparkRunner(spark, policy))
    assert here == there
    through_files = SparkRunner(spark, policy)
    through_files._why_files = "the test wants it"
    assert after(tmp_path / "store", tmp_path / "files", through_files) == here
    shuffled = UnkindShuffle(3)
    shuffled.policy = policy
    assert after(tmp_path / "store", tmp_path / "shuffled", shuffled) == here


@pytest.mark.spark
def test_an_application_that_encrypts_writes_the_same_ssts_over_sealed_sockets(
    meta: MetaStore, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = list[Meeting]()

    class Noted(Rendezvous):
        def __enter__(self) -> Self:
            met.append(self.meeting)
            return super().__enter__()

    settings = {"spark.network.crypto.enabled": "TRUE", "spark.io.encryption.enabled": "True"}
    monkeypatch.setattr(SparkContext, "getConf", lambda _: SparkConf().setAll(list(settings.items())))
    monkeypatch.setattr(one_stage, "Rendezvous", Noted)
    insert(meta, "t", *((k, k % 40, k) for k in range(300)))
    epoch(meta)
    insert(meta, "t", *((k, k % 30, k) for k in range(100, 500)))
    here = after(tmp_path / "store", tmp_path / "here", LocalRunner())
    there = SparkRunner(spark)
    assert there._why_files is None
    assert after(tmp_path / "store", tmp_path / "there", there) == here
    assert all(one.keys is not None and one.encrypts_files for one in met)
    assert met


class Killing:
    """In place of the measurements of a runner: ends the process of the task that first finishes a level."""

    def __init__(self, marker: Path) -> None:
        self._marker = str(marker)

    def report(self, _: object) -> None:
        with suppress(FileExistsError):
            os.close(os.open(self._marker, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)

    def add_to(self, _: object) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.mark.spark
@pytest.mark.parametrize("policy", [FlushPolicy(), FlushPolicy(little_rows=-1, target_bytes=4096)])
def test_a_stage_whose_task_is_killed_runs_again(
    policy: FlushPolicy, meta: MetaStore, spark: SparkSession, tmp_path: Path
) -> None:
    epoch(meta)
    insert(meta, "t", *((k, k % 40, k) for k in range(300)))
    here = after(tmp_path / "store", tmp_path / "here", LocalRunner(policy))
    killed = SparkRunner(spark, policy)
    killed._measuring = Killing(tmp_path / "killed")  # type: ignore[assignment]
    assert after(tmp_path / "store", tmp_path / "there", killed) == here
    assert (tmp_path / "killed").exists(), "no task was killed"


class SometimesKilling(Killing):
    """Ends the process of a task at some of the levels. Four failed attempts in a row are as good as impossible."""

    def report(self, _: object) -> None:
        if random.SystemRandom().random() < 0.004:
            with Path(self._marker).open("a") as marker:
                marker.write("x")
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(7200)
def test_a_thousand_epochs_with_killed_tasks_write_the_same_ssts(
    meta: MetaStore, spark: SparkSession, tmp_path: Path
) -> None:
    epoch(meta)
    here, there = (
        MetaStore(open_object_store(str(shutil.copytree(tmp_path / "store", tmp_path / name))), "the same", lambda: NOW)
        for name in ("here", "there")
    )
    killed = SparkRunner(spark)
    killed._measuring = SometimesKilling(tmp_path / "killed")  # type: ignore[assignment]
    rng = random.Random(11)
    for number in range(EPOCHS):
        rows = [(rng.randrange(500), rng.randrange(40), number) for _ in range(20)]
        for store, runner in ((here, LocalRunner()), (there, killed)):
            insert(store, "t", *rows)
            barrier = inject_barrier(store)
            assert barrier is not None
            run_epoch(runner, store, barrier)
        assert here.read_latest() == there.read_latest()
    assert (tmp_path / "killed").read_text(), "no task was killed"


@pytest.mark.spark
def test_spark_reports_the_number_of_finished_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Two of four tasks wait until the others are counted.

    Spark records some task ends only with its next heartbeat (10 s).
    """
    counted = tmp_path / "counted"

    def wait(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            if batch.num_rows and batch.column(0)[0].as_py() >= 2:
                with suppress(AssertionError):
                    eventually("the tasks are counted", counted.exists)
            yield batch

    assert tasks_done(spark, 9) is None, "no job runs"
    work = Thread(
        target=inheritable_thread_target(spark)(lambda: spark.range(0, 4, 1, 4).mapInArrow(wait, "id bigint").collect())
    )
    work.start()
    seen = set()

    def ended() -> bool:
        seen.add(tasks_done(spark, 9))
        if (2, 4) in seen:
            counted.touch()
        return not work.is_alive()

    eventually("the job ends", ended, 120)
    assert (2, 4) in seen, seen
    assert tasks_done(spark, 9) is None
