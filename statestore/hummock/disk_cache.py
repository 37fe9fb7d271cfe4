"""The disk cache of a host: pieces of SSTs on a local disk, shared by all worker processes.

An SST is split into pieces of 64 KiB. Pieces are in the slots of one file (cache_file.py), whose index all processes
map. No process holds a lock, and there is no daemon: a process that misses a piece fetches it and overwrites the least
recently used piece of its set. Concurrent writes to a slot, a kill, a crash or a bad disk can leave wrong bytes.
Therefore each piece is checked against its entry after it is read; the entry identifies the object, the piece and the
bytes. A mismatch is a miss, and the piece is fetched from the bucket again.

Readers never see an error of the cache. An error that keeps the cache from working switches it off, with one warning.

Settings from the environment of the process (Spark passes an executor's environment to its workers):

    TUSSOCK_DISK_CACHE         auto (default): for stores in S3; on: for every store; off
    TUSSOCK_DISK_CACHE_BYTES   size limit of the file, e.g. 20000000000 or 20GiB;
                               default 8 GiB or a tenth of the free space
    TUSSOCK_DISK_CACHE_DIR     a folder on a local disk, may be shared by users; default /var/tmp (survives reboots)
"""

import functools
import hashlib
import os
import re
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from tussock.statestore.forks import wait_before_fork
from tussock.statestore.hummock.cache_file import ENTRY_BYTES, PIECE_BYTES, WAYS, BusyError, CacheFile, open_cache_file
from tussock.statestore.hummock.sorted_keys import Positions
from tussock.statestore.objectstore.base import ObjectStore

# Bytes of the file system to leave free. With less free space, only slots that already occupy disk space are written.
SPARE_BYTES = 1 << 30

_STEP = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: spreads consecutive pieces evenly over the sets
_MASK = (1 << 64) - 1
_LAST = np.iinfo(np.int64).max
_LATEST = 1 << 62  # above every valid stamp; a stamp above it is damaged and counts as the oldest
_FREE = bytes(ENTRY_BYTES - 8)  # an entry without its stamp
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

Words = npt.NDArray[np.uint64]

_lock = threading.Lock()  # for the threads of this process
wait_before_fork(_lock)


@dataclass(slots=True)
class DiskCounts:
    """Statistics of this process's use of the cache, in pieces."""

    hits: int = 0
    misses: int = 0
    damaged: int = 0  # misses whose piece did not match its entry
    writes: int = 0


