"""Fixes of faults that were once found by hand. Each function takes one back, so that seeds must find its fault again.

`python -m tests.support.simulation --without NAME` runs seeds without a fix, of the kind of world in WORLDS.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.support.simulation import system
from tussock.jobs.driver.slots import Slots
from tussock.jobs.exchange import channel
from tussock.jobs.outside import world
from tussock.jobs.workers import pool, worker
from tussock.statestore import forks
from tussock.statestore.objectstore import local

_EVER_S = 1e9


def wait_for_lost_slots() -> None:
    """A stage waits for slots of executors that were lost since the count."""

    @contextmanager
    def unwatched_job(self: Slots, wanted: int, meetings: object) -> Iterator[None]:
        yield

    Slots.watched_job = unwatched_job  # type: ignore[method-assign, assignment]


def send_without_a_deadline() -> None:
    """The driver waits as long as a worker takes no work."""
    pool.GIVE_S = worker.GIVE_S = _EVER_S


def wait_for_silent_workers() -> None:
    """The driver waits as long as a worker gives no sign of life."""
    pool.SILENT_S = _EVER_S


def trust_folders_of_others() -> None:
    """A writer syncs no folder that a killed one may have made, and no object that it has read."""
    local._may_be_unsynced = lambda folder: False
    local.note_seen = lambda folder: None


def keep_names_in_children() -> None:
    """A forked child writes and pins under the names of its parent."""
    forks.OwnName.__str__ = lambda self: self._name  # type: ignore[method-assign]


def keep_connections_in_children() -> None:
    """A forked child keeps its parent's connections open, and the pool of workers that refers to them."""
    channel.close_in_child = lambda connection: connection
    world.close_in_child = lambda connection: connection  # type: ignore[attr-defined]
    system.AT_FORK[:] = [calls for calls in system.AT_FORK if calls[2] != pool._of_process.forget_pool]


FIXES: Mapping[str, Callable[[], None]] = {
    "slots": wait_for_lost_slots,
    "send": send_without_a_deadline,
    "silence": wait_for_silent_workers,
    "folders": trust_folders_of_others,
    "names": keep_names_in_children,
    "connections": keep_connections_in_children,
}
WORLDS = {
    "slots": "cluster",
    "send": "local",
    "silence": "local",
    "folders": "power",
    "names": "prefork",
    "connections": "prefork",
}
