"""A directory as an object store: object `name` is the file `root/name`.

A write goes to a temporary file in `root/.tmp`, is synced, and takes its final name in one step: `rename(2)` replaces,
`link(2)` creates. A killed process leaves the old object or the new one, and at worst a file in `.tmp`. Its writer
holds a lock (flock) on this file, which the kernel releases when the process dies. `sweep_temporary` can therefore
distinguish abandoned files from files in use.
"""

import errno
import fcntl
import io
import itertools
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path

from tussock.statestore.errors import TussockError
from tussock.statestore.local_disk import lock_new
from tussock.statestore.objectstore.base import (
    AccessDeniedError,
    BadObjectNameError,
    BadStoreError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStoreFullError,
    ObjectStoreUnavailableError,
    ShortReadError,
    checked_name,
)
from tussock.statestore.objectstore.ranges import ByteRange, plan_reads, slice_of
from tussock.statestore.objectstore.requests import NAMES_A_REQUEST, RequestCounter
from tussock.statestore.objectstore.syncs import note_seen, sync_soon, sync_together

_TEMPORARY = ".tmp"
_GAP_BYTES = 12 << 10  # copying them takes as long as another call. Random blocks would else read most of an object.
_COPIED_BYTES = 4 << 20  # per step when copying a file
_MOST_DURABLE = 4096  # folders to remember; forgetting one costs an fsync
_serial = itertools.count()
_Folders = list[Path]  # in a class with a method of the name `list`
_Objects = list[ObjectInfo]
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EXDEV, errno.EMLINK)


