"""The file of a host's disk cache: fixed slots for pieces of SSTs, and an index that every process maps.

    +-----------+  offset 0
    | header    |  4,096 B: magic 8 B "TUSSOCKC" | version u32 | piece bytes u32 | ways u32 | reserved u32, 0 | sets u64
    |           |  xxh3_64 of these 32 bytes u64, then zeros
    | index     |  `sets` sets of `ways` entries of 32 B each: id high u64 | id low u64 | checksum u64 | stamp u64
    +-----------+  the next multiple of 4,096
    | slots     |  one per entry, in order, `piece bytes` each: the piece starts at the first byte of its slot
    +-----------+  end of file

Numbers are little-endian. An id is the id of an object (disk_cache.py) with `piece * STEP` added to its low half. A
piece can be in any slot of one set, which the id determines. The checksum is the xxh3_64 of the piece's bytes, seeded
with its id and length, so an entry is valid only for the bytes of that piece. An id of zeros marks a free slot. Stamps
order a set by use; the greatest was used last.

The file is sparse: it occupies the space of all slots ever written, and never more than its length. It is in a folder
that only this user can enter (0700, our uid), and is opened without following links. It is created under a temporary
name and renamed, so it is always complete. A truncated or foreign file, or one of another version, is replaced. A
process that still has the replaced file open notices that it has no name, and opens the new one.
"""

import errno
import fcntl
import mmap
import os
import stat
import struct
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

MAGIC = b"TUSSOCKC"
VERSION = 1
PIECE_BYTES = 64 << 10
WAYS = 64
ENTRY_BYTES = 32
HEADER_BYTES = 4096
MIN_BYTES = HEADER_BYTES + 4096 + WAYS * PIECE_BYTES  # of a file with one set

_FILE, _NEW = "sst-pieces", "sst-pieces.new"
_HEADER = struct.Struct("<8sIIIIQ")
_FOREIGN = 0o077  # permissions of other users, which folder and file must not grant
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # O_NONBLOCK: do not block on a planted FIFO


class UnsafeFolderError(OSError):
    """Another user could write to the cache's folder. The cache does not touch its contents."""


class BusyError(OSError):
    """Another process is creating the file right now."""


