"""An object store that fails on purpose at chosen calls, to test every protocol at every point of failure.

    store = FaultyObjectStore(inner)
    store.fail(n, Fault.LOST_ANSWER)      # the n-th call from now, counted from 0
    ...
    store.calls                           # the calls so far: (operation, name)

Typical use: run once undisturbed and count `calls`; then run once per call with a fault there.
"""

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeVar

from tussock.statestore.errors import RetryableError
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectInfo, ObjectStore, ObjectStoreUnavailableError
from tussock.statestore.objectstore.open import open_object_store

T = TypeVar("T")


class Fault(Enum):
    """The fault of one call."""

    REFUSED = "fails, nothing happened"
    LOST_ANSWER = "happened, but the caller gets an error"
    SHORT_BODY = "a read returns only the first half of the bytes"
    FLIPPED_BIT = "a read returns bytes with one bit changed in the middle"


class Killed(BaseException):
    """Stands for the death of the process at a call. Not an Exception: no code that handles errors may catch it."""


@dataclass
class FaultyObjectStore:
    """Record every call in `calls`, pass it on to `inner`, disturb the ones that `fail`, `kill` or `before` name."""

    inner: ObjectStore
    calls: list[tuple[str, str]] = field(default_factory=list)
    _faults: dict[int, Fault | type[Killed]] = field(default_factory=dict)
    _hooks: dict[int, Callable[[], None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.uri = self.inner.uri

    def fail(self, nth: int, fault: Fault = Fault.REFUSED) -> None:
        """Disturb the call that comes `nth` from now (0 is the next)."""
        self._faults[len(self.calls) + nth] = fault

    def kill(self, nth: int) -> None:
        """Raise Killed instead of the call that comes `nth` from now."""
        self._faults[len(self.calls) + nth] = Killed

    def before(self, nth: int, action: Callable[[], None]) -> None:
        """Run `action` before the `nth` call from now: wait on an event, or let a competitor act in between."""
        self._hooks[len(self.calls) + nth] = action

    def heal(self) -> None:
        """Forget faults and actions that have not happened yet."""
        self._faults.clear()
        self._hooks.clear()

    def get(self, name: str) -> bytes:
        return self._call("get", name, lambda: self.inner.get(name))

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._call("get_ranges", name, lambda: self.inner.get_ranges(name, ranges))

    def head(self, name: str) -> ObjectInfo:
        return self._call("head", name, lambda: self.inner.head(name))

    def put(self, name: str, data: bytes) -> None:
        return self._call("put", name, lambda: self.inner.put(name, data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._call("put_if_absent", name, lambda: self.inner.put_if_absent(name, data))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return self._call("list", prefix, lambda: iter(list(self.inner.list(prefix, start_after))))

    def delete(self, names: Iterable[str]) -> None:
        batch = list(names)
        return self._call("delete", " ".join(batch), lambda: self.inner.delete(batch))

    def _call(self, operation: str, name: str, act: Callable[[], T]) -> T:
        with self._lock:
            number = len(self.calls)
            self.calls.append((operation, name))
        if (hook := self._hooks.pop(number, None)) is not None:
            hook()
        fault = self._faults.pop(number, None)
        if fault is Killed:
            raise Killed(operation, name)
        if fault is Fault.REFUSED:
            raise ObjectStoreUnavailableError(self.uri, f"{operation} {name!r}", "refused on purpose")
        answer = act()
        if fault is Fault.LOST_ANSWER:
            raise ObjectStoreUnavailableError(self.uri, f"{operation} {name!r}", "answer lost on purpose")
        if fault is Fault.SHORT_BODY:
            return _on_bytes(answer, lambda data: data[: len(data) // 2])
        if fault is Fault.FLIPPED_BIT:
            return _on_bytes(
                answer,
                lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
            )
        return answer


#: The operations that do not change a store.
READS = ("get", "get_ranges", "head", "list")


def next_death(calls: Sequence[tuple[str, str]], number: int) -> int:
    """The next request after `number` to die at: one that changes the store. A death at a read equals a death at it.

    After the last one: the number of requests, for an undisturbed run; then that number plus one.
    """
    if number >= len(calls):
        return number + 1
    return next((i for i in range(number + 1, len(calls)) if calls[i][0] not in READS), len(calls))


def stores_after_deaths(
    store: Path, run: Callable[[MetaStore], object], calls: list[tuple[str, str]]
) -> Iterator[Path]:
    """Yield copies of a store in which `run` was undisturbed, or killed at one of the requests that change the store.

    Args:
        calls: an empty list, which receives the requests of an undisturbed run.
    """
    number = 0
    while number <= len(calls):
        copy = Path(shutil.copytree(store, store.with_name(f"{store.name}-{number}")))
        objects = FaultyObjectStore(open_object_store(str(copy)))
        if number < len(calls):
            objects.kill(number)
        with suppress(Killed, RetryableError, LostRaceError):
            run(MetaStore(objects, "first", lambda: 1_700_000_100_000))
        if not calls:
            calls.extend(objects.calls)
        yield copy
        shutil.rmtree(copy)
        number = next_death(calls, number)


def _on_bytes(answer: T, change: Callable[[bytes], bytes]) -> T:
    """`change` applied to the bytes of a get's or get_ranges' answer; other answers have no body to disturb."""
    if isinstance(answer, bytes):
        return change(answer)  # type: ignore[return-value]
    if isinstance(answer, list):
        return [change(data) for data in answer]  # type: ignore[return-value]
    return answer
