"""A process's memory cache of decoded blocks, indexes and filters of SSTs, limited in bytes.

SSTs are named by a hash of their bytes, so entries never become stale.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tussock.statestore.forks import new_lock, renew_in_child
from tussock.statestore.memory import whole_memory

DEFAULT_CAPACITY_BYTES = 512 << 20
LEAST_BYTES, MOST_BYTES = 256 << 20, 1 << 30  # limits of a process's default cache
_SHARE = 16  # a process gets 1/16 of the memory: a host runs a worker per core, and its JVM


def block_cache_bytes(memory: int) -> int:
    """The cache size of one process on a host or in a container with `memory` bytes."""
    return max(LEAST_BYTES, min(MOST_BYTES, memory // _SHARE))


class SizedValue(Protocol):
    """A cacheable value that reports its memory."""

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        ...


T = TypeVar("T", bound=SizedValue)


@dataclass(slots=True)
class CacheCounts:
    """Statistics of a cache since its creation."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0


class BlockCache:
    """A least-recently-used map from (SST, part) to its decoded form, limited to `capacity` bytes. Thread-safe."""

    def __init__(self, capacity: int = DEFAULT_CAPACITY_BYTES) -> None:
        self.capacity = capacity
        self.counts = CacheCounts()
        self._entries: OrderedDict[Hashable, tuple[SizedValue, int]] = OrderedDict()
        self._bytes = 0
        self._lock = new_lock()

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self._bytes

    def get(self, key: Hashable, kind: type[T]) -> T | None:
        """Return an entry and mark it as used, or return None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self.counts.misses += 1
                return None
            self.counts.hits += 1
            self._entries.move_to_end(key)
        assert isinstance(entry[0], kind)
        return entry[0]

    def get_each(self, keys: Sequence[Hashable], kind: type[T]) -> list[T | None]:
        """`get` for many keys. Cost: a third of a call for each."""
        entries, move = self._entries, self._entries.move_to_end
        with self._lock:
            cached_entries = [entries.get(key) for key in keys]
            for key, entry in zip(keys, cached_entries, strict=True):
                if entry is not None:
                    move(key)
            missing = cached_entries.count(None)
            self.counts.misses += missing
            self.counts.hits += len(cached_entries) - missing
        values = [None if entry is None else entry[0] for entry in cached_entries]
        assert all(value is None or isinstance(value, kind) for value in values)
        return values  # type: ignore[return-value]

    def has_key(self, key: Hashable) -> bool:
        """Whether the entry exists. Does not count as a use."""
        return key in self._entries

    def held_keys(self) -> list[Hashable]:
        """The keys held now, least recently used first."""
        with self._lock:
            return list(self._entries)

    def put(self, key: Hashable, value: SizedValue) -> None:
        """Store or replace an entry, and evict the least recently used ones beyond the capacity.

        A value larger than the capacity is not stored.
        """
        self.put_each([(key, value)])

    def put_each(self, entries: Sequence[tuple[Hashable, SizedValue]]) -> None:
        """`put` for many entries."""
        sized = [(key, value, value.nbytes) for key, value in entries]
        with self._lock:
            for key, value, size in sized:
                if (old := self._entries.pop(key, None)) is not None:
                    self._bytes -= old[1]
                if size > self.capacity:
                    continue
                self._entries[key] = (value, size)
                self._bytes += size
            while self._bytes > self.capacity:
                _, (_, freed) = self._entries.popitem(last=False)
                self._bytes -= freed
                self.counts.evictions += 1

    def get_or_load(self, key: Hashable, kind: type[T], load: Callable[[], T]) -> T:
        """Return the entry, and load it if it is absent.

        Concurrent calls may load it twice; all results are correct.
        """
        if (entry := self.get(key, kind)) is None:
            entry = load()
            self.put(key, entry)
        return entry

    def forget_ssts(self, store: str, names: Collection[str]) -> None:
        """Remove the entries of SSTs, which begin with the store's URI and the name. Cost: O(entries)."""
        wanted = {(store, name) for name in names}
        with self._lock:
            for key in [key for key in self._entries if isinstance(key, tuple) and key[:2] in wanted]:
                self._bytes -= self._entries.pop(key)[1]

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0


@functools.cache
def process_cache() -> BlockCache:
    """The default cache of all stores in this process."""
    return BlockCache(block_cache_bytes(whole_memory()))


renew_in_child(process_cache.cache_clear)