class CacheFile:
    """An open cache file: its index is mapped read-only, and all writes use pwrite.

    Writing to a mapped page on a full disk kills the process with a signal; pwrite returns an error.
    """

    def __init__(self, handle: int, sets: int) -> None:
        """Take ownership of an open file. Requires: its length fits a file with `sets` sets."""
        self.handle, self.sets = handle, sets
        self.slots_offset = _slots_offset(sets)
        self.size = self.slots_offset + sets * WAYS * PIECE_BYTES
        mapped = mmap.mmap(handle, self.slots_offset, mmap.MAP_SHARED, mmap.PROT_READ)
        entries = np.frombuffer(mapped, "<u8", sets * WAYS * ENTRY_BYTES // 8, HEADER_BYTES)
        self.index: npt.NDArray[np.uint64] = entries.reshape(sets, WAYS, ENTRY_BYTES // 8)
        weakref.finalize(self, os.close, handle)

    def in_place(self) -> bool:
        """Whether the file still has its name and length: it was not replaced, and reading the map is safe."""
        file_status = os.fstat(self.handle)
        return file_status.st_nlink == 1 and file_status.st_size == self.size

    def entry_offset(self, slot: int) -> int:
        """File offset of a slot's entry."""
        return HEADER_BYTES + slot * ENTRY_BYTES

    def piece_offset(self, slot: int) -> int:
        """File offset of a slot's piece."""
        return self.slots_offset + slot * PIECE_BYTES

    def free_bytes(self) -> int:
        """Free bytes in the file system for this user."""
        file_system = os.fstatvfs(self.handle)
        return file_system.f_bavail * file_system.f_frsize


def open_cache_file(parent: Path, capacity: int | None, insist: bool = True) -> CacheFile:
    """Open or create the user's cache file below `parent`.

    Args:
        parent: a folder, created if missing. The file is in its subfolder `tussock-cache-<uid>` (mode 0700).
        capacity: size limit of the file in bytes; None: keep an existing file, else `default_capacity`.
        insist: replace an existing file of another length.

    Raises:
        UnsafeFolderError: the folder belongs to another user, or others may enter it.
        BusyError: another process is creating the file; retry later.
        OSError: the file cannot be created for another reason.
    """
    wanted = _sets_of(capacity) if capacity is not None and insist else None
    folder = _open_folder(parent / f"tussock-cache-{os.geteuid()}")
    try:
        if (cache_file := _open_file(folder, wanted)) is None:
            try:
                # Released when `folder` is closed or the process dies.
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as err:
                raise BusyError(err.errno, "another process is creating the cache file") from err
            if (cache_file := _open_file(folder, wanted)) is None:
                cache_file = _make_file(folder, _sets_of(default_capacity(folder) if capacity is None else capacity))
        return cache_file
    finally:
        os.close(folder)


def default_capacity(folder: int) -> int:
    """8 GiB, or a tenth of the free space if that is less."""
    file_system = os.fstatvfs(folder)
    return min(8 << 30, file_system.f_bavail * file_system.f_frsize // 10)


def _open_folder(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as err:
        if err.errno in (errno.ELOOP, errno.ENOTDIR):
            raise UnsafeFolderError(err.errno, "it is a link or not a folder", str(path)) from err
        raise
    file_status = os.fstat(handle)
    if file_status.st_uid != os.geteuid() or file_status.st_mode & _FOREIGN:
        os.close(handle)
        facts = (
            f"it belongs to uid {file_status.st_uid} with mode {file_status.st_mode & 0o777:04o}; "
            f"expected uid {os.geteuid()} and mode 0700"
        )
        raise UnsafeFolderError(errno.EPERM, facts, str(path))
    return handle


def _open_file(folder: int, wanted: int | None) -> CacheFile | None:
    """Open the existing file if it is valid and has `wanted` sets (None: any number), else return None."""
    try:
        handle = os.open(_FILE, _OPEN, dir_fd=folder)
    except OSError as err:
        if err.errno in (errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENXIO):
            return None
        raise
    try:
        file_status = os.fstat(handle)
        ours = (
            stat.S_ISREG(file_status.st_mode)
            and file_status.st_uid == os.geteuid()
            and not file_status.st_mode & _FOREIGN
            and file_status.st_nlink == 1
        )
        sets = _read_header(handle) if ours else 0
        if sets and file_status.st_size == _size_of(sets) and wanted in (None, sets):
            taken = CacheFile(handle, sets)
            handle = -1
            return taken
        return None
    finally:
        if handle >= 0:
            os.close(handle)


def _make_file(folder: int, sets: int) -> CacheFile:
    """Create a new file and replace an existing one. Requires: the folder's lock is held."""
    with suppress(FileNotFoundError):
        os.unlink(_NEW, dir_fd=folder)  # left by a killed process
    handle = os.open(_NEW, _OPEN | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    try:
        header = _HEADER.pack(MAGIC, VERSION, PIECE_BYTES, WAYS, 0, sets)
        header += struct.pack("<Q", xxhash.xxh3_64_intdigest(header))
        if os.pwrite(handle, header.ljust(HEADER_BYTES, b"\0"), 0) != HEADER_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(handle, _size_of(sets))
        os.rename(_NEW, _FILE, src_dir_fd=folder, dst_dir_fd=folder)
        cache_file = CacheFile(handle, sets)
        handle = -1
        return cache_file
    finally:
        if handle >= 0:
            os.close(handle)


def _read_header(handle: int) -> int:
    """The number of sets, or 0 if this is not a cache file of this version."""
    data = os.pread(handle, _HEADER.size + 8, 0)
    if len(data) < _HEADER.size + 8 or xxhash.xxh3_64_intdigest(data[: _HEADER.size]) != int.from_bytes(
        data[_HEADER.size :], "little"
    ):
        return 0
    magic, version, piece, ways, _, sets = _HEADER.unpack_from(data)
    return int(sets) if (magic, version, piece, ways) == (MAGIC, VERSION, PIECE_BYTES, WAYS) else 0


def _slots_offset(sets: int) -> int:
    return -(-(HEADER_BYTES + sets * WAYS * ENTRY_BYTES) // 4096) * 4096


def _size_of(sets: int) -> int:
    return _slots_offset(sets) + sets * WAYS * PIECE_BYTES


def _sets_of(capacity: int) -> int:
    """The largest number of sets that fits. Raises OSError if none does."""
    sets = (capacity - HEADER_BYTES - 4096) // (WAYS * (PIECE_BYTES + ENTRY_BYTES))
    if sets < 1:
        if capacity >= MIN_BYTES:
            return 1
        raise OSError(errno.ENOSPC, f"a disk cache needs at least {MIN_BYTES} bytes, but the limit is {capacity}")
    return int(sets)
