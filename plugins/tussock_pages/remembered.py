"""Answers that pages share: computed once for the facts on which they depend."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast

from tussock.statestore.forks import new_lock

T = TypeVar("T")


class RememberedValues:
    """An LRU cache. Threads that miss the same key compute its value once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._lock = new_lock()

    def forget(self) -> None:
        """Forget all values. In a forked child, no thread would end computations that were running."""
        self._values.clear()

    def get(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return the value of a key: the known one, or the result of `find`, whose errors are not kept."""
        mine: Future[Any] = Future()
        with self._lock:
            known = self._values.setdefault(key, mine)
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        if known is not mine:
            return cast("T", known.result())
        try:
            value = find()
        except BaseException as err:
            with self._lock:
                if self._values.get(key) is mine:
                    del self._values[key]
            mine.set_exception(err)
            raise
        mine.set_result(value)
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """An immutable object as a key: equal to itself only, so that comparing costs nothing. The key keeps it alive."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def key_of(value: object) -> Hashable:
    """A key for an immutable value: texts and numbers by value, collections by their items, other objects as `Same`."""
    match value:
        case None | str() | int() | float() | Enum():
            return value
        case Mapping():
            return tuple((key_of(name), key_of(one)) for name, one in value.items())
        case Sequence():
            return tuple(map(key_of, value))
        case _:
            return Same(value)


def file_version(file: Path) -> tuple[int, int] | None:
    """Return the size and the time of the last write of a file, which change with its content; None without one."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns
