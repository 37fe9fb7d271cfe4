"""Locks, thread-local values and threads of the simulation, as `_thread` has them."""

from collections.abc import Callable
from typing import Any

from tests.support.simulation.scheduler import Killed, Signal, Thread, the_world

_lock_serials = iter(range(1, 1 << 62))


class Lock:
    """A lock. Its state is memory of a process: each process has its own, although modules share the object."""

    __slots__ = ("__weakref__", "changed", "owners", "serial")

    def __init__(self) -> None:
        self.owners: dict[Any, Thread | None] = {}
        self.changed, self.serial = Signal(), next(_lock_serials)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As threading.Lock.acquire."""
        world = the_world()
        if world is None:
            if None in self.owners and blocking:
                raise RuntimeError("a lock of no simulated process is held")
            taken = None not in self.owners
            self.owners.setdefault(None, None)
            return taken
        thread = world.current
        assert thread is not None
        process = thread.process
        if not process.alive:
            raise Killed
        if process not in self.owners:
            if world.random.random() < 0.02:
                world.pause(True)
            if process not in self.owners:
                self._take(process, thread)
                return True
        if not blocking:
            return False
        found = world.wait_for(
            lambda: self._take(process, thread) if process not in self.owners else None,
            (self.changed,),
            None if timeout is None or timeout < 0 else timeout,
            "lock",
        )
        return found is not None

    def _take(self, process: Any, thread: Thread) -> bool:
        self.owners[process] = thread
        process.owned.add(self)
        return True

    def release(self) -> None:
        """As threading.Lock.release."""
        world = the_world()
        process = None if world is None or world.current is None else world.current.process
        if process is not None and not process.alive:
            raise Killed
        if process not in self.owners:
            raise RuntimeError("release unlocked lock")
        del self.owners[process]
        if world is not None and process is not None:
            process.owned.discard(self)
            world.notify(self.changed)

    def free(self) -> None:
        """Release it for a thread that has ended."""
        world = the_world()
        if world is None or world.current is None:
            return
        process = world.current.process
        if self.owners.pop(process, None) is not None:
            process.owned.discard(self)
            world.notify(self.changed)

    def locked(self) -> bool:
        """As threading.Lock.locked."""
        world = the_world()
        return (None if world is None or world.current is None else world.current.process) in self.owners

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self.free()


class RLock:
    """A lock that its thread may take again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[Any, int] = {}

    def _key(self) -> Any:
        world = the_world()
        return None if world is None else world.current

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As threading.RLock.acquire."""
        key = self._key()
        if self._counts.get(key):
            self._counts[key] += 1
            return True
        if self._lock.acquire(blocking, timeout):
            self._counts[key] = 1
            return True
        return False

    def release(self) -> None:
        """As threading.RLock.release."""
        key = self._key()
        if key is not None and not key.process.alive:  # perhaps killed in a wait, which had released the lock
            raise Killed
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
            self._lock.release()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        return bool(self._counts.get(self._key()))

    def _release_save(self) -> int:
        count = self._counts.pop(self._key())
        self._lock.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        self._lock.acquire()
        self._counts[self._key()] = count

    def _at_fork_reinit(self) -> None:
        self._counts.clear()


class Local:
    """As threading.local, for simulated threads."""

    def __new__(cls, *args: Any, **named: Any) -> "Local":
        self = object.__new__(cls)
        object.__setattr__(self, "_given", (args, named))
        object.__setattr__(self, "_outside", {})
        return self

    def _values(self) -> dict[str, Any]:
        world = the_world()
        thread = None if world is None else world.current
        places = object.__getattribute__(self, "_outside") if thread is None else thread.locals
        values = places.get(self)
        if values is None:
            values = places[self] = {}
            args, named = object.__getattribute__(self, "_given")
            if type(self).__init__ is not object.__init__:
                type(self).__init__(self, *args, **named)
        return values  # type: ignore[no-any-return]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") or name == "_values":
            return object.__getattribute__(self, name)
        values = Local._values(self)
        return values[name] if name in values else object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        Local._values(self)[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del Local._values(self)[name]
        except KeyError:
            raise AttributeError(name) from None


def start_new_thread(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> int:
    world = the_world()
    assert world is not None, "a thread outside of a simulation"
    assert world.current is not None
    if not world.current.process.alive:
        raise Killed
    assert not world.current.process.records, "a process that may fork starts a thread"
    thread = world.new_thread(world.current.process, lambda: function(*args, **(kwargs or {})))
    world.trace(f"thread {thread.name}")
    return thread.ident


def get_ident() -> int:
    world = the_world()
    return 1 if world is None else world.current.ident  # type: ignore[union-attr]


def set_sentinel() -> Lock:
    lock = Lock()
    world = the_world()
    if world is not None and world.current is not None:
        world.current.sentinel = lock
    return lock
