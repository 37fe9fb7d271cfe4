"""Pinned files: check that a file is unchanged, and read it from an object store as a file object."""

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
from tussock.statestore.objectstore.range_file import ReadableObjects

_BLOCK_BYTES = 1 << 20
LOCAL_ETAG = r"^(\d+-\d+)-(\d+)$"  # of a local file: its size and modification time, and the inode's change time
_UNSETTLED = "?"  # after an ETag that other content could have as well
_SECOND_NS = 1_000_000_000
_TICK_NS = 20_000_000  # a kernel may give files the same time for this long
_COARSE_TICK_NS = 2 * _SECOND_NS  # a file system with a resolution of one or two seconds


class Portion(msgspec.Struct, frozen=True, array_like=True):
    """A taken portion of a file."""

    number: int  # as PinnedFile.number
    ingested: int = 0  # as PinnedFile.ingested


class Portions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The portions of a file that costs more than an epoch may (file_portions.py)."""

    records: int  # of each portion but the last, which has the rest
    count: int  # of all portions, taken or not
    taken: tuple[Portion, ...]  # in the order of their records
    ended: bool = False  # the records after the taken portions were skipped


class PinnedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source file in its pinned state. The epoch fails if the file has another size or content when it is read."""

    path: str
    size: int  # bytes
    etag: str  # from `recorded_etag`
    number: int  # of this content within its source, from 0; unique among live numbers
    kept: str = ""  # where these bytes are kept (kept.py); empty: only at `path`
    weight: int = 1  # of each of its rows; -1 takes them back
    rows: bool = True  # False: it was skipped, or its rows were taken back although the file exists
    withdrawn: bool = False  # in a barrier: no delivery brings its rows back, so its bytes are not kept any longer
    accepted: str = ""  # `mark_of` the changed content that was accepted; empty: no change is accepted
    store: str = ""  # during a read: the store that contains `kept`, which is read instead of `path`
    modified: int = 0  # of an object: its last change when it was pinned, Unix ms; 0: unknown, or in the ETag
    # When an epoch took these bytes, Unix microseconds; 0: the epoch of the barrier that pins the file takes them.
    ingested: int = 0
    taken_as: str = ""  # during a read: its path when it was taken, if its folder has moved since
    served: str = ""  # in a task: the address under which the driver serves the bytes (object_gateway.py)
    cost: int = 0  # bytes that an epoch counts for it, or for each portion (file_portions.py); 0: not measured
    portions: Portions | None = None  # of a file that is taken in portions; `number` is that of one of them
    by_spark: str = ""  # of a taken file: why Spark read it; empty: the engine did
    ids: str = ""  # the object with the row ids that its rows have kept (kept_ids.py); empty: no row has kept one
    # In a restatement: the number of the group of files whose equal rows are matched, on one unit; -1: none.
    meets: int = -1

    @property
    def epoch_cost(self) -> int:
        """Bytes that an epoch counts for it."""
        return self.cost or self.size

    @property
    def first_record(self) -> int:
        """Position of the first record to read."""
        return 0 if self.portions is None else self._place * self.portions.records

    @property
    def record_count(self) -> int | None:
        """Number of records to read; None: all from the first one on."""
        if self.portions is None or (self._place == self.portions.count - 1 and not self.portions.ended):
            return None
        return self.portions.records

    @property
    def _place(self) -> int:
        assert self.portions is not None
        return next(place for place, portion in enumerate(self.portions.taken) if portion.number == self.number)

    @property
    def name_in_rows(self) -> str:
        """The path that its rows and rejects contain."""
        return self.taken_as or self.path

    @property
    def local_path(self) -> str:
        """The path of the bytes on this machine; empty if they are elsewhere."""
        if not self.store:
            return self.path if self.path.startswith("/") else ""
        objects = open_object_store(self.store)
        return str(objects.root / self.kept) if isinstance(objects, LocalObjectStore) else ""


def mark_of(path: str, size: int, etag: str) -> str:
    """Return one text for a file's size and content, for `PinnedFile.accepted`. Cost: as `recorded_etag`.

    Args:
        etag: as listed or as recorded.
    """
    return f"{size} {etag if '#' in etag else recorded_etag(path, size, etag)}"


def is_accepted(file: PinnedFile, size: int, etag: str) -> bool:
    """Return whether a file's current size and ETag are the accepted ones. Cost: as `is_as_recorded`."""
    accepted_size, _, accepted = file.accepted.partition(" ")
    return bool(accepted) and is_as_recorded(file.path, size, etag, int(accepted_size), accepted)


