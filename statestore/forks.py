"""State that belongs to one process, and a child that the process forks.

A child of `os.fork` has a copy of its parent's memory and of its open files, but none of its threads. So in a child

    a lock that another thread held would stay locked           new_lock, new_rlock: free in a child
    an object may be half changed                               wait_before_fork; or renew_in_child: forgotten there
    a pool of threads would have no thread                      renew_in_child
    a name of the process would belong to two processes         OwnName: another one in a child
    an open connection hides the parent's end from its peer     close_in_child: a child closes its copy
    a library may not survive a fork                            OwnProcess.require_here: an error before its use

multiprocessing, Gunicorn and Airflow fork in this way. tests/support/process_state.yaml lists the objects that need
one of these, and a test finds new ones. docs/design/processes.md gives the reasons.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar
from weakref import WeakSet

from tussock.statestore.errors import InputError


class _Closeable(Protocol):
    def close(self) -> object: ...


C = TypeVar("C", bound=_Closeable)

# For `OwnProcess.require_here`.
USED_SPARK, OPEN_SESSION = "The parent process used Spark", "Open a session in the child"

_locks: WeakSet[threading.Lock] = WeakSet()
_connections: WeakSet[_Closeable] = WeakSet()


class _Marks:
    """Distinguishes this process from its ancestors; empty in a process that was not forked."""

    here = ""


_marks = _Marks()


class InheritedError(InputError):
    """A forked process used an object of its parent that works only there."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return (
            f"{self.what} before it forked this process, and a child cannot go on with that. Nothing was done. "
            f"{self.remedy}, or start the process with the method `spawn` of multiprocessing."
        )


def new_lock() -> threading.Lock:
    """A lock that is free in a forked child, also if a thread of the parent held it.

    Requires: what it guards is renewed in a child, or any state of it is valid.
    """
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def new_rlock() -> "threading.RLock":
    """As `new_lock`, for a lock that a thread may take several times."""
    lock = threading.RLock()
    _locks.add(lock)  # type: ignore[arg-type]
    return lock


def wait_before_fork(lock: "threading.Lock | threading.RLock") -> None:
    """Let a fork wait for a lock, so that a child never has a half changed state.

    Requires: threads hold the lock for moments only, take no other lock meanwhile, and do not fork.
    """
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def renew_in_child(renew: Callable[[], object]) -> None:
    """Call `renew` in each child that this process forks, before other code of the child runs."""
    os.register_at_fork(after_in_child=renew)


def close_in_child(connection: C) -> C:
    """Close a forked child's copy of a connection. The parent's stays open. Returns the connection."""
    _connections.add(connection)
    return connection


class OwnProcess:
    """The process that made this object."""

    def __init__(self) -> None:
        self._mark, self._pid = _marks.here, os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this process made the object, and not one that it was forked from."""
        # A child drops the objects of the parent's other threads before it gets its mark, and has another pid by then.
        # The mark is needed too, because a later process may get the pid of an ended one.
        return self._mark == _marks.here and self._pid == os.getpid()

    def require_here(self, what: str, remedy: str) -> None:
        """Raise InheritedError in a forked child. `what` the parent did, such as "the parent used Delta tables"."""
        if not self.is_here:
            raise InheritedError(what, remedy)


class FirstUse:
    """The process that first used a library whose threads do not survive a fork; none before that."""

    def __init__(self) -> None:
        self._process: OwnProcess | None = None

    def require_here(self, what: str, remedy: str) -> None:
        """Note the first use, and raise InheritedError in a forked child of the process that noted it."""
        self._process = self._process or OwnProcess()
        self._process.require_here(what, remedy)


class OwnName:
    """A name of the process that made it. In a forked child, it is another name."""

    def __init__(self, name: str) -> None:
        self._name, self._mark = name, _marks.here

    def __str__(self) -> str:
        return self._name + _marks.here.removeprefix(self._mark)


def _become_child() -> None:
    _marks.here += f"+{os.getpid()}-{os.urandom(6).hex()}"
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the modules of Python do
    for connection in list(_connections):
        with suppress(OSError):
            connection.close()
    _connections.clear()


os.register_at_fork(after_in_child=_become_child)
