"""Controls when this process returns freed memory to the operating system.

By default, glibc returns the top of the heap as soon as a few megabytes of it are free, and requests it again for the
next column. During a first load most pages make this round trip many times, and the kernel zeroes them each time.
Workers therefore keep freed memory. They return it before steps that need much memory, such as
encoding a unit's tables or computing a long window partition. Spark stops a worker that was idle for a minute, which
frees all of its memory. docs/design/epoch.md has the measurements.
"""

import ctypes
from functools import cache

import pyarrow as pa

KEPT_BYTES = 512 << 20  # free bytes at the top of the heap that are kept
MAPPED_BYTES = 64 << 20  # an array of this size or more is returned as soon as it is freed
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def keep_freed_memory() -> None:
    """Make this process keep freed memory from now on. Has no effect without glibc."""
    if (library := _load_glibc()) is not None:
        library.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def give_back_freed_memory() -> None:
    """Return unused memory of Arrow and the C library to the operating system.

    Cost: a few milliseconds, and the kernel has to zero the pages of later allocations again.
    """
    pa.default_memory_pool().release_unused()
    if (library := _load_glibc()) is not None:
        library.malloc_trim(0)


@cache
def _load_glibc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