def open_readable(file: PinnedFile, options: Mapping[str, str]) -> tuple[ReadableObjects, str]:
    """Return where to read a pinned file's bytes: `open_pinned`, or the driver that serves them."""
    if not file.served:
        return open_pinned(file, options)
    from tussock.jobs.sources.served_object import ServedObject

    return ServedObject(file.served), ""


def open_pinned(file: PinnedFile, options: Mapping[str, str]) -> tuple[ObjectStore, str]:
    """Return the store and object name of a pinned file's bytes. `options`: the source's. Raises BadPathError."""
    return (open_object_store(file.store), file.kept) if file.store else open_file(file.path, options)


def recorded_etag(path: str, size: int, etag: str) -> str:
    """Return the ETag to record for a file: the store's ETag; for a local file also `#` and a hash of its content.

    A local file's ETag consists of its size and its times. A `touch` changes it, but a write within the same tick of
    the file system's clock does not. So this waits until the tick of the file's last change is over. If that takes too
    long, `?` follows the ETag: no ETag then equals the recorded one, so each later look compares the content. An ETag
    in S3 already depends on the content.

    Cost: one read of a local file, which then is in memory for the reader of its rows; nothing for an object.
    """
    if not path.startswith("/"):
        return etag
    if 0 < (left_ns := _unsettled_ns(etag)) <= _TICK_NS:
        time.sleep(left_ns / _SECOND_NS)
    settled = _is_settled(etag)  # before the content is read: a later write gets another time
    content = _cached_content(path, size, etag) if settled else _read_content(path)
    return f"{etag}{'' if settled else _UNSETTLED}#{content}" if content else etag


def listed_etag(recorded: str) -> str:
    """Return the store's ETag from a recorded one."""
    return recorded.partition("#")[0].removesuffix(_UNSETTLED)


def is_as_recorded(path: str, size: int, etag: str, recorded_size: int, recorded: str) -> bool:
    """Return whether a file with this current size and ETag has the recorded bytes.

    Cost: nothing if the ETag is the recorded one or the size differs. Otherwise the content is read: once per process
    if the file did not change within the last tick.
    """
    if size != recorded_size:
        return False
    known, _, content = recorded.partition("#")
    if known == etag:
        return True
    return content != "" and content == (
        _cached_content(path, size, etag) if _is_settled(etag) else _read_content(path)
    )


def _is_settled(etag: str) -> bool:
    """Return whether a local file changed so long ago that another write gives it another ETag."""
    return _unsettled_ns(etag) <= 0


def _unsettled_ns(etag: str) -> int:
    """Return how long a write may still leave a local file's ETag as it is; at most 0 if it no longer can."""
    if (match := re.match(LOCAL_ETAG, etag)) is None:
        return 0
    changed = int(match[2])
    tick = _TICK_NS if changed % _SECOND_NS else _COARSE_TICK_NS
    return changed + tick + 1 - time.time_ns()


@lru_cache(maxsize=4096)
def _cached_content(path: str, size: int, etag: str) -> str:
    """Cache `_read_content` per process. Size and ETag are only part of the key."""
    return _read_content(path)


def _read_content(path: str) -> str:
    """Return a hash of a local file's bytes; empty if the file is gone."""
    digest = xxh3_128()
    try:
        with Path(path).open("rb", buffering=0) as file:
            # One buffer: new memory for each block would cost more than the hash.
            block = memoryview(bytearray(_BLOCK_BYTES))
            while read := file.readinto(block):
                digest.update(block[:read])
    except FileNotFoundError:
        return ""  # deleted since it was listed; reading it reports that
    except OSError as err:
        raise UnreadableFileError(path, "a file", err.strerror or str(err)) from err
    return digest.hexdigest()


def verify_pin(file: PinnedFile, options: Mapping[str, str]) -> None:
    """Compare a file with its pin, before and after a read, so that the bytes in between are the pinned ones.

    Raises: ChangedFileError, also for a missing file; LostCopyError. Cost: one HEAD request; also the cost of
    `is_as_recorded` if the ETag differs.
    """
    store, name = open_readable(file, options)
    try:
        info = store.head(name)
    except ObjectNotFoundError as err:
        if file.store:
            raise LostCopyError(file.path, f"{file.store}/{file.kept}") from err
        raise ChangedFileError(file.path, f"{file.size} bytes, ETag {file.etag}", "no such file") from err
    if file.store:  # copies are written only once
        if info.size != file.size:
            raise LostCopyError(file.path, f"{file.store}/{file.kept}")
        return
    if not is_as_recorded(file.path, info.size, info.etag, file.size, file.etag):
        raise ChangedFileError(
            file.path, f"{file.size} bytes, ETag {file.etag}", f"{info.size} bytes, ETag {info.etag}"
        )