class LocalObjectStore:
    """Objects as files in a directory, which the first write creates. Safe for concurrent threads and processes.

    A write is durable together with every folder on its path. A folder that exists may be the work of a writer that
    was killed before it synced the parent, so an object syncs the parents of each folder when it first writes there.
    For the same reason, a thread syncs the folders of objects that it has read before its next write is visible.

    Requires a file system with hard links and atomic renames.
    Cost of a write: the bytes, one fsync of the file, and one of each changed directory. A write waits for two of them
    after each other (statestore/objectstore/syncs.py).
    """

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.abspath(root))  # noqa: PTH100 - resolve() would follow symbolic links
        self._temporary = self._root / _TEMPORARY
        self._durable = set[Path]()  # folders whose parents we have synced
        self._own = set[str]()  # names that we have written
        self._written = False  # whether this class has written objects here
        self.uri = self._root.as_uri()
        self.requests = RequestCounter()

    def __reduce__(self) -> tuple[type["LocalObjectStore"], tuple[Path]]:
        return LocalObjectStore, (self._root,)

    @property
    def root(self) -> Path:
        """The absolute path of the directory."""
        return self._root

    def get(self, name: str) -> bytes:
        path = self._path_of(name)
        self.requests.count_gets()
        with self._translate_errors("get", name):
            data = path.read_bytes()
        self.requests.count_gets(len(data), requests=0)
        self._note_seen(name)
        return data

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        path = self._path_of(name)
        parts = [b""] * len(ranges)
        with self._translate_errors("get_ranges", name), path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            reads = plan_reads(ranges, _GAP_BYTES)
            if len(reads) > 1:  # lets the disk work on all reads at once, without one thread each
                for read in reads:
                    os.posix_fadvise(file.fileno(), _start_offset(read, size), read.length, os.POSIX_FADV_WILLNEED)
            count = nbytes = 0
            try:
                for read in reads:
                    data = _pread(file.fileno(), read.length, _start_offset(read, size))
                    count, nbytes = count + 1, nbytes + len(data)
                    for i in read.parts:
                        offset, length = ranges[i]
                        parts[i] = slice_of(read, data, offset, length)
                        if len(parts[i]) < length:
                            raise ShortReadError(self.uri, name, offset, length, len(parts[i]))
            finally:
                self.requests.count_gets(nbytes, count)  # once, since a read may have a thousand ranges
        return parts

    def head(self, name: str) -> ObjectInfo:
        path = self._path_of(name)
        self.requests.count_gets()
        with self._translate_errors("head", name):
            stat = path.stat()
            if not path.is_file():
                raise ObjectNotFoundError(self.uri, name)
            self._note_seen(name)
            return _info_of_stat(name, stat)

    def put(self, name: str, data: bytes) -> None:
        path = self._path_of(name)
        self.requests.count_put(len(data))
        with self._translate_errors("put", name, len(data)), self._write_temporary(data, path.parent) as temporary:
            temporary.replace(path)
            self._note_own(name)
            sync_soon(path.parent)

    def put_file(self, name: str, file: Path) -> None:
        """Write an object from a file, atomically and durably. Streams the bytes, so memory use is constant."""
        path = self._path_of(name)
        self.requests.count_put(file.stat().st_size)
        with (
            self._translate_errors("put_file", name, file.stat().st_size),
            self._write_temporary(file, path.parent) as temporary,
        ):
            temporary.replace(path)
            self._note_own(name)
            sync_soon(path.parent)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._path_of(name)
        self.requests.count_put(len(data))
        with self._translate_errors("put_if_absent", name, len(data)):
            try:
                with self._write_temporary(data, path.parent) as temporary:
                    path.hardlink_to(temporary)
            except FileExistsError:
                # The object is ours if an earlier call wrote it and was killed before it returned.
                content = path.read_bytes() if path.is_file() else b""
                self.requests.count_gets(len(content))
                won = content == data
            except OSError as err:
                if err.errno in _NO_LINKS and self._root.is_dir() and os.access(self._root, os.W_OK):
                    reason = (
                        f"its file system refused a hard link ({os.strerror(err.errno)}), which commits require; "
                        "use another file system"
                    )
                    raise BadStoreError(self.uri, reason) from err
                raise
            else:
                won = True
                self._note_own(name)
            # The loser syncs too: the object that it will read must survive a power failure.
            sync_soon(path.parent)
            return won

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        if folder:
            self._path_of(folder)
        self.requests.count_listing()
        count = 0
        with self._translate_errors("list", prefix):
            for listed_objects in self._walk_objects(folder + "/" if folder else "", prefix, start_after):
                for _ in range(count // NAMES_A_REQUEST, (count := count + len(listed_objects)) // NAMES_A_REQUEST):
                    self.requests.count_listing()
                yield from listed_objects

    def delete(self, names: Iterable[str]) -> None:
        for count, name in enumerate(names):
            if count % NAMES_A_REQUEST == 0:
                self.requests.count_delete()
            path = self._path_of(name)
            try:
                with self._translate_errors("delete", name):
                    path.unlink()
            except ObjectNotFoundError:
                continue

    def sweep_temporary(self, *, dry_run: bool = False) -> tuple[ObjectInfo, ...]:
        """Delete files in `.tmp` that killed processes left, and return them. Files of live writers stay."""
        swept = []
        for path in sorted(self._temporary.glob("*")):
            # OSError: the file is gone or in use, or its file system has no locks.
            with suppress(OSError), path.open("rb", buffering=0) as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                swept.append(_info_of_stat(f"{_TEMPORARY}/{path.name}", path.stat()))
                if not dry_run:
                    path.unlink()
        return tuple(swept)

    def _path_of(self, name: str) -> Path:
        if checked_name(name).partition("/")[0] == _TEMPORARY:
            raise BadObjectNameError(name, f"the local store reserves the folder {_TEMPORARY}")
        return self._root / name

    @contextmanager
    def _write_temporary(self, data: bytes | Path, target: Path) -> Iterator[Path]:
        """A file with the bytes of `data`, or of the file `data`. Deleted on exit unless it was renamed.

        On entry the file is synced, the folder `target` exists, and all earlier writes of this thread are durable.
        """
        path: Path | None = None
        try:
            pending = self._prepare_folder(target)
            self._temporary.mkdir(exist_ok=True)
            path, handle = self._new_file(self._temporary)
            with os.fdopen(handle, "wb", buffering=0) as file:
                if isinstance(data, Path):
                    with data.open("rb", buffering=0) as content:
                        shutil.copyfileobj(content, file, _COPIED_BYTES)
                else:
                    _write_all(file, data)
                sync_together(file.fileno(), [folder.parent for folder in pending])
                self._remember_durable(pending)
                yield path  # The open file holds the lock.
        finally:
            if path is not None:
                path.unlink(missing_ok=True)

    def _new_file(self, folder: Path) -> tuple[Path, int]:
        """Create a file for this writer only. `tempfile` would restrict its permissions and ignore the umask."""
        while True:
            path = folder / f"{os.getpid()}-{threading.get_ident()}-{next(_serial)}"
            try:
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:  # left by a killed process with our id, or by another host on a shared disk
                continue
            if lock_new(handle) and os.fstat(handle).st_nlink:
                return path, handle
            os.close(handle)  # A sweep locked or deleted it before we locked it.

    def _prepare_folder(self, folder: Path) -> _Folders:
        """Create `folder` and its missing parents. Returns the folders whose parents the caller must sync."""
        exists = folder.is_dir()
        if exists and (folder in self._durable or not _may_be_unsynced(folder)):
            return []
        pending = self._prepare_folder(folder.parent)
        if not exists:
            folder.mkdir(exist_ok=True)
        return [*pending, folder]

    def _note_own(self, name: str) -> None:
        """Note a name that this process has written, and syncs itself."""
        if len(self._own) >= _MOST_DURABLE:
            self._own.clear()
        self._own.add(name)

    def _note_seen(self, name: str) -> None:
        """Note an object that was read; see syncs.py.

        A directory without temporary files has files of other programs, as a source's folder. They were written
        without an fsync, so one of their folder would prove nothing.
        """
        if name not in self._own and self._has_writers():
            note_seen(self._path_of(name).parent)

    def _has_writers(self) -> bool:
        self._written = self._written or os.path.isdir(self._temporary)  # noqa: PTH112 - `is_dir` costs more
        return self._written

    def _remember_durable(self, folders: _Folders) -> None:
        if len(self._durable) > _MOST_DURABLE:
            self._durable.clear()
        self._durable.update(folders)

    def _walk_objects(
        self, folder: str, prefix: str, start_after: str, inside: frozenset[tuple[int, int]] = frozenset()
    ) -> Iterator[_Objects]:
        """Objects below `folder` ("" or ending in `/`), in name order. Folders sort by their name with a final `/`.

        The objects of a folder between two of its folders come together: a step for each would cost as much as a stat.

        Args:
            inside: device and inode of each folder on the path to this one, once the walk has followed a symbolic link;
                empty before that. Links to one of these folders would never end, so the walk skips them. It also skips
                dangling links.
        """
        try:
            with os.scandir(self._root / folder) as entries:
                names = [(folder + entry.name + ("/" if _is_folder(entry) else ""), entry) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return
        names.sort(key=itemgetter(0))
        files: _Objects = []
        for name, entry in names:
            if name == _TEMPORARY + "/":
                continue
            if name[-1] == "/":
                if files:
                    yield files
                    files = []
                wanted = name.startswith(prefix) or prefix.startswith(name)
                if wanted and (name > start_after or start_after.startswith(name)):
                    around = inside
                    if inside or entry.is_symlink():
                        around = inside or self._ids_above(folder)
                        try:
                            own = _id_of(self._root / name)
                        except FileNotFoundError:  # deleted after the folder was read
                            continue
                        if own in around:
                            continue
                        around |= {own}
                    yield from self._walk_objects(name, prefix, start_after, around)
            elif name.startswith(prefix) and name > start_after:
                try:
                    files.append(_info_of_stat(name, entry.stat()))
                except FileNotFoundError:  # deleted after the folder was read
                    continue
                except OSError as err:
                    if err.errno != errno.ELOOP:  # A link to itself is not an object.
                        raise
        if files:
            yield files

    def _ids_above(self, folder: str) -> frozenset[tuple[int, int]]:
        """Device and inode of a folder and of all its parents."""
        path = self._root / folder
        return frozenset(_id_of(p) for p in (path, *path.parents))

    @contextmanager
    def _translate_errors(self, operation: str, name: str, size: int = 0) -> Iterator[None]:
        """Translate errors of the operating system into the errors of base.py."""
        try:
            yield
        except TussockError:
            raise
        except OSError as err:
            if err.errno in _ABSENT and operation in ("get", "get_ranges", "head", "delete"):
                raise ObjectNotFoundError(self.uri, name) from err
            if err.errno in _FULL:
                raise ObjectStoreFullError(self.uri, f"{operation} {name!r}", size) from err
            reason = os.strerror(err.errno) if err.errno else str(err)
            if operation == "list" and err.filename is not None:  # any folder or file below
                reason = f"{reason}: {os.fspath(err.filename)}"
            if err.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise AccessDeniedError(self.uri, f"{operation} {name!r}", reason) from err
            if err.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
                raise BadObjectNameError(
                    name, "in a local store, this path or a part of it already exists as a folder or an object"
                ) from err
            raise ObjectStoreUnavailableError(self.uri, f"{operation} {name!r}", reason) from err


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError as err:
        if err.errno != errno.ELOOP:
            raise
        return False


def _may_be_unsynced(folder: Path) -> bool:
    """Whether a writer like us could have made an existing folder, and been killed before it synced the parent.

    Not for mount points and the root of the file system. A parent that we may not read cannot be synced.
    """
    return os.access(folder.parent, os.R_OK) and not os.path.ismount(folder)


def _id_of(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino


def _info_of_stat(name: str, stat: os.stat_result) -> ObjectInfo:
    size, modified = stat.st_size, stat.st_mtime_ns
    return ObjectInfo(name, size, f"{size}-{modified}-{stat.st_ctime_ns}", modified // 1_000_000)


def _write_all(file: io.FileIO, data: bytes) -> None:
    """Write all of `data`. A single call may write less, and at most 2 GB."""
    written = 0
    while written < len(data):
        written += file.write(data[written:] if written else data) or 0


def _pread(file: int, length: int, offset: int) -> bytes:
    """Read `length` bytes at `offset`, or fewer at the end of the file. A single call reads at most 2 GB."""
    data = os.pread(file, length, offset)
    if len(data) == length or not data:
        return data
    return data + _pread(file, length - len(data), offset + len(data))


def _start_offset(read: ByteRange, size: int) -> int:
    return read.offset if read.offset >= 0 else max(0, size + read.offset)
