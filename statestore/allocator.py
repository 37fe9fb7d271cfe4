"""What a process does with memory that it has freed.

By default glibc gives the end of its heap back as soon as some megabytes there are free, and asks for it again with the next column: a
first load asks for most of its pages many times, and each time the kernel clears them. So workers keep what they have freed, and give it
back where they are about to need most: before a unit's tables are encoded, and before a long partition of a window is computed. A worker
that has had nothing to do for a minute is ended by Spark, and all of it goes. What it is worth: docs/design/epoch.md.
"""

import ctypes
from functools import cache

import pyarrow as pa

KEPT_BYTES = 512 << 20  # free at the end of the heap, before it is given back
MAPPED_BYTES = 64 << 20  # of one array, from which on it goes back as soon as it is freed
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def keep_freed_memory() -> None:
    """From now on this process keeps what it has freed. Elsewhere than with glibc nothing changes."""
    if (library := _glibc()) is not None:
        library.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def give_back_freed_memory() -> None:
    """Return to the system what Arrow and the C library hold and nobody uses. Cost: some milliseconds, and all that is allocated
    afterwards has to be cleared by the kernel once more."""
    pa.default_memory_pool().release_unused()
    if (library := _glibc()) is not None:
        library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
