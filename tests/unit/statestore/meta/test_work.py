"""The progress of long work: reported regularly while it lasts, and not afterwards."""

import time

from tests.support.memory_store import MemoryObjectStore
from tests.support.waiting import eventually
from tussock.statestore.meta.work import HowFar, follow_progress, work_under_way
from tussock.statestore.objectstore.base import ObjectStoreUnavailableError


def now_ms() -> int:
    return int(time.time() * 1000)


def wait_for(said: list[str], lines: int) -> None:
    eventually(f"{lines} lines are reported", lambda: len(said) >= lines, 30)


def test_running_work_is_reported() -> None:
    objects, far, said = MemoryObjectStore(), HowFar(), list[str]()
    with follow_progress(objects, "epoch", "epoch 7", far, said.append, every_s=0.01):
        began = time.monotonic()
        eventually("ten times of reporting have passed", lambda: time.monotonic() > began + 0.1)
        assert said == [], "work of unknown progress is not reported"
        assert work_under_way(objects, now_ms()) == ()
        far.ask = lambda: (3, 1_200)
        wait_for(said, 2)
        (work,) = work_under_way(objects, now_ms())
        assert (work.what, work.done, work.total) == ("epoch 7", 3, 1_200)
        assert work.began <= work.at <= now_ms()
        assert work_under_way(objects, work.at + 61_000) == (), "its process has died"
    assert said[0].startswith("epoch 7: 3 of 1,200 tasks done after ")
    assert work_under_way(objects, now_ms()) == ()
    assert list(objects.list("work/")) == []


def test_work_continues_if_its_progress_cannot_be_stored() -> None:
    class Away(MemoryObjectStore):
        def put(self, name: str, data: bytes) -> None:
            raise ObjectStoreUnavailableError("memory", "PUT", "it is away")

    far, said = HowFar(), list[str]()
    far.ask = lambda: (1, 2)
    with follow_progress(Away(), "epoch", "epoch 7", far, said.append, every_s=0.01):
        wait_for(said, 3)
