"""Anonymous files in memory: what one process makes, another can map by /proc/<pid>/fd/<number>, and nothing is left when both are done."""

import mmap
import os
import weakref
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa


class MemoryFile:
    """An anonymous file in memory, open in this process: one that it made, or a sibling's. Closed when nobody refers to it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._close = weakref.finalize(self, os.close, fd)

    @staticmethod
    def holding(name: str, parts: Iterable[bytes | memoryview | pa.Buffer]) -> "MemoryFile":
        """A new file of these bytes. Raises OSError where memory is short."""
        made = MemoryFile(os.memfd_create(name, os.MFD_CLOEXEC))
        for part in parts:
            rest = memoryview(part).cast("B")
            while len(rest):
                rest = rest[os.write(made.fd, rest) :]
        return made

    @staticmethod
    def of_another(pid: int, number: int) -> "MemoryFile":
        """The file that another process has under a number. Raises OSError where there is none, or where we may not see it."""
        return MemoryFile(os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC))

    def appended(self) -> pa.NativeFile:
        """Its end, to be written to, buffer by buffer, without a copy of the whole in this process. To be closed."""
        return pa.OSFile(f"/proc/self/fd/{self.fd}", "ab")

    @property
    def identity(self) -> int:
        """The same for two processes' views of one file, and never another's while any is open."""
        return os.fstat(self.fd).st_ino

    @property
    def name(self) -> str:
        """The one it was given."""
        return name_of(Path(f"/proc/self/fd/{self.fd}"))

    def read(self) -> bytes:
        """All its bytes."""
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0)

    def map(self) -> mmap.mmap:
        """Its bytes, for reading and writing; they stay while the mapping does, also when the file is closed."""
        return mmap.mmap(self.fd, 0)


def name_of(link: Path) -> str:
    """The name of the file in memory to which an entry of /proc/<pid>/fd leads; nothing for other files."""
    try:
        target = str(link.readlink())
    except OSError:
        return ""
    return target.removeprefix("/memfd:").removesuffix(" (deleted)") if target.startswith("/memfd:") else ""
