"""Disks with a page cache: after a power failure, unsynced changes may be lost, torn or out of order.

A file's bytes are durable after an fsync of the file, an entry of a folder after an fsync of the folder. Both are kept
beside the current state. `lose_power` decides for each change without an fsync whether the disk has it: a name by name,
a file by a prefix, with zeros or with nothing. POSIX permits all of it; most file systems lose less.
"""

import errno
import itertools
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

_inodes = itertools.count(1)


class Inode:
    """A file or a folder."""

    __slots__ = (
        "data",
        "durable_data",
        "durable_entries",
        "entries",
        "is_folder",
        "links",
        "lock",
        "mtime_ns",
        "number",
        "touched",
    )

    def __init__(self, is_folder: bool, number: int, mtime_ns: int) -> None:
        self.is_folder, self.number, self.mtime_ns = is_folder, number, mtime_ns
        self.data, self.durable_data = bytearray(), b""
        self.entries: dict[str, Inode] = {}
        self.durable_entries: dict[str, Inode] = {}
        self.links = 1
        self.lock: Any = None  # the open file that holds flock
        self.touched = False  # whether bytes changed since the last fsync

    def sync(self) -> None:
        """Make the bytes of a file, or the entries of a folder, durable."""
        if self.is_folder:
            self.durable_entries = dict(self.entries)
        elif self.touched:
            self.durable_data, self.touched = bytes(self.data), False


def fail(code: int, path: str = "") -> OSError:
    """The error of a call to the system."""
    return OSError(code, os.strerror(code), path)


class Disk:
    """A file system."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.clock_ns = clock_ns
        self._numbers = itertools.count(2)
        self.root = Inode(True, 1, 0)
        self.is_full = False
        self.frozen: list[Any] = []

    # --- paths ---

    def find(self, path: str) -> Inode:
        """The inode of a path. Raises FileNotFoundError, NotADirectoryError."""
        node = self.root
        for part in path.split("/"):
            if not part or part == ".":
                continue
            if not node.is_folder:
                raise fail(errno.ENOTDIR, path)
            found = node.entries.get(part)
            if found is None:
                raise fail(errno.ENOENT, path)
            node = found
        return node

    def folder_of(self, path: str) -> tuple[Inode, str]:
        """The folder of a path, and the last part of it."""
        head, _, name = path.rstrip("/").rpartition("/")
        folder = self.find(head)
        if not folder.is_folder:
            raise fail(errno.ENOTDIR, path)
        return folder, name

    # --- changes ---

    def create(self, path: str, exclusive: bool) -> Inode:
        """Find or make a file."""
        folder, name = self.folder_of(path)
        node = folder.entries.get(name)
        if node is not None:
            if exclusive:
                raise fail(errno.EEXIST, path)
            return node
        if self.is_full:
            raise fail(errno.ENOSPC, path)
        node = folder.entries[name] = Inode(False, next(self._numbers), self.clock_ns())
        return node

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        folder, name = self.folder_of(path)
        if name in folder.entries:
            raise fail(errno.EEXIST, path)
        folder.entries[name] = Inode(True, next(self._numbers), self.clock_ns())

    def unlink(self, path: str) -> None:
        """Remove a name of a file."""
        folder, name = self.folder_of(path)
        node = folder.entries.get(name)
        if node is None:
            raise fail(errno.ENOENT, path)
        if node.is_folder:
            raise fail(errno.EISDIR, path)
        del folder.entries[name]
        node.links -= 1

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        folder, name = self.folder_of(path)
        node = self.find(path)
        if not node.is_folder:
            raise fail(errno.ENOTDIR, path)
        if node.entries:
            raise fail(errno.ENOTEMPTY, path)
        del folder.entries[name]

    def link(self, source: str, target: str) -> None:
        """Give a file one more name."""
        node = self.find(source)
        folder, name = self.folder_of(target)
        if name in folder.entries:
            raise fail(errno.EEXIST, target)
        folder.entries[name] = node
        node.links += 1

    def rename(self, source: str, target: str) -> None:
        """Move a name, over another one."""
        folder, name = self.folder_of(source)
        node = folder.entries.get(name)
        if node is None:
            raise fail(errno.ENOENT, source)
        to, last = self.folder_of(target)
        if (old := to.entries.get(last)) is not None and old is not node:
            if old.is_folder:
                raise fail(errno.EISDIR, target)
            old.links -= 1
        del folder.entries[name]
        to.entries[last] = node

    def write(self, node: Inode, offset: int, data: bytes) -> int:
        """Write at an offset."""
        if self.is_full and offset + len(data) > len(node.data):
            raise fail(errno.ENOSPC)
        if offset > len(node.data):
            node.data += bytes(offset - len(node.data))
        node.data[offset : offset + len(data)] = data
        node.mtime_ns, node.touched = self.clock_ns(), True
        return len(data)

    # --- whole disks ---

    def files(self, node: Inode | None = None, at: str = "") -> Iterator[tuple[str, Inode]]:
        """All files with their paths."""
        for name, child in sorted((node or self.root).entries.items()):
            path = f"{at}/{name}"
            if child.is_folder:
                yield from self.files(child, path)
            else:
                yield path, child

    def image(self) -> list[tuple[str, bytes | None]]:
        """All folders (None) and files, parents first."""
        found: list[tuple[str, bytes | None]] = []

        def walk(node: Inode, at: str) -> None:
            for name, child in sorted(node.entries.items()):
                found.append((f"{at}/{name}", None if child.is_folder else bytes(child.data)))
                if child.is_folder:
                    walk(child, f"{at}/{name}")

        walk(self.root, "")
        return found

    def load(self, image: list[tuple[str, bytes | None]]) -> None:
        """Fill an empty disk, durably."""
        for path, data in image:
            if data is None:
                self.mkdir(path)
            else:
                node = self.create(path, True)
                node.data, node.durable_data = bytearray(data), data
        self.sync_all()

    def sync_all(self, node: Inode | None = None) -> None:
        """Make everything durable."""
        node = node or self.root
        node.sync()
        for child in node.entries.values():
            self.sync_all(child) if child.is_folder else child.sync()

    def lose_power(self, chance: random.Random) -> list[str]:
        """Keep all synced changes; keep or lose each other one by chance. Returns the names of these."""
        lost: list[str] = []
        seen: set[int] = set()

        def walk(node: Inode, at: str) -> None:
            if node.number in seen:
                return
            seen.add(node.number)
            if not node.is_folder:
                node.lock = None
                if node.touched:
                    lost.append(f"bytes of {at}")
                    node.data = bytearray(_torn(node.durable_data, bytes(node.data), chance))
                    node.durable_data, node.touched = bytes(node.data), False
                return
            kept: dict[str, Inode] = {}
            for name in sorted(node.entries.keys() | node.durable_entries.keys()):
                now, then = node.entries.get(name), node.durable_entries.get(name)
                if now is not then:
                    found = now if chance.random() < 0.5 else then
                    lost.append(f"{'kept' if found is now else 'lost'} {at}/{name}")
                else:
                    found = now
                if found is not None:
                    kept[name] = found
            node.entries, node.durable_entries = kept, dict(kept)
            for name, child in sorted(kept.items()):
                walk(child, f"{at}/{name}")

        walk(self.root, "")
        return lost


def _torn(durable: bytes, now: bytes, chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.3:
        return durable
    if kind < 0.5:
        return now
    cut = int(chance.random() * (len(now) + 1))
    return now[:cut] if kind < 0.8 else now[:cut] + bytes(len(now) - cut)
