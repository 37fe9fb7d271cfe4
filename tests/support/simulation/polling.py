"""`poll` and `select` of simulated processes."""

from collections.abc import Iterable
from typing import Any

from tests.support.simulation.scheduler import World, the_world
from tests.support.simulation.system import call, me

POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL, POLLPRI = 1, 4, 8, 16, 32, 2


@call()
def poll_once(world: World, wanted: dict[int, int], timeout_ms: float | None) -> list[tuple[int, int]]:
    """Wait until a descriptor is ready."""

    def ready() -> list[tuple[int, int]] | None:
        found = []
        fds = me(world).fds
        for fd, mask in wanted.items():
            opened = fds.get(fd)
            if opened is None:
                found.append((fd, POLLNVAL))
                continue
            events = 0
            if mask & POLLIN and opened.is_readable():
                events |= POLLIN
            if mask & POLLOUT and opened.is_writable():
                events |= POLLOUT
            if events:
                found.append((fd, events))
        return found or None

    fds = me(world).fds
    signals = tuple(fds[fd].changed for fd in wanted if fd in fds)
    timeout = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
    return world.wait_for(ready, signals, timeout, f"poll {list(wanted)}") or []


class Poll:
    """As select.poll."""

    def __init__(self) -> None:
        self._wanted: dict[int, int] = {}

    @staticmethod
    def _number(fd: Any) -> int:
        return fd if isinstance(fd, int) else int(fd.fileno())

    def register(self, fd: Any, mask: int = POLLIN | POLLOUT | POLLPRI) -> None:
        """Watch a descriptor."""
        self._wanted[self._number(fd)] = mask

    def modify(self, fd: Any, mask: int) -> None:
        """Watch for other events."""
        self._wanted[self._number(fd)] = mask

    def unregister(self, fd: Any) -> None:
        """Watch no longer. Raises KeyError."""
        del self._wanted[self._number(fd)]

    def poll(self, timeout_ms: float | None = None) -> list[tuple[int, int]]:
        """Wait for events."""
        return [] if the_world() is None else poll_once(dict(self._wanted), timeout_ms)


def select(
    readers: Iterable[Any], writers: Iterable[Any], others: Iterable[Any], timeout: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """As select.select."""
    readers, writers = list(readers), list(writers)
    wanted: dict[int, int] = {}
    for one in readers:
        wanted[Poll._number(one)] = POLLIN
    for one in writers:
        wanted[Poll._number(one)] = wanted.get(Poll._number(one), 0) | POLLOUT
    found = dict(poll_once(wanted, None if timeout is None else timeout * 1000))
    return (
        [one for one in readers if found.get(Poll._number(one), 0) & POLLIN],
        [one for one in writers if found.get(Poll._number(one), 0) & POLLOUT],
        [],
    )
