"""The disk cache of a host: pieces of SSTs on the local disk, shared by all its worker processes, between their memory and the bucket.

An SST is cut into pieces of 64 KiB. Pieces lie in the slots of one file (cache_file.py) whose index all processes map. Nobody holds a
lock, and no daemon tends it: a process that misses a piece fetches it and puts it over the least recently used one of its set. What two
processes do to one slot at once, what a kill, a crash or a bad disk leaves there: every piece is checked against its entry after it
was read, and the entry names the object, the piece and the bytes. What does not match is a miss, and is fetched from the bucket again.

Nothing in here raises to a reader. What keeps the cache from working switches it off, with one warning.

Settings, from the environment of the process (Spark hands its executors' environment to their workers):

    TUSSOCK_DISK_CACHE         auto (default): for stores in S3; on: for every store; off
    TUSSOCK_DISK_CACHE_BYTES   the most bytes the file may have, e.g. 20000000000 or 20GiB; default 8 GiB or a tenth of the free disk
    TUSSOCK_DISK_CACHE_DIR     a folder on a local disk, shared among users if need be; default /var/tmp, which outlives a reboot
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

from tussock.statestore.hummock.cache_file import ENTRY_BYTES, PIECE_BYTES, WAYS, BusyError, CacheFile, open_cache_file
from tussock.statestore.hummock.sorted_keys import Positions
from tussock.statestore.objectstore.base import ObjectStore

SPARE_BYTES = (
    1 << 30
)  # of the file system that are left to others: with less free, only slots that have their room are written

_STEP = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: neighbouring pieces spread evenly over the sets
_MASK = (1 << 64) - 1
_LAST = np.iinfo(np.int64).max
_LATEST = 1 << 62  # no honest stamp gets here; one that does was damaged, and counts as the oldest
_FREE = bytes(ENTRY_BYTES - 8)  # an entry but for its stamp
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

Words = npt.NDArray[np.uint64]

_lock = threading.Lock()  # of this process's threads; a child that is forked meanwhile must not inherit it taken
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@dataclass(slots=True)
class DiskCounts:
    """What this process has done with the cache, in pieces."""

    hits: int = 0
    misses: int = 0
    damaged: int = 0  # of the misses: pieces that were not what their entry says
    writes: int = 0


@dataclass(frozen=True, slots=True)
class CachedObject:
    """An object as the cache knows it: 128 bits of blake2b over store, name and size. Names of SSTs are hashes of their bytes."""

    high: int
    low: int
    size: int

    @staticmethod
    def of(uri: str, name: str, size: int) -> "CachedObject":
        """The object `name`, of `size` bytes, of the store at `uri`."""
        digest = hashlib.blake2b(f"{uri}\0{name}\0{size}".encode(), digest_size=16).digest()
        return CachedObject(int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"), size)

    @property
    def pieces(self) -> int:
        """How many it is cut into."""
        return -(-self.size // PIECE_BYTES)

    def lows(self, pieces: Positions) -> Words:
        """The low halves of the pieces' ids."""
        return np.uint64(self.low) + pieces.astype(np.uint64) * np.uint64(_STEP)

    def length(self, piece: int) -> int:
        """Bytes of a piece: PIECE_BYTES but for the last one."""
        return min(PIECE_BYTES, self.size - piece * PIECE_BYTES)

    def checksum(self, low: int, data: bytes | memoryview) -> int:
        """What the entry of the piece with this id must say of its bytes."""
        return xxhash.xxh3_64_intdigest(data, seed=(self.high ^ low) + len(data) & _MASK)


