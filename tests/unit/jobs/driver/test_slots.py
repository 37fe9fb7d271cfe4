"""Slots of a Spark application that are lost between their count and the stage, without a JVM."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tussock.jobs.driver import slots
from tussock.jobs.driver.one_stage import repeat_job
from tussock.jobs.driver.slots import Slots, SlotsLostError

REASON = "Executor heartbeat timed out\n after 120000 ms"


class Application:
    """In place of a SparkContext: its slots, its lost executors, and a job that waits until it is cancelled."""

    def __init__(self, *counts: int) -> None:
        """`counts`: the slots at each count; the last one stays."""
        self.counts, self.properties, self.lost = list(counts), {"spark.jobGroup.id": "users"}, list[str]()
        self.cancelled, self.master = threading.Event(), "spark://master:7077"
        self._jsc = self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_: self  # sc(), resourceProfileManager(), statusStore() …

    def maxNumConcurrentTasks(self, _: object) -> int:
        return self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]

    def executorList(self, _: bool) -> Any:
        reason = SimpleNamespace(isDefined=lambda: True, get=lambda: REASON)
        found = [
            SimpleNamespace(hostPort=lambda one=one: one, isActive=lambda: False, removeReason=lambda: reason)
            for one in self.lost
        ]
        return SimpleNamespace(size=lambda: len(found), apply=found.__getitem__)

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)

    def setLocalProperty(self, name: str, value: str) -> None:
        self.properties[name] = value

    def cancelJobGroupAndFutureJobs(self, group: str) -> None:
        assert group == self.properties["spark.jobGroup.id"] != "users"
        self.cancelled.set()

    def run_job(self, wait_s: float = 10.0) -> None:
        """A job whose tasks wait for slots."""
        self.lost.append("10.0.0.7:7078")
        if self.cancelled.wait(wait_s):
            raise RuntimeError("Job 3 cancelled part of cancelled job group")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("QUIET_S", 0.0), ("MISSING_S", 0.2), ("_LOOK_S", 0.02)):
        monkeypatch.setattr(slots, name, seconds)


def meeting(connected: int) -> Any:
    return SimpleNamespace(connected_count=connected)


def test_slots_are_counted_again_after_a_loss() -> None:
    application, tried = Application(3, 3, 1), list[int]()
    counted = Slots(application)  # type: ignore[arg-type]

    def job() -> pa.Table:
        tried.append(counted.task_count(3))
        with counted.watched_job(tried[-1], [meeting(0)]):
            if tried[-1] > 1:
                application.run_job()
        return pa.table({})

    repeat_job(job)
    assert tried == [3, 1]
    assert application.properties["spark.jobGroup.id"] == "users", "the group of this thread is restored"


def test_the_error_names_the_lost_executors_and_spark_s_reason() -> None:
    application = Application(1)
    application.lost.append("10.0.0.1:7078")  # before this stage
    began = time.monotonic()
    with (
        pytest.raises(SlotsLostError) as raised,
        Slots(application).watched_job(2, [meeting(0)]),  # type: ignore[arg-type]
    ):
        application.run_job()
    assert time.monotonic() - began < 5
    assert "10.0.0.7:7078 (Executor heartbeat timed out after 120000 ms)" in str(raised.value)
    assert "10.0.0.1" not in str(raised.value)
    assert "a stage of 2 tasks waited for slots, and the Spark application has 1" in str(raised.value)


@pytest.mark.parametrize(
    ("counts", "connected"),
    [
        pytest.param((0,), 0, id="all executors are lost: executor_watch.py waits for others"),
        pytest.param((2,), 0, id="other jobs use the slots"),
        pytest.param((1, 1, 2), 0, id="a lost executor is replaced"),
        pytest.param((1,), 2, id="all tasks run"),
    ],
)
def test_a_job_that_may_start_or_runs_goes_on(counts: tuple[int, ...], connected: int) -> None:
    application = Application(*counts)
    with Slots(application).watched_job(2, [meeting(0), meeting(connected)]):  # type: ignore[arg-type]
        application.run_job(0.6)
    assert not application.cancelled.is_set()


def test_spark_s_own_error_about_slots_means_the_same() -> None:
    with (
        pytest.raises(SlotsLostError),
        Slots(Application(1)).watched_job(2, [meeting(0)]),  # type: ignore[arg-type]
    ):
        raise RuntimeError("[SPARK-24819]: Barrier execution mode does not allow run a barrier stage that …")


def test_another_error_is_not_changed() -> None:
    with pytest.raises(ZeroDivisionError), Slots(Application(1)).watched_job(2, [meeting(0)]):  # type: ignore[arg-type]
        raise ZeroDivisionError
