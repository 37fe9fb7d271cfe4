"""Open files on a simulated disk, as `io.open` returns them."""

import io as real_io
import os as real_os
import sys as real_sys
from contextlib import suppress
from typing import Any

from tests.support.simulation import descriptors, paths
from tests.support.simulation.scheduler import Killed, the_world


class RawFile(real_io.RawIOBase):
    """An unbuffered file on a simulated disk."""

    def __init__(self, fd: int, name: Any, readable: bool, writable: bool, appends: bool = False) -> None:
        self._fd, self.name, self._readable, self._writable = fd, name, readable, writable
        self.mode = "rb+" if readable and writable else "rb" if readable else "wb"

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return self._readable

    def writable(self) -> bool:
        return self._writable

    def seekable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data: bytes = descriptors.read(self._fd, len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        parts = []
        while part := descriptors.read(self._fd, 1 << 30):
            parts.append(part)
        return b"".join(parts)

    def write(self, data: Any) -> int:
        return descriptors.write(self._fd, data)  # type: ignore[no-any-return]

    def seek(self, position: int, how: int = 0) -> int:
        return descriptors.lseek(self._fd, position, how)  # type: ignore[no-any-return]

    def tell(self) -> int:
        return descriptors.lseek(self._fd, 0, 1)  # type: ignore[no-any-return]

    def truncate(self, size: int | None = None) -> int:
        length = self.tell() if size is None else size
        descriptors.ftruncate(self._fd, length)
        return length

    def close(self) -> None:
        if not self.closed:
            super().close()
            world = the_world()
            if world is not None and world.current is not None and world.current.process.alive:
                try:
                    descriptors.close(self._fd)
                except OSError:
                    if not real_sys.is_finalizing():
                        raise

    def __del__(self) -> None:
        with suppress(Killed, OSError):
            self.close()


def open_file(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    if the_world() is None or not (isinstance(file, int) or paths.is_simulated(file)):
        return open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    plus, writes = "+" in mode, any(kind in mode for kind in "wxa")
    if isinstance(file, int):
        fd = file
    else:
        flags = real_os.O_RDWR if plus else real_os.O_WRONLY if writes else real_os.O_RDONLY
        flags |= real_os.O_CREAT * writes | real_os.O_TRUNC * ("w" in mode)
        flags |= real_os.O_EXCL * ("x" in mode) | real_os.O_APPEND * ("a" in mode)
        fd = opener(file, flags) if opener is not None else paths.open_file(file, flags)
    raw = RawFile(fd, file, plus or not writes, plus or writes)
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else 8192
    buffered: Any
    if plus:
        buffered = real_io.BufferedRandom(raw, size)
    elif writes:
        buffered = real_io.BufferedWriter(raw, size)
    else:
        buffered = real_io.BufferedReader(raw, size)
    return buffered if "b" in mode else real_io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline)