class DiskCache:
    """Pieces of SSTs in a file of at most `capacity` bytes, the least recently used of a set out first. Safe among threads and processes.

    Cost: a hit about 15 us, of which 10 us are the copy and checksum of 64 KiB; a write about 30 us; a lookup of n pieces is one gather.
    """

    def __init__(self, parent: Path, capacity: int | None = None, spare: int = SPARE_BYTES) -> None:
        """Use the cache below the folder `parent`. Nothing is opened before the first use.

        Args:
            capacity: bytes; None: as the file is found, else `cache_file.default_capacity`.
            spare: bytes of the file system that stay free.
        """
        self.parent, self.capacity, self.spare = parent, capacity, spare
        self.counts = DiskCounts()
        self._file: CacheFile | None = None
        self._off = self._read_only = False

    def read(
        self, of: CachedObject, pieces: Positions, starts: Positions, ends: Positions, use: bool = True
    ) -> list[bytes | None]:
        """Bytes starts[i] … ends[i] - 1 of each piece, counted from the piece's begin; None where they are not here.

        Args:
            pieces: numbers, each once.
            use: whether this counts as a use of them.
        """
        if (file := self._opened()) is None:
            self.counts.misses += len(pieces)
            return [None] * len(pieces)
        lows = of.lows(pieces)
        sets = _sets_of(lows, file.sets)
        rows = file.index[sets]
        same = (rows[:, :, 0] == np.uint64(of.high)) & (rows[:, :, 1] == lows[:, None])
        here = np.flatnonzero(same.any(axis=1))
        ways = same.argmax(axis=1)
        slots = (sets.astype(np.int64) * WAYS + ways)[here].tolist()
        for slot in slots if len(slots) > 1 else ():  # a disk works on all of them at once
            with suppress(OSError):
                os.posix_fadvise(file.handle, file.piece_offset(slot), PIECE_BYTES, os.POSIX_FADV_WILLNEED)
        found: list[bytes | None] = [None] * len(pieces)
        sums = rows[here, ways[here], 2].tolist()
        room = memoryview(bytearray(PIECE_BYTES))
        for place, slot, low, expected in zip(here.tolist(), slots, lows[here].tolist(), sums, strict=True):
            data = _read_into(file, slot, room[: of.length(int(pieces[place]))])
            if data is not None and of.checksum(low, data) == expected:
                found[place] = bytes(data[starts[place] : ends[place]])
            elif np.array_equal(file.index[slot // WAYS, slot % WAYS, :3], rows[place, ways[place], :3]):
                self.counts.damaged += 1  # and not written over meanwhile
                self._free(file, slot)
        if use:
            self._touch(file, slots, rows[here])
        hits = len(pieces) - found.count(None)
        self.counts.hits += hits
        self.counts.misses += len(pieces) - hits
        return found

    def write(self, of: CachedObject, first: int, data: bytes | memoryview) -> None:
        """Keep bytes of an object; pieces that are here already stay as they are.

        Args:
            first: the piece that `data` starts with.
            data: whole pieces, but for the object's last one.
        """
        if self._read_only or (file := self._opened()) is None:
            return
        view = memoryview(data)
        pieces = np.arange(first, first + -(-len(view) // PIECE_BYTES))
        lows = of.lows(pieces)
        try:
            roomy = file.free_bytes() > self.spare
            for place, (low, number) in enumerate(zip(lows.tolist(), _sets_of(lows, file.sets).tolist(), strict=True)):
                piece = view[place * PIECE_BYTES : (place + 1) * PIECE_BYTES]
                checksum = of.checksum(low, piece)
                with _lock:  # threads of a process need not get into each other's way; processes may
                    self._write_piece(file, number, of.high, low, checksum, piece, roomy)
        except OSError as err:
            with _lock:
                known, self._read_only = self._read_only, True
            if not known:
                _warn(
                    f"this process writes no more to the disk cache below {self.parent}: {err}. Reads go on, from it and the bucket."
                )

    def forget(self, of: CachedObject, pieces: Positions) -> None:
        """Free the pieces' slots: what is in them came damaged from the bucket."""
        if (file := self._opened()) is None:
            return
        lows = of.lows(pieces)
        sets = _sets_of(lows, file.sets)
        rows = file.index[sets]
        for place, way in np.argwhere(
            (rows[:, :, 0] == np.uint64(of.high)) & (rows[:, :, 1] == lows[:, None])
        ).tolist():
            self._free(file, int(sets[place]) * WAYS + way)

    def _opened(self) -> CacheFile | None:
        """The file, opened when there is none yet or another has taken its place; None: there is no cache, or none right now."""
        if (file := self._file) is not None and file.in_place():
            return file
        if self._off:
            return None
        with _lock:
            if self._off or ((file := self._file) is not None and file.in_place()):  # another thread was faster
                return None if self._off else file
            try:
                # Two processes that were set up with different bounds must not replace each other's files for ever.
                self._file = open_cache_file(self.parent, self.capacity, insist=self._file is None)
            except BusyError:
                return None
            except (OSError, ValueError) as err:
                self._file, self._off = None, True
                advice = "Let TUSSOCK_DISK_CACHE_DIR name a folder on a local disk this user may write to, or set TUSSOCK_DISK_CACHE=off."
                _warn(f"there is no disk cache below {self.parent}: {err}. Reads go to the bucket. {advice}")
            return self._file

    def _write_piece(
        self, file: CacheFile, number: int, high: int, low: int, checksum: int, data: memoryview, roomy: bool
    ) -> None:
        """Put a piece into set `number`. In this order: no entry ever names a slot whose bytes were not all written before."""
        row = np.array(file.index[number])
        if ((row[:, 0] == np.uint64(high)) & (row[:, 1] == np.uint64(low))).any():
            return
        stamps = _stamps(row)
        order = np.where((row[:, 0] | row[:, 1]) == 0, 0, stamps + 1)  # free ones first
        if not roomy:
            order[stamps == 0] = _LAST  # what was never written has no room on the disk yet
        turn = low % WAYS  # of several free ones, writers at work at once should take different ones
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

    def _touch(self, file: CacheFile, slots: Sequence[int], rows: Words) -> None:
        """Make the slots the most recently used ones of their sets, `rows`, as those were found."""
        stamps = _stamps(rows)
        newest = stamps.max(axis=1)
        mine = stamps[np.arange(len(slots)), np.array(slots, np.int64) % WAYS]
        for slot, stamp in zip(
            np.array(slots, np.int64)[mine < newest].tolist(), (newest[mine < newest] + 1).tolist(), strict=True
        ):
            try:
                os.pwrite(file.handle, int(stamp).to_bytes(8, "little"), file.entry_offset(slot) + ENTRY_BYTES - 8)
            except OSError:
                return  # the order of use suffers, and nothing else

    def _free(self, file: CacheFile, slot: int) -> None:
        try:
            _write_all(file, _FREE, file.entry_offset(slot))
        except OSError:
            return  # it is found damaged again, and is a miss again


@dataclass(frozen=True, slots=True)
class DiskCacheSettings:
    """What the environment says; see above."""

    stores: str = "auto"
    capacity: int | None = None
    parent: Path = Path("/var/tmp")

    @staticmethod
    def of(environment: Mapping[str, str]) -> "DiskCacheSettings":
        """Read the settings. A value that cannot be understood switches the cache off, with a warning: reads need none of this."""
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
                f"the disk cache is off: found TUSSOCK_DISK_CACHE={stores!r}, TUSSOCK_DISK_CACHE_BYTES={size!r}, TUSSOCK_DISK_CACHE_DIR="
                f"{folder!r}; expected auto, on or off; a number of bytes such as 20GiB (0: off); an absolute path."
            )
            return DiskCacheSettings("off")
        capacity = int(match[1]) * _UNITS[match[2]] if match is not None else None
        default = Path("/var/tmp") if Path("/var/tmp").is_dir() else Path(tempfile.gettempdir())
        return DiskCacheSettings("off" if capacity == 0 else stores, capacity, Path(folder) if folder else default)


@functools.cache
def process_settings() -> DiskCacheSettings:
    """What this process's environment says; read once."""
    return DiskCacheSettings.of(os.environ)


@functools.cache
def process_disk_cache() -> DiskCache:
    """The cache that all remote stores of this process share."""
    return DiskCache(process_settings().parent, process_settings().capacity)


def disk_cache_for(objects: ObjectStore) -> DiskCache | None:
    """The cache for reads of this store, if it is to have one: a directory or this process's memory is as near as the cache would be."""
    stores = process_settings().stores
    remote = objects.uri.partition(":")[0].rpartition("+")[2] == "s3"  # also s3 after another scheme, as in latency+s3
    return process_disk_cache() if stores == "on" or (stores == "auto" and remote) else None


def _sets_of(lows: Words, sets: int) -> Words:
    """The set of each id: its upper 32 bits, scaled."""
    return (lows >> np.uint64(32)) * np.uint64(sets) >> np.uint64(32)


def _stamps(rows: Words) -> npt.NDArray[np.int64]:
    stamps = rows[..., 3]
    return np.where(stamps < np.uint64(_LATEST), stamps, np.uint64(0)).astype(np.int64)


def _read_into(file: CacheFile, slot: int, room: memoryview) -> memoryview | None:
    """The slot's first len(room) bytes; None: the disk refuses. Not by a map: there, that is a signal, and waiting holds the GIL."""
    try:
        return room if os.preadv(file.handle, [room], file.piece_offset(slot)) == len(room) else None
    except OSError:
        return None


def _write_all(file: CacheFile, data: bytes | memoryview, offset: int) -> None:
    """Raises OSError, also when only a part of it found room."""
    if (written := os.pwrite(file.handle, data, offset)) != len(data):
        raise OSError(f"{written} of {len(data)} bytes were written; the disk is full, or the file may not grow")


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)
