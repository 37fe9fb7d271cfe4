"""Progress of long operations (an epoch's levels, a compaction): a small object that a process updates while it works.

It is for people only; nothing depends on it. A dead process leaves its object behind, with the time of its last update.
Concurrent processes overwrite each other's object.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import msgspec

from tussock.statestore.decoding import decode_json
from tussock.statestore.errors import TussockError
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.progress import Progress

EVERY_S = 10.0
_FRESH_S = 6 * EVERY_S
"""Seconds between updates. Shorter operations are not reported."""

_PREFIX = "work/"


class Work(msgspec.Struct, frozen=True):
    """An operation in progress. Times are Unix milliseconds."""

    what: str  # `epoch 123`, `compaction`
    began: int
    at: int  # time of this update
    done: int  # tasks
    total: int  # tasks known so far


class HowFar:
    """Reads the progress of an operation from another thread, if the operation reports it."""

    def __init__(self) -> None:
        self.ask: Callable[[], tuple[int, int] | None] = lambda: None  # (tasks done, tasks known); None: unknown


@contextmanager
def follow_progress(
    objects: ObjectStore, kind: str, what: str, far: HowFar, progress: Progress, every_s: float | None = None
) -> Iterator[None]:
    """Report the block's progress every `every_s` seconds (None: EVERY_S).

    Each update sends a line to `progress`, and writes the object that `work_under_way` reads. Errors of the store are
    ignored.

    Args:
        kind: the kind of operation; a store runs at most one of each kind at a time.

    Cost: one PUT per update, and a DELETE at the end if there was an update.
    """
    ended, said, began = Event(), Event(), time.time()

    def report_until_done() -> None:
        while not ended.wait(EVERY_S if every_s is None else every_s):
            if (done_and_total := far.ask()) is None:
                continue
            now = time.time()
            progress(f"{what}: {done_and_total[0]:,} of {done_and_total[1]:,} tasks done after {now - began:.0f} s")
            said.set()
            with suppress(TussockError):
                objects.put(
                    f"{_PREFIX}{kind}.json",
                    msgspec.json.encode(Work(what, int(began * 1000), int(now * 1000), *done_and_total)),
                )

    follower = Thread(target=report_until_done, name=f"tussock-{kind}-follower", daemon=True)
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()
        if said.is_set():
            with suppress(TussockError):
                objects.delete([f"{_PREFIX}{kind}.json"])


def work_under_way(objects: ObjectStore, now_ms: int) -> tuple[Work, ...]:
    """Operations that were reported within the last _FRESH_S seconds. Cost: a LIST, and one GET each."""
    operations = []
    for listed in objects.list(_PREFIX):
        with suppress(TussockError, msgspec.DecodeError):  # It may have ended since the listing.
            operations.append(decode_json(objects.get(listed.name), Work))
    return tuple(work for work in operations if now_ms - work.at <= _FRESH_S * 1000)
