"""How far long work is: an epoch's levels, a compaction. A small object beside the log while a process is at it, for people alone.

Nothing goes by it: a process that dies leaves it behind, and it says then when it was last true. Two at once write it in turns.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import msgspec

from tussock.statestore.decoding import decoded
from tussock.statestore.errors import TussockError
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.progress import Progress

EVERY_S = 10.0
"""How often it is said; what takes less is not worth a word."""

_PREFIX = "work/"


class Work(msgspec.Struct, frozen=True):
    """Work that somebody is at. Times are Unix milliseconds."""

    what: str  # `epoch 123`, `compaction`
    began: int
    at: int  # when this was so
    done: int  # tasks
    total: int  # as far as they are known


class HowFar:
    """How much of some work is done, as far as who does it says: asked from another thread."""

    def __init__(self) -> None:
        self.ask: Callable[[], tuple[int, int] | None] = lambda: None  # (tasks done, tasks known); None: not known


@contextmanager
def followed(
    objects: ObjectStore, kind: str, what: str, far: HowFar, progress: Progress, every_s: float | None = None
) -> Iterator[None]:
    """Say how far the block is, every `every_s` seconds (None: EVERY_S): a line to `progress`, and the object that `work_under_way` reads.

    Args:
        kind: of work that there is one of at a time in a store.

    Cost: a PUT each time, and a DELETE at the end of work that was said to be under way. A store that fails is passed over.
    """
    ended, said, began = Event(), Event(), time.time()

    def follow() -> None:
        while not ended.wait(EVERY_S if every_s is None else every_s):
            if (found := far.ask()) is None:
                continue
            now = time.time()
            progress(f"{what}: {found[0]:,} of {found[1]:,} tasks done after {now - began:.0f} s")
            said.set()
            with suppress(TussockError):
                objects.put(
                    f"{_PREFIX}{kind}.json", msgspec.json.encode(Work(what, int(began * 1000), int(now * 1000), *found))
                )

    follower = Thread(target=follow, name=f"tussock-{kind}-follower", daemon=True)
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()
        if said.is_set():
            with suppress(TussockError):
                objects.delete([f"{_PREFIX}{kind}.json"])


def work_under_way(objects: ObjectStore, now_ms: int, within_s: float = 6 * EVERY_S) -> tuple[Work, ...]:
    """Long work that somebody said to be at within the last `within_s` seconds. Cost: a LIST, and a GET each."""
    found = []
    for listed in objects.list(_PREFIX):
        with suppress(TussockError, msgspec.DecodeError):  # it may just have ended
            found.append(decoded(objects.get(listed.name), Work))
    return tuple(work for work in found if now_ms - work.at <= within_s * 1000)
