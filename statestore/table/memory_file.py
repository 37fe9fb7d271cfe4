"""Anonymous files in memory.

Another process can map them through /proc/<pid>/fd/<number>; nothing remains after both end.
"""

import mmap
import os
import weakref
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa


class MemoryFile:
    """An anonymous memory file that is open in this process, its own or a sibling's. Closed with the last reference."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._close = weakref.finalize(self, os.close, fd)

    @staticmethod
    def from_parts(name: str, parts: Iterable[bytes | memoryview | pa.Buffer]) -> "MemoryFile":
        """Create a file with these bytes. Raises OSError if memory is short."""
        memory_file = MemoryFile(os.memfd_create(name, os.MFD_CLOEXEC))
        for part in parts:
            rest = memoryview(part).cast("B")
            while len(rest):
                rest = rest[os.write(memory_file.fd, rest) :]
        return memory_file

    @staticmethod
    def of_another(pid: int, number: int) -> "MemoryFile":
        """Open another process's file by its number. Raises OSError if it does not exist or access is denied."""
        return MemoryFile(os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC))

    def open_for_append(self) -> pa.NativeFile:
        """A writer that appends buffers without copying the whole file into this process. The caller closes it."""
        return pa.OSFile(f"/proc/self/fd/{self.fd}", "ab")

    @property
    def identity(self) -> int:
        """Equal for all processes' views of one file. Unique while any of them is open."""
        return os.fstat(self.fd).st_ino

    @property
    def name(self) -> str:
        """The file's name."""
        return name_of(Path(f"/proc/self/fd/{self.fd}"))

    def read(self) -> bytes:
        """Read all bytes."""
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0)

    def map_bytes(self) -> mmap.mmap:
        """Map the file for reading and writing.

        The bytes stay as long as the mapping, even after the file is closed.
        """
        return mmap.mmap(self.fd, 0)


def name_of(link: Path) -> str:
    """The name of the memory file behind an entry of /proc/<pid>/fd; empty for other files."""
    try:
        target = str(link.readlink())
    except OSError:
        return ""
    return target.removeprefix("/memfd:").removesuffix(" (deleted)") if target.startswith("/memfd:") else ""
