"""Checking that a file still is the one its barrier pinned, and reading it as a file object over an object store."""

import io
from collections.abc import Mapping

from jobs.sources.errors import ChangedFileError
from jobs.sources.listing import open_file
from statestore.meta.barrier import PinnedFile
from statestore.objectstore.base import ObjectNotFoundError, ObjectStore


def verify_pin(file: PinnedFile, options: Mapping[str, str]) -> None:
    """Compare the file's size and ETag with the pin. Called before and after a read, so that what was read in between is what was
    pinned. Raises ChangedFileError, also for a file that is gone. Cost: one HEAD."""
    store, name = open_file(file.path, options)
    try:
        info = store.head(name)
    except ObjectNotFoundError as err:
        raise ChangedFileError(file.path, f"{file.size} bytes, ETag {file.etag}", "no such file") from err
    if (info.size, info.etag) != (file.size, file.etag):
        raise ChangedFileError(file.path, f"{file.size} bytes, ETag {file.etag}", f"{info.size} bytes, ETag {info.etag}")


class RangeFile(io.RawIOBase):
    """A read-only, seekable file over range reads of one object; every read is one range GET, so readers should buffer ahead."""

    def __init__(self, store: ObjectStore, name: str, size: int) -> None:
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
