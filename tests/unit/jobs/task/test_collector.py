"""The objects that a worker's garbage collector examines, and when."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from tussock.jobs.task import collector


class Loop:
    """Refers to itself, so that reference counting cannot free it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [1000.0]
    monkeypatch.setattr(collector, "_looked", float("-inf"))
    monkeypatch.setattr(collector.time, "monotonic", lambda: now[0])
    yield now
    gc.unfreeze()


@pytest.mark.usefixtures("clock")
def test_a_task_freezes_all_objects_and_collects_its_own_garbage() -> None:
    made = weakref.ref(Loop())
    collector.collect_own_garbage()
    assert made() is None
    assert len(gc.get_objects()) < 1_000 < gc.get_freeze_count()


def test_old_reference_cycles_are_freed_by_the_next_full_collection(clock: list[float]) -> None:
    held = Loop()
    gone = weakref.ref(held)
    collector.collect_own_garbage()
    del held
    collector.collect_own_garbage()
    assert gone() is not None
    clock[0] += collector.EVERYTHING_S
    collector.collect_own_garbage()
    assert gone() is None