@dataclass(frozen=True, slots=True)
class CachedObject:
    """The cache's identity of an object: 128 bits of blake2b over store, name and size.

    SSTs are named by a hash of their bytes, so equal identities mean equal bytes.
    """

    high: int
    low: int
    size: int

    @staticmethod
    def of_object(uri: str, name: str, size: int) -> "CachedObject":
        """The identity of the object `name` with `size` bytes in the store at `uri`."""
        digest = hashlib.blake2b(f"{uri}\0{name}\0{size}".encode(), digest_size=16).digest()
        return CachedObject(int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"), size)

    @property
    def piece_count(self) -> int:
        """The number of pieces."""
        return -(-self.size // PIECE_BYTES)

    def low_ids(self, pieces: Positions) -> Words:
        """The low halves of the pieces' ids."""
        return np.uint64(self.low) + pieces.astype(np.uint64) * np.uint64(_STEP)

    def piece_length(self, piece: int) -> int:
        """Bytes of a piece: PIECE_BYTES, except for the last one."""
        return min(PIECE_BYTES, self.size - piece * PIECE_BYTES)

    def expected_checksum(self, low: int, data: bytes | memoryview) -> int:
        """The expected checksum in the entry of the piece with this id."""
        return xxhash.xxh3_64_intdigest(data, seed=(self.high ^ low) + len(data) & _MASK)


class DiskCache:
    """Pieces of SSTs in a file of at most `capacity` bytes. Evicts the least recently used piece of a set.

    Safe for concurrent threads and processes.
    Cost: about 15 us per hit, including 10 us for copying and checking 64 KiB; about 30 us per write. Looking up n
        pieces is one gather.
    """

    def __init__(self, parent: Path, capacity: int | None = None, spare: int = SPARE_BYTES) -> None:
        """Use the cache below the folder `parent`. The first use opens it.

        Args:
            capacity: bytes; None: keep an existing file, else `cache_file.default_capacity`.
            spare: bytes of the file system to leave free.
        """
        self.parent, self.capacity, self.spare = parent, capacity, spare
        self.counts = DiskCounts()
        self._file: CacheFile | None = None
        self._off = self._read_only = False

    def read_pieces(
        self, of: CachedObject, pieces: Positions, starts: Positions, ends: Positions, use: bool = True
    ) -> list[bytes | None]:
        """Read bytes starts[i] … ends[i] - 1 of each piece; None for pieces that are not cached.

        Args:
            pieces: distinct numbers.
            use: whether the read counts as a use of the pieces.
        """
        if (file := self._open_file()) is None:
            self.counts.misses += len(pieces)
            return [None] * len(pieces)
        lows = of.low_ids(pieces)
        sets = _sets_of(lows, file.sets)
        rows = file.index[sets]
        same = (rows[:, :, 0] == np.uint64(of.high)) & (rows[:, :, 1] == lows[:, None])
        here = np.flatnonzero(same.any(axis=1))
        ways = same.argmax(axis=1)
        slots = (sets.astype(np.int64) * WAYS + ways)[here].tolist()
        for slot in slots if len(slots) > 1 else ():  # lets the disk work on all of them at once
            with suppress(OSError):
                os.posix_fadvise(file.handle, file.piece_offset(slot), PIECE_BYTES, os.POSIX_FADV_WILLNEED)
        parts: list[bytes | None] = [None] * len(pieces)
        sums = rows[here, ways[here], 2].tolist()
        room = memoryview(bytearray(PIECE_BYTES))
        for place, slot, low, expected in zip(here.tolist(), slots, lows[here].tolist(), sums, strict=True):
            data = _read_into(file, slot, room[: of.piece_length(int(pieces[place]))])
            if data is not None and of.expected_checksum(low, data) == expected:
                parts[place] = bytes(data[starts[place] : ends[place]])
            elif np.array_equal(file.index[slot // WAYS, slot % WAYS, :3], rows[place, ways[place], :3]):
                self.counts.damaged += 1  # The entry is unchanged, so the slot was not overwritten meanwhile.
                self._free_slot(file, slot)
        if use:
            self._mark_used(file, slots, rows[here])
        hits = len(pieces) - parts.count(None)
        self.counts.hits += hits
        self.counts.misses += len(pieces) - hits
        return parts

    def write_pieces(self, of: CachedObject, first: int, data: bytes | memoryview) -> None:
        """Store pieces of an object. Pieces that are already cached stay unchanged.

        Args:
            first: number of the first piece in `data`.
            data: whole pieces, except for the object's last one.
        """
        if self._read_only or (file := self._open_file()) is None:
            return
        view = memoryview(data)
        pieces = np.arange(first, first + -(-len(view) // PIECE_BYTES))
        lows = of.low_ids(pieces)
        try:
            roomy = file.free_bytes() > self.spare
            for place, (low, number) in enumerate(zip(lows.tolist(), _sets_of(lows, file.sets).tolist(), strict=True)):
                piece = view[place * PIECE_BYTES : (place + 1) * PIECE_BYTES]
                checksum = of.expected_checksum(low, piece)
                with _lock:  # Only threads of one process exclude each other; processes may collide.
                    self._write_piece(file, number, of.high, low, checksum, piece, roomy)
        except OSError as err:
            with _lock:
                known, self._read_only = self._read_only, True
            if not known:
                _warn(
                    f"this process no longer writes to the disk cache below {self.parent}: {err}. "
                    "Reads continue from the cache and the bucket."
                )

    def forget_pieces(self, of: CachedObject, pieces: Positions) -> None:
        """Free the slots of pieces whose contents were damaged before they were cached."""
        if (file := self._open_file()) is None:
            return
        lows = of.low_ids(pieces)
        sets = _sets_of(lows, file.sets)
        rows = file.index[sets]
        for place, way in np.argwhere(
            (rows[:, :, 0] == np.uint64(of.high)) & (rows[:, :, 1] == lows[:, None])
        ).tolist():
            self._free_slot(file, int(sets[place]) * WAYS + way)

    def _open_file(self) -> CacheFile | None:
        """The file, reopened if it was replaced; None if there is no cache, or not at the moment."""
        if (file := self._file) is not None and file.in_place():
            return file
        if self._off:
            return None
        with _lock:
            if self._off or ((file := self._file) is not None and file.in_place()):  # another thread was faster
                return None if self._off else file
            try:
                # After the first time do not insist on a size: processes with different limits would replace the file
                # forever.
                self._file = open_cache_file(self.parent, self.capacity, insist=self._file is None)
            except BusyError:
                return None
            except (OSError, ValueError) as err:
                self._file, self._off = None, True
                advice = (
                    "Set TUSSOCK_DISK_CACHE_DIR to a folder on a local disk that this user may write to, "
                    "or set TUSSOCK_DISK_CACHE=off."
                )
                _warn(f"no disk cache is available below {self.parent}: {err}. Reads go to the bucket. {advice}")
            return self._file

    def _write_piece(
        self, file: CacheFile, number: int, high: int, low: int, checksum: int, data: memoryview, roomy: bool
    ) -> None:
        """Write a piece to set `number`. The order of writes ensures that an entry never names incomplete bytes."""
        row = np.array(file.index[number])
        if ((row[:, 0] == np.uint64(high)) & (row[:, 1] == np.uint64(low))).any():
            return
        stamps = _stamps_of(row)
        order = np.where((row[:, 0] | row[:, 1]) == 0, 0, stamps + 1)  # free slots first
        if not roomy:
            order[stamps == 0] = _LAST  # A slot that was never written occupies no disk space yet.
        turn = low % WAYS  # lets concurrent writers choose different free slots
        way = (int(np.roll(order, -turn).argmin()) + turn) % WAYS
        if order[way] == _LAST:
            return
        slot = number * WAYS + way
        if row[way, :3].any():
            _write_all(file, _FREE, file.entry_offset(slot))
        _write_all(file, data, file.piece_offset(slot))
        entry = np.array([high, low, checksum, int(stamps.max()) + 1], "<u8")
        _write_all(file, entry.tobytes(), file.entry_offset(slot))
        self.counts.writes += 1

    def _mark_used(self, file: CacheFile, slots: Sequence[int], rows: Words) -> None:
        """Mark the slots as the most recently used of their sets. `rows` are the sets as read."""
        stamps = _stamps_of(rows)
        newest = stamps.max(axis=1)
        mine = stamps[np.arange(len(slots)), np.array(slots, np.int64) % WAYS]
        for slot, stamp in zip(
            np.array(slots, np.int64)[mine < newest].tolist(), (newest[mine < newest] + 1).tolist(), strict=True
        ):
            try:
                os.pwrite(file.handle, int(stamp).to_bytes(8, "little"), file.entry_offset(slot) + ENTRY_BYTES - 8)
            except OSError:
                return  # affects only the order of eviction

    def _free_slot(self, file: CacheFile, slot: int) -> None:
        try:
            _write_all(file, _FREE, file.entry_offset(slot))
        except OSError:
            return  # The next read finds the same damage and is a miss again.


@dataclass(frozen=True, slots=True)
class DiskCacheSettings:
    """Settings from the environment; see the module docstring."""

    stores: str = "auto"
    capacity: int | None = None
    parent: Path = Path("/var/tmp")

    @staticmethod
    def from_environment(environment: Mapping[str, str]) -> "DiskCacheSettings":
        """Parse the settings. An invalid value switches the cache off with a warning, since reads work without it."""
        stores = environment.get("TUSSOCK_DISK_CACHE") or "auto"
        size = environment.get("TUSSOCK_DISK_CACHE_BYTES") or ""
        folder = environment.get("TUSSOCK_DISK_CACHE_DIR") or ""
        match = re.fullmatch(r"(\d{1,18})\s*([KMGT]?)(iB|B)?", size) if size else None
        if (
            stores not in ("auto", "on", "off")
            or (size and match is None)
            or (folder and not Path(folder).is_absolute())
        ):
            _warn(
                f"the disk cache is off: found TUSSOCK_DISK_CACHE={stores!r}, TUSSOCK_DISK_CACHE_BYTES={size!r}, "
                f"TUSSOCK_DISK_CACHE_DIR={folder!r}; expected auto, on or off; a number of bytes such as 20GiB "
                "(0: off); an absolute path."
            )
            return DiskCacheSettings("off")
        capacity = int(match[1]) * _UNITS[match[2]] if match is not None else None
        default = Path("/var/tmp") if Path("/var/tmp").is_dir() else Path(tempfile.gettempdir())
        return DiskCacheSettings("off" if capacity == 0 else stores, capacity, Path(folder) if folder else default)


@functools.cache
def process_settings() -> DiskCacheSettings:
    """The settings in this process's environment, read once."""
    return DiskCacheSettings.from_environment(os.environ)


@functools.cache
def process_disk_cache() -> DiskCache:
    """The cache that all remote stores of this process share."""
    return DiskCache(process_settings().parent, process_settings().capacity)


def disk_cache_for(objects: ObjectStore) -> DiskCache | None:
    """The cache for reads of this store, or None. By default only S3 stores use it: a local directory is as fast."""
    stores = process_settings().stores
    remote = objects.uri.partition(":")[0].rpartition("+")[2] == "s3"  # also with a prefix scheme, as in latency+s3
    return process_disk_cache() if stores == "on" or (stores == "auto" and remote) else None


def _sets_of(lows: Words, sets: int) -> Words:
    """The set of each id: its upper 32 bits, scaled."""
    return (lows >> np.uint64(32)) * np.uint64(sets) >> np.uint64(32)


def _stamps_of(rows: Words) -> npt.NDArray[np.int64]:
    stamps = rows[..., 3]
    return np.where(stamps < np.uint64(_LATEST), stamps, np.uint64(0)).astype(np.int64)


def _read_into(file: CacheFile, slot: int, room: memoryview) -> memoryview | None:
    """Read the first len(room) bytes of a slot; None on an error.

    Does not use a map: there an error is a signal, and waiting holds the GIL.
    """
    try:
        return room if os.preadv(file.handle, [room], file.piece_offset(slot)) == len(room) else None
    except OSError:
        return None


def _write_all(file: CacheFile, data: bytes | memoryview, offset: int) -> None:
    """Write all bytes. Raises OSError, also after a partial write."""
    if (written := os.pwrite(file.handle, data, offset)) != len(data):
        raise OSError(f"{written} of {len(data)} bytes were written; the disk is full, or the file may not grow")


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)
