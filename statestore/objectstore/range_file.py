"""An object as a read-only file, over range reads."""

import io
from collections.abc import Sequence
from typing import Protocol

from tussock.statestore.objectstore.base import ObjectInfo


class ReadableObjects(Protocol):
    """The reading part of an ObjectStore."""

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]: ...

    def head(self, name: str) -> ObjectInfo: ...


class RangeFile(io.RawIOBase):
    """A read-only, seekable file over range reads of one object.

    Every read is one range GET, so readers should buffer.
    """

    def __init__(self, store: ReadableObjects, name: str, size: int) -> None:
        super().__init__()
        self._store, self._name, self._size, self._at = store, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        if length == 0:
            return b""
        data = self._store.get_ranges(self._name, [(self._at, length)])[0]
        self._at += length
        return data

    def readall(self) -> bytes:
        return self.read()
