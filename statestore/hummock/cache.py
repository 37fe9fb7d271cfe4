"""Decoded blocks, indexes and filters of SSTs, kept in the memory of one process and bounded in bytes.

Names of SSTs are hashes of their bytes, so nothing in here is ever stale.
"""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tussock.statestore.memory import whole_memory

DEFAULT_CAPACITY_BYTES = 512 << 20
LEAST_BYTES, MOST_BYTES = 256 << 20, 1 << 30  # of a process's own cache
_SHARE = 16  # of the memory one part in so many: a host runs a worker per core, and its JVM


def block_cache_bytes(memory: int) -> int:
    """Bytes that one process of a host, or container, with so much memory may keep."""
    return max(LEAST_BYTES, min(MOST_BYTES, memory // _SHARE))


class Sized(Protocol):
    """What can be cached: it knows how much memory it holds."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        ...


T = TypeVar("T", bound=Sized)


@dataclass(slots=True)
class CacheCounts:
    """What a cache has done so far."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0


class BlockCache:
    """A least-recently-used map from (SST, part) to its decoded form, of at most `capacity` bytes. Safe among threads."""

    def __init__(self, capacity: int = DEFAULT_CAPACITY_BYTES) -> None:
        self.capacity = capacity
        self.counts = CacheCounts()
        self._entries: OrderedDict[Hashable, tuple[Sized, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self._bytes

    def get(self, key: Hashable, kind: type[T]) -> T | None:
        """The entry, now the most recently used, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self.counts.misses += 1
                return None
            self.counts.hits += 1
            self._entries.move_to_end(key)
        assert isinstance(entry[0], kind)
        return entry[0]

    def holds(self, key: Hashable) -> bool:
        """Whether the entry is here; counts as no use of it."""
        return key in self._entries

    def held(self) -> list[Hashable]:
        """What is held now, least recently used first."""
        with self._lock:
            return list(self._entries)

    def put(self, key: Hashable, value: Sized) -> None:
        """Keep an entry, in place of an older one of that key, and drop the least recently used beyond the capacity. One that
        is larger than the capacity is not kept."""
        size = value.nbytes
        with self._lock:
            if (old := self._entries.pop(key, None)) is not None:
                self._bytes -= old[1]
            if size > self.capacity:
                return
            self._entries[key] = (value, size)
            self._bytes += size
            while self._bytes > self.capacity:
                _, (_, freed) = self._entries.popitem(last=False)
                self._bytes -= freed
                self.counts.evictions += 1

    def get_or_load(self, key: Hashable, kind: type[T], load: Callable[[], T]) -> T:
        """The entry, loaded and kept if it was not there. Two threads may load the same; both get a right answer."""
        if (found := self.get(key, kind)) is None:
            found = load()
            self.put(key, found)
        return found

    def clear(self) -> None:
        """Forget everything, as a new process would."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0


@functools.cache
def process_cache() -> BlockCache:
    """The cache all stores of this process share unless they are given another."""
    return BlockCache(block_cache_bytes(whole_memory()))
