"""An object store in memory: the contract of base.py at the speed of a dict, for tests of many thousand steps."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import TypeVar

from tussock.statestore.objectstore.base import ObjectInfo, ObjectNotFoundError, ShortReadError, checked_name

T = TypeVar("T")

_serial = count()  # caches tell stores apart by their address


class MemoryObjectStore:
    """Objects in a dict. Safe for threads; other processes cannot see it."""

    def __init__(self) -> None:
        self.uri = f"memory:{next(_serial)}"
        self.held: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> bytes:
        with self._lock:
            if (data := self.held.get(checked_name(name))) is None:
                raise ObjectNotFoundError(self.uri, name)
            return data

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        data = self.get(name)
        found = []
        for offset, length in ranges:
            start = offset if offset >= 0 else max(0, len(data) + offset)
            found.append(data[start : start + length])
            if len(found[-1]) < length:
                raise ShortReadError(self.uri, name, offset, length, len(found[-1]))
        return found

    def head(self, name: str) -> ObjectInfo:
        data = self.get(name)
        return ObjectInfo(name, len(data), f"{len(data)}-{hash(data)}")

    def put(self, name: str, data: bytes) -> None:
        with self._lock:
            self.held[checked_name(name)] = bytes(data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with self._lock:
            return self.held.setdefault(checked_name(name), bytes(data)) == data

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        with self._lock:
            found = [
                (name, len(self.held[name]))
                for name in sorted([n for n in self.held if n.startswith(prefix)])
                if name > start_after
            ]
        return iter([ObjectInfo(name, size, str(size)) for name, size in found])

    def delete(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self.held.pop(checked_name(name), None)


class Killed(Exception):
    """The process died here."""


class MortalObjectStore(MemoryObjectStore):
    """Kills its caller at a request that changes something: before it, after it, or half way through a deletion.

    `fuse`: half as many of these requests succeed, then one kills: before it if `fuse` is even, after it if it is odd.
    None: no request kills. A kill resets the fuse.
    """

    fuse: int | None = None

    def put(self, name: str, data: bytes) -> None:
        self._burn(lambda: super(MortalObjectStore, self).put(name, data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._burn(lambda: super(MortalObjectStore, self).put_if_absent(name, data))

    def delete(self, names: Iterable[str]) -> None:
        names = list(names)
        some = names[: len(names) // 2]
        self._burn(
            lambda: super(MortalObjectStore, self).delete(names), lambda: super(MortalObjectStore, self).delete(some)
        )

    def _burn(self, act: Callable[[], T], half: Callable[[], None] = lambda: None) -> T:
        if self.fuse is None:
            return act()
        if self.fuse > 1:
            self.fuse -= 2
            return act()
        before, self.fuse = self.fuse == 0, None
        if before:
            half()
        else:
            act()
        raise Killed
