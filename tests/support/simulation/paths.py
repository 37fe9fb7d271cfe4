"""Calls of simulated processes on paths. Those outside of the simulated disks are real, and only read."""

import errno
import os as real_os
import stat as real_stat
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.simulation.descriptors import FileOpen, new_fd, opened_as
from tests.support.simulation.disk import Disk, Inode, fail
from tests.support.simulation.scheduler import World
from tests.support.simulation.system import MOUNTS, call, me, the_machine


def is_simulated(path: Any) -> bool:
    """Whether a path is on a simulated disk."""
    text = real_os.fspath(path) if not isinstance(path, int) else ""
    return isinstance(text, str) and (text == "/" or text.startswith(MOUNTS))


def on_path(real: Callable[..., Any], quiet: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """A call on a path of a simulated disk; other paths are real, and only read."""

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(world: World, path: Any, *args: Any, **named: Any) -> Any:
            if not is_simulated(path):
                if real is real_os.open:  # a real descriptor would look like one of the process
                    raise fail(errno.ENOENT, str(path))
                return real(path, *args, **named)
            text = real_os.path.normpath(real_os.fspath(path))
            disk, place = the_machine().disk_of(me(world), text)
            return function(world, disk, place, *args, **named)

        run.__name__ = function.__name__
        return call(real, quiet=quiet)(run)

    return make


@on_path(real_os.open)
def open_file(world: World, disk: Disk, path: str, flags: int, mode: int = 0o777, **_: Any) -> int:
    if flags & real_os.O_CREAT:
        the_machine().write_faults("create", path)
        node = disk.create(path, bool(flags & real_os.O_EXCL))
        world.trace(f"create {path}")
    else:
        node = disk.find(path)
    if flags & real_os.O_DIRECTORY and not node.is_folder:
        raise fail(errno.ENOTDIR, path)
    if node.is_folder and flags & (real_os.O_WRONLY | real_os.O_RDWR):
        raise fail(errno.EISDIR, path)
    if flags & real_os.O_TRUNC and node.data:
        node.data, node.touched = bytearray(), True
    return new_fd(world, FileOpen(world, disk, node, path, flags))


def _stat_of(node: Inode) -> real_os.stat_result:
    kind = real_stat.S_IFDIR | 0o755 if node.is_folder else real_stat.S_IFREG | 0o644
    whole = node.mtime_ns // 1_000_000_000
    fields = (kind, node.number, 77, node.links, real_os.geteuid(), 1000, len(node.data), whole, whole, whole)
    times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), node.mtime_ns / 1e9)
    exact = dict.fromkeys(("st_atime_ns", "st_mtime_ns", "st_ctime_ns"), node.mtime_ns)
    return real_os.stat_result(fields, {**times, **exact})


@on_path(real_os.stat, quiet=True)
def stat(world: World, disk: Disk, path: str, **_: Any) -> real_os.stat_result:
    return _stat_of(disk.find(path))


@call(real_os.fstat, quiet=True)
def fstat(world: World, fd: int) -> real_os.stat_result:
    opened = opened_as(world, fd)
    return _stat_of(opened.node if isinstance(opened, FileOpen) else Inode(False, 0, 0))


@on_path(real_os.mkdir)
def mkdir(world: World, disk: Disk, path: str, mode: int = 0o777, **_: Any) -> None:
    the_machine().write_faults("mkdir", path)
    disk.mkdir(path)
    world.trace(f"mkdir {path}")


@on_path(real_os.rmdir)
def rmdir(world: World, disk: Disk, path: str, **_: Any) -> None:
    disk.rmdir(path)
    world.trace(f"rmdir {path}")


@on_path(real_os.unlink)
def unlink(world: World, disk: Disk, path: str, **_: Any) -> None:
    the_machine().write_faults("unlink", path)
    disk.unlink(path)
    world.trace(f"unlink {path}")


@on_path(real_os.rename)
def rename(world: World, disk: Disk, path: str, target: Any, **_: Any) -> None:
    the_machine().write_faults("rename", path)
    disk.rename(path, real_os.fspath(target))
    world.trace(f"rename {path} {real_os.fspath(target)}")


@on_path(real_os.link)
def link(world: World, disk: Disk, path: str, target: Any, **_: Any) -> None:
    the_machine().write_faults("link", real_os.fspath(target))
    disk.link(path, real_os.fspath(target))
    world.trace(f"link {path} {real_os.fspath(target)}")


@on_path(real_os.access, quiet=True)
def access(world: World, disk: Disk, path: str, mode: int, **_: Any) -> bool:
    try:
        disk.find(path)
    except OSError:
        return False
    return True


@on_path(real_os.utime, quiet=True)
def utime(world: World, disk: Disk, path: str, times: Any = None, **_: Any) -> None:
    disk.find(path).mtime_ns = disk.clock_ns()


@on_path(real_os.chmod, quiet=True)
def chmod(world: World, disk: Disk, path: str, mode: int, **_: Any) -> None:
    disk.find(path)


@on_path(real_os.listdir)
def listdir(world: World, disk: Disk, path: str = ".") -> list[str]:
    node = disk.find(path)
    if not node.is_folder:
        raise fail(errno.ENOTDIR, path)
    names = sorted(node.entries)
    world.random.shuffle(names)
    return names


class Entry:
    """An entry of a folder, as `os.scandir` gives it."""

    def __init__(self, folder: str, name: str, node: Inode) -> None:
        self.name, self.path, self._node = name, f"{folder}/{name}", node

    def __fspath__(self) -> str:
        return self.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._node.is_folder

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return not self._node.is_folder

    def is_symlink(self) -> bool:
        return False

    def inode(self) -> int:
        return self._node.number

    def stat(self, *, follow_symlinks: bool = True) -> real_os.stat_result:
        return stat(self.path)


class Scan:
    """What `os.scandir` returns."""

    def __init__(self, entries: list[Entry]) -> None:
        self._all, self._entries = entries, iter(entries)

    def __iter__(self) -> Iterator[Entry]:
        self._entries = iter(self._all)  # from the start: a forked child gets the same object again
        return self._entries

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> "Scan":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End."""


@on_path(real_os.scandir)
def scandir(world: World, disk: Disk, path: str = ".") -> Scan:
    node = disk.find(path)
    if not node.is_folder:
        raise fail(errno.ENOTDIR, path)
    entries = [Entry(path, name, child) for name, child in sorted(node.entries.items())]
    world.random.shuffle(entries)
    return Scan(entries)


def replace(path: Any, target: Any, **_: Any) -> None:
    """As os.replace."""
    rename(path, target)


def lstat(path: Any, **_: Any) -> real_os.stat_result:
    """As os.lstat; the disks have no symbolic links."""
    return stat(path) if is_simulated(path) else real_os.lstat(path)
