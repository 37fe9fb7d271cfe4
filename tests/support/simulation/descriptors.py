"""Calls of simulated processes on descriptors: files, pipes, the null device."""

import errno
import fcntl as real_fcntl
import os as real_os
from collections.abc import Sequence
from typing import Any

from tests.support.simulation.disk import Disk, Inode, fail
from tests.support.simulation.network import OpenFile, Stream, pipe_pair
from tests.support.simulation.scheduler import Process, World
from tests.support.simulation.system import call, me, the_machine


class FileOpen(OpenFile):
    """An open file or folder."""

    def __init__(self, world: World, disk: Disk, node: Inode, path: str, flags: int) -> None:
        super().__init__(world)
        self.disk, self.node, self.path, self.flags, self.position = disk, node, path, flags, 0

    def shut(self) -> None:
        if self.node.lock is self:
            self.node.lock = None


class Nowhere(OpenFile):
    """The null device, and the standard streams."""


def new_fd(world: World, opened: OpenFile, process: Process | None = None) -> int:
    """The lowest free descriptor."""
    process = process or me(world)
    fd = 3
    while fd in process.fds:
        fd += 1
    process.fds[fd] = opened
    opened.holders += 1
    return fd


def opened_as(world: World, fd: Any, kind: type[Any] = OpenFile) -> Any:
    """The object behind a descriptor. Raises OSError (EBADF)."""
    number = fd if isinstance(fd, int) else fd.fileno()
    found = me(world).fds.get(number)
    if found is None:
        raise fail(errno.EBADF)
    if not isinstance(found, kind):
        raise fail(errno.ENOTSOCK if kind is Stream else errno.EINVAL)
    return found


@call(real_os.close)
def close(world: World, fd: int) -> None:
    process = me(world)
    opened = process.fds.pop(fd, None)
    if opened is None:
        raise fail(errno.EBADF)
    opened.drop(process)


@call(real_os.dup)
def dup(world: World, fd: int) -> int:
    return new_fd(world, opened_as(world, fd))


@call(real_os.pipe)
def pipe(world: World) -> tuple[int, int]:
    reader, writer = pipe_pair(world)
    return new_fd(world, reader), new_fd(world, writer)


def receive_bytes(world: World, stream: Stream, most: int, timeout: float | None, block: bool) -> bytes:
    """Wait for bytes. Raises BlockingIOError, TimeoutError, OSError."""
    if stream.inward is None:
        raise fail(errno.EBADF)
    data = stream.take(most)
    if data is None:
        if not block:
            raise fail(errno.EAGAIN)
        data = world.wait_for(lambda: stream.take(most), (stream.changed,), timeout, f"recv {stream.label}")
        if data is None:
            raise TimeoutError("timed out")
    return data


def transmit_bytes(
    world: World, stream: Stream, data: bytes, timeout: float | None, block: bool, rights: list[OpenFile] | None = None
) -> int:
    """Wait until some bytes are taken. Raises BlockingIOError, TimeoutError, OSError."""
    if stream.outward is None:
        raise fail(errno.EBADF)
    if not data:
        return 0
    sent = stream.give(data, rights)
    if sent is None:
        if not block:
            raise fail(errno.EAGAIN)
        sent = world.wait_for(lambda: stream.give(data, rights), (stream.changed,), timeout, f"send {stream.label}")
        if sent is None:
            raise TimeoutError("timed out")
    return sent


@call(real_os.read)
def read(world: World, fd: int, length: int) -> bytes:
    opened = opened_as(world, fd)
    if isinstance(opened, Stream):
        return receive_bytes(world, opened, length, None, not opened.nonblocking)
    if isinstance(opened, FileOpen):
        if opened.node.is_folder:
            raise fail(errno.EISDIR)
        data = bytes(opened.node.data[opened.position : opened.position + length])
        opened.position += len(data)
        return data
    return b""


@call(real_os.write)
def write(world: World, fd: int, data: Any) -> int:
    if fd in (1, 2):
        return len(data)
    opened = opened_as(world, fd)
    if isinstance(opened, Stream):
        sent = transmit_bytes(world, opened, bytes(data), None, not opened.nonblocking)
        world.trace(f"send {fd} {opened.label} {sent} of {len(data)}")
        return sent
    if isinstance(opened, FileOpen):
        the_machine().write_faults("write", opened.path)
        part = bytes(data)
        if len(part) > 1 and world.random.random() < 0.05:  # a call may write less
            part = part[: 1 + int(world.random.random() * (len(part) - 1))]
        if opened.flags & real_os.O_APPEND:
            opened.position = len(opened.node.data)
        opened.position += opened.disk.write(opened.node, opened.position, part)
        world.trace(f"write {opened.path} {len(part)}")
        return len(part)
    return len(data)


@call(real_os.pread, quiet=True)
def pread(world: World, fd: int, length: int, offset: int) -> bytes:
    return bytes(opened_as(world, fd, FileOpen).node.data[offset : offset + length])


@call(real_os.preadv, quiet=True)
def preadv(world: World, fd: int, buffers: Sequence[Any], offset: int) -> int:
    node, count = opened_as(world, fd, FileOpen).node, 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        part = bytes(node.data[offset + count : offset + count + len(view)])
        view[: len(part)] = part
        count += len(part)
    return count


@call(real_os.lseek, quiet=True)
def lseek(world: World, fd: int, position: int, how: int) -> int:
    opened = opened_as(world, fd, FileOpen)
    opened.position = position + (0, opened.position, len(opened.node.data))[how]
    return int(opened.position)


@call(real_os.ftruncate)
def ftruncate(world: World, fd: int, length: int) -> None:
    node = opened_as(world, fd, FileOpen).node
    del node.data[length:]
    node.data += bytes(length - len(node.data))
    node.touched = True


@call(real_os.fsync)
def fsync(world: World, fd: Any) -> None:
    opened = opened_as(world, fd, FileOpen)
    the_machine().write_faults("fsync", opened.path)
    world.sleep(0.0005 + 0.004 * world.random.random())
    opened.node.sync()
    world.trace(f"fsync {opened.path}")


@call(real_os.posix_fadvise, quiet=True)
def posix_fadvise(world: World, fd: int, offset: int, length: int, advice: int) -> None:
    return None


@call(real_os.isatty, quiet=True)
def isatty(world: World, fd: int) -> bool:
    return False


@call(real_os.set_inheritable, quiet=True)
def set_inheritable(world: World, fd: int, inheritable: bool) -> None:
    return None


@call(real_os.set_blocking, quiet=True)
def set_blocking(world: World, fd: int, blocking: bool) -> None:
    opened_as(world, fd).nonblocking = not blocking


@call(real_fcntl.flock)
def flock(world: World, fd: Any, operation: int) -> None:
    opened = opened_as(world, fd, FileOpen)
    node = opened.node
    if operation & real_fcntl.LOCK_UN:
        node.lock = None if node.lock is opened else node.lock
    elif node.lock in (None, opened):
        node.lock = opened
    elif operation & real_fcntl.LOCK_NB:
        raise fail(errno.EWOULDBLOCK)
    else:
        raise NotImplementedError("a lock of a file that waits")
