"""Files as a barrier pins them: checking that a file still is the pinned one, and reading it as a file object over an object store."""

import io
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec
from xxhash import xxh3_128

from tussock.jobs.sources.errors import ChangedFileError, LostCopyError, UnreadableFileError
from tussock.jobs.sources.listing import open_file
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import open_object_store

_BLOCK_BYTES = 4 << 20
LOCAL_ETAG = r"^(\d+-\d+)-(\d+)$"  # of a local file: size and time of its content, time of the last change of its inode
_UNSETTLED = "?"  # behind an ETag that another content could have as well
_SECOND_NS = 1_000_000_000
_TICK_NS = 20_000_000  # how long a kernel may give files the same time
_COARSE_TICK_NS = 2 * _SECOND_NS  # a file system that keeps whole seconds, or every other one


class PinnedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source file as it was when it was pinned. One with another size or content when it is read fails the epoch."""

    path: str
    size: int  # bytes
    etag: str  # as `recorded_etag` gives it
    number: int  # of this file's bytes within its source, from 0; no two that count at one time have the same
    kept: str = ""  # where these bytes stay (tussock.jobs.sources.kept); empty: at `path` alone
    weight: int = 1  # of each of its rows; -1: they go
    rows: bool = (
        True  # whether its rows count; False: it was passed over, or its rows were taken back while the file stays
    )
    accepted: str = ""  # `mark_of` the file as it was when it was decided that it may differ; empty: it may not
    store: str = ""  # while it is read: the store in which `kept` is to be read instead of `path`

    @property
    def local_path(self) -> str:
        """Where the bytes are on this machine; empty: not here."""
        if not self.store:
            return self.path if self.path.startswith("/") else ""
        objects = open_object_store(self.store)
        return str(objects.root / self.kept) if isinstance(objects, LocalObjectStore) else ""


def mark_of(path: str, size: int, etag: str) -> str:
    """One text for a file's size and content, as `PinnedFile.accepted` has it. Cost: `recorded_etag`'s.

    Args:
        etag: as listed, or as recorded.
    """
    return f"{size} {etag if '#' in etag else recorded_etag(path, size, etag)}"


def is_accepted(file: PinnedFile, size: int, etag: str) -> bool:
    """Whether a file that now has this size and ETag is what was accepted of it. Cost: `is_as_recorded`'s."""
    accepted_size, _, accepted = file.accepted.partition(" ")
    return bool(accepted) and is_as_recorded(file.path, size, etag, int(accepted_size), accepted)


def open_pinned(file: PinnedFile, options: Mapping[str, str]) -> tuple[ObjectStore, str]:
    """The store and the object name of a pinned file's bytes. `options`: of its source. Raises BadPathError."""
    return (open_object_store(file.store), file.kept) if file.store else open_file(file.path, options)


def recorded_etag(path: str, size: int, etag: str) -> str:
    """What is recorded of a file: the store's ETag, and of a local file `#` and a hash of its content.

    A local file's ETag consists of its size and its times, so a `touch` changes it, and a write within the same tick of the file system's
    clock does not. If the file changed less than a tick ago, `?` follows the ETag: no ETag then equals the recorded one, so the content is
    compared. An ETag in S3 follows from the content already.

    Cost: reads a local file once (it is in memory then for the reader of its rows); nothing for an object.
    """
    if not path.startswith("/"):
        return etag
    settled = _is_settled(etag)  # before the content is read: whatever is written afterwards gets another time
    content = _content(path, size, etag) if settled else _read_content(path)
    return f"{etag}{'' if settled else _UNSETTLED}#{content}" if content else etag


def listed_etag(recorded: str) -> str:
    """The store's ETag of a recorded one."""
    return recorded.partition("#")[0].removesuffix(_UNSETTLED)


def is_as_recorded(path: str, size: int, etag: str, recorded_size: int, recorded: str) -> bool:
    """Whether a file that now has this size and ETag has the bytes that were recorded. Cost: nothing where the ETag is the recorded one
    or the size is another; else the content is read, once a process if the file did not change within the last tick."""
    if size != recorded_size:
        return False
    known, _, content = recorded.partition("#")
    if known in (etag, re.sub(LOCAL_ETAG, r"\1", etag)):  # the second form is that of releases before
        return True
    return content != "" and content == (_content(path, size, etag) if _is_settled(etag) else _read_content(path))


def _is_settled(etag: str) -> bool:
    """Whether a local file of this ETag changed so long ago that another write gives it another ETag."""
    if (found := re.match(LOCAL_ETAG, etag)) is None:
        return True
    changed = int(found[2])
    tick = _TICK_NS if changed % _SECOND_NS else _COARSE_TICK_NS
    return time.time_ns() - changed > tick


@lru_cache(maxsize=4096)
def _content(path: str, size: int, etag: str) -> str:
    """As `_read_content`, once a process; size and ETag are part of the key alone."""
    return _read_content(path)


def _read_content(path: str) -> str:
    """A hash of a local file's bytes."""
    digest = xxh3_128()
    try:
        with Path(path).open("rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except FileNotFoundError:
        return ""  # it went since it was listed; reading it will report that
    except OSError as err:
        raise UnreadableFileError(path, "a file", err.strerror or str(err)) from err
    return digest.hexdigest()


def verify_pin(file: PinnedFile, options: Mapping[str, str]) -> None:
    """Compare the file with its pin. Called before and after a read, so that what was read in between is what was pinned. Raises
    ChangedFileError, also for a file that is gone. Cost: one HEAD; and `is_as_recorded`'s where the ETag is another."""
    store, name = open_pinned(file, options)
    try:
        info = store.head(name)
    except ObjectNotFoundError as err:
        if file.store:
            raise LostCopyError(file.path, f"{file.store}/{file.kept}") from err
        raise ChangedFileError(file.path, f"{file.size} bytes, ETag {file.etag}", "no such file") from err
    if file.store:  # nobody writes a copy a second time
        if info.size != file.size:
            raise LostCopyError(file.path, f"{file.store}/{file.kept}")
        return
    if not is_as_recorded(file.path, info.size, info.etag, file.size, file.etag):
        raise ChangedFileError(
            file.path, f"{file.size} bytes, ETag {file.etag}", f"{info.size} bytes, ETag {info.etag}"
        )


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
