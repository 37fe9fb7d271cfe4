"""The simulated operating system: calls of simulated processes on descriptors, paths, clocks, signals and processes.

The simulated modules (modules.py) consist of these calls. Outside of a simulated thread each of them is the real
function, so modules can be imported. All calls that a process made while it `records` can be given again to a child: so
`os.fork` returns twice, in a second run of the same program.
"""

import errno
import fcntl as real_fcntl
import functools
import os as real_os
import random
import signal as real_signal
import socket as real_socket
import stat as real_stat
import time as real_time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tests.support.simulation.disk import Disk, Inode, fail
from tests.support.simulation.network import Listener, Network, OpenFile, PipeEnd, Stream, pipe_pair, stream_pair
from tests.support.simulation.scheduler import Killed, Process, World, the_world

MOUNTS = ("/store", "/tmp", "/proc", "/sys")  # paths on simulated disks
KERNEL_FILES = {
    "/proc/meminfo": b"MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\n",
    "/proc/sys/kernel/random/boot_id": b"5eed5eed-0000-4000-8000-000000000000\n",
}


class Machine:
    """The disks and the network of a world's hosts."""

    def __init__(self, world: World) -> None:
        self.world, self.network = world, Network(world)
        self.store = self.new_disk()
        self.local: dict[str, Disk] = {}
        self.fork_delay_s = 0.001
        self.start_delay_s: Callable[[], float] = lambda: 0.5
        self.write_faults: Callable[[str, str], None] = lambda call, path: None
        self.programs: dict[str, Callable[[], object]] = {}

    def new_disk(self) -> Disk:
        """An empty disk."""
        return Disk(lambda: int(self.world.now * 1e9) + 1)

    def disk_of(self, process: Process, path: str) -> tuple[Disk, str]:
        """The disk of an absolute path."""
        if path in ("/", "/store") or path.startswith("/store/"):
            return self.store, path
        disk = self.local.get(process.host)
        if disk is None:
            disk = self.local[process.host] = self.new_disk()
            disk.mkdir("/tmp")
            for name in ("/proc", "/proc/sys", "/proc/sys/kernel", "/proc/sys/kernel/random", "/sys"):
                disk.mkdir(name)
            for name, data in KERNEL_FILES.items():
                disk.create(name, True).data = bytearray(data)
            disk.sync_all()
        return disk, path


AT_FORK: list[tuple[Any, Any, Any]] = []  # what modules registered: before, after in the parent, after in the child

_machine: Machine | None = None
only_inside = False  # whether all modules are imported, so that the engine runs in simulated threads only


def set_machine(machine: Machine | None) -> None:
    """Choose the machine of the simulated modules."""
    global _machine
    _machine = machine


def the_machine() -> Machine:
    """The machine of this world."""
    assert _machine is not None
    return _machine


def me(world: World) -> Process:
    """The process that calls."""
    assert world.current is not None
    return world.current.process


def call(real: Callable[..., Any] | None = None, *, quiet: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Make a call to the system of a function whose first argument is the world.

    Args:
        real: what runs outside of a simulated thread.
        quiet: whether another thread never runs before it.
    """

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__.strip("_")

        @functools.wraps(function)
        def run(*args: Any, **named: Any) -> Any:
            world = the_world()
            if world is None:
                if real is None:
                    raise NotImplementedError(f"{name} outside of a simulation")
                if only_inside and not quiet:  # the end of an object of a world that is over
                    raise Killed
                return real(*args, **named)
            process = me(world)
            if process.replay:
                kind, value = process.replay.popleft()
                assert kind.lstrip("!") == name, f"the replay of {process} calls {name}, not {kind}"
                if kind.startswith("!"):
                    raise value
                if name == "fork" and value == 0:
                    for before, _, in_child in AT_FORK:
                        for hook in (before, in_child):
                            if hook is not None:
                                hook()
                return value
            if not process.alive:
                raise Killed
            if not quiet:
                world.pause()
            if not process.records:
                return function(world, *args, **named)
            try:
                value = function(world, *args, **named)
            except Exception as err:
                process.log.append(("!" + name, err))
                raise
            process.log.append((name, value))
            return value

        return run

    return make


# --- descriptors ------------------------------------------------------------------------------------------------------


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


def _receive(world: World, stream: Stream, most: int, timeout: float | None, block: bool) -> bytes:
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


def _transmit(
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
        return _receive(world, opened, length, None, not opened.nonblocking)
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
        sent = _transmit(world, opened, bytes(data), None, not opened.nonblocking)
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


# --- paths ------------------------------------------------------------------------------------------------------------


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


# --- processes and clocks ---------------------------------------------------------------------------------------------


@call(real_os.getpid, quiet=True)
def getpid(world: World) -> int:
    return me(world).pid


@call(real_os.getppid, quiet=True)
def getppid(world: World) -> int:
    parent = me(world).parent
    return parent.pid if parent is not None and parent.alive else 1


@call(real_os.fork)
def fork(world: World) -> int:
    parent = me(world)
    assert parent.records, f"{parent} forks, but its calls were not recorded"
    assert len(parent.threads) == 1, f"{parent} forks with threads"
    name = f"{parent.name}.{len(parent.children)}"
    child = world.new_process(name, parent.host, parent.program, parent)
    child.argv, child.first_argv = list(parent.first_argv), parent.first_argv
    child.environ, child.first_environ = dict(parent.first_environ), dict(parent.first_environ)
    for fd, opened in parent.fds.items():
        child.fds[fd] = opened
        opened.holders += 1
    child.replay.extend([*parent.log, ("fork", 0)])
    return child.pid


@call(real_os._exit)
def exit_now(world: World, status: int) -> None:
    world.end_process(me(world), status)
    raise Killed


@call(real_os.waitpid)
def waitpid(world: World, pid: int, options: int) -> tuple[int, int]:
    process = me(world)

    def ended() -> tuple[int, int] | None:
        children = [c for c in process.children if not c.reaped and pid in (-1, c.pid)]
        if not children:
            raise ChildProcessError(errno.ECHILD, "No child processes")
        for child in children:
            if not child.alive:
                child.reaped = True
                return child.pid, (-child.status if child.status < 0 else child.status << 8)
        return (0, 0) if options & real_os.WNOHANG else None

    found = world.wait_for(ended, (process.changed,), None, f"waitpid {pid}")
    assert found is not None
    return found


def child_status(world: World, pid: int, timeout: float | None) -> int | None:
    """Wait for the end of a child, as subprocess does. None after the time."""
    process = me(world)
    child = next(c for c in process.children if c.pid == pid)

    def ended() -> tuple[int] | None:
        return (child.status,) if not child.alive else None

    found = world.wait_for(ended, (process.changed,), timeout, f"wait for {child}")
    if found is None:
        return None
    child.reaped = True
    return found[0]


@call(real_os.kill)
def kill(world: World, pid: int, number: int) -> None:
    target = world.processes.get(pid)
    if target is None or (target.reaped and not target.alive):
        raise ProcessLookupError(errno.ESRCH, "No such process")
    if not target.alive or not number:
        return
    world.trace(f"kill {target} {number}")
    if number == real_signal.SIGSTOP:
        world.stop(target)
    elif number == real_signal.SIGCONT:
        world.go_on(target)
    elif number in (real_signal.SIGKILL, real_signal.SIGTERM, real_signal.SIGINT):
        world.end_process(target, -int(number))
        if target is me(world):
            raise Killed


@call(real_os.urandom, quiet=True)
def urandom(world: World, length: int) -> bytes:
    return world.random.randbytes(length)


@call(real_time.time, quiet=True)
def wall_time(world: World) -> float:
    world.now += 1e-7
    return world.wall(me(world).host)


@call(real_time.monotonic, quiet=True)
def monotonic(world: World) -> float:
    if not me(world).alive:
        raise Killed
    world.now += 1e-6
    return 1000.0 + world.now


@call(real_time.sleep)
def sleep(world: World, seconds: float) -> None:
    world.sleep(seconds)


@call(real_socket.gethostname, quiet=True)
def gethostname(world: World) -> str:
    return me(world).host


# --- poll -------------------------------------------------------------------------------------------------------------

POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL, POLLPRI = 1, 4, 8, 16, 32, 2


@call()
def poll_once(world: World, wanted: dict[int, int], timeout_ms: float | None) -> list[tuple[int, int]]:
    """Wait until a descriptor is ready."""

    def ready() -> list[tuple[int, int]] | None:
        found = []
        fds = me(world).fds
        for fd, mask in wanted.items():
            opened = fds.get(fd)
            if opened is None:
                found.append((fd, POLLNVAL))
                continue
            events = 0
            if mask & POLLIN and opened.is_readable():
                events |= POLLIN
            if mask & POLLOUT and opened.is_writable():
                events |= POLLOUT
            if events:
                found.append((fd, events))
        return found or None

    fds = me(world).fds
    signals = tuple(fds[fd].changed for fd in wanted if fd in fds)
    timeout = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
    return world.wait_for(ready, signals, timeout, f"poll {list(wanted)}") or []


class Poll:
    """As select.poll."""

    def __init__(self) -> None:
        self._wanted: dict[int, int] = {}

    @staticmethod
    def _number(fd: Any) -> int:
        return fd if isinstance(fd, int) else int(fd.fileno())

    def register(self, fd: Any, mask: int = POLLIN | POLLOUT | POLLPRI) -> None:
        """Watch a descriptor."""
        self._wanted[self._number(fd)] = mask

    def modify(self, fd: Any, mask: int) -> None:
        """Watch for other events."""
        self._wanted[self._number(fd)] = mask

    def unregister(self, fd: Any) -> None:
        """Watch no longer. Raises KeyError."""
        del self._wanted[self._number(fd)]

    def poll(self, timeout_ms: float | None = None) -> list[tuple[int, int]]:
        """Wait for events."""
        return [] if the_world() is None else poll_once(dict(self._wanted), timeout_ms)


def select(
    readers: Iterable[Any], writers: Iterable[Any], others: Iterable[Any], timeout: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """As select.select."""
    readers, writers = list(readers), list(writers)
    wanted: dict[int, int] = {}
    for one in readers:
        wanted[Poll._number(one)] = POLLIN
    for one in writers:
        wanted[Poll._number(one)] = wanted.get(Poll._number(one), 0) | POLLOUT
    found = dict(poll_once(wanted, None if timeout is None else timeout * 1000))
    return (
        [one for one in readers if found.get(Poll._number(one), 0) & POLLIN],
        [one for one in writers if found.get(Poll._number(one), 0) & POLLOUT],
        [],
    )


# --- sockets, by descriptor -------------------------------------------------------------------------------------------


@call()
def new_pair(world: World) -> tuple[int, int]:
    """Two connected Unix sockets."""
    one, other = stream_pair(world, "unix", the_machine().network.local_bytes)
    return new_fd(world, one), new_fd(world, other)


@call()
def listen_on(world: World, host: str, port: int, backlog: int) -> tuple[int, tuple[str, int]]:
    """A listening socket and its address."""
    own = me(world).host
    listener = the_machine().network.listen(own, port, backlog)
    return new_fd(world, listener), (host or "0.0.0.0", listener.address[1])


@call()
def connect_to(world: World, host: str, port: int, timeout: float | None) -> int:
    """A connected TCP socket. Raises TimeoutError, ConnectionRefusedError."""
    network, own = the_machine().network, me(world).host
    target = own if host in ("127.0.0.1", "localhost", "::1") else host
    world.sleep(network.delay() + 1e-5)
    stream = network.connect(own, target, port)
    if stream is None:
        world.wait_for(lambda: None, (), 130.0 if timeout is None else timeout, f"connect {host}:{port}")
        raise TimeoutError("timed out")
    world.sleep(network.delay() + 1e-5)
    return new_fd(world, stream)


@call()
def accept_on(world: World, fd: int, timeout: float | None) -> tuple[int, tuple[str, int]]:
    """The next connection. Raises TimeoutError, BlockingIOError; OSError if the socket was shut down."""
    listener: Listener = opened_as(world, fd, Listener)

    def ready() -> Stream | None:
        if listener.waiting:
            return listener.waiting.popleft()
        if listener.is_shut:
            raise fail(errno.EINVAL)
        return None

    found = (
        ready() if timeout == 0 else world.wait_for(ready, (listener.changed,), timeout, f"accept {listener.address}")
    )
    if found is None:
        raise fail(errno.EAGAIN) if timeout == 0 else TimeoutError("timed out")
    return new_fd(world, found), (found.other_host, found.peer.address[1] if found.peer else 0)


@call()
def receive(world: World, fd: int, most: int, timeout: float | None, block: bool) -> bytes:
    """Bytes of a socket."""
    stream: Stream = opened_as(world, fd, Stream)
    data = _receive(world, stream, most, timeout, block)
    world.trace(f"recv {fd} {stream.label} {len(data)}")
    return data


@call()
def transmit(world: World, fd: int, data: bytes, timeout: float | None, block: bool) -> int:
    """Send bytes over a socket."""
    stream: Stream = opened_as(world, fd, Stream)
    sent = _transmit(world, stream, data, timeout, block)
    world.trace(f"send {fd} {stream.label} {sent} of {len(data)}")
    return sent


@call()
def transmit_rights(world: World, fd: int, data: bytes, fds: Sequence[int], timeout: float | None, block: bool) -> int:
    """Send bytes with descriptors."""
    stream: Stream = opened_as(world, fd, Stream)
    files = [opened_as(world, one) for one in fds]
    for one in files:
        one.holders += 1
    try:
        return _transmit(world, stream, data, timeout, block, files)
    except BaseException:
        for one in files:
            one.holders -= 1
        raise


@call()
def receive_rights(world: World, fd: int, most: int, timeout: float | None) -> tuple[bytes, list[int]]:
    """Bytes, and descriptors that came with them."""
    stream: Stream = opened_as(world, fd, Stream)
    data = _receive(world, stream, min(most, 1), timeout, True)
    found = []
    for one in stream.take_rights():
        found.append(new_fd(world, one))
        one.holders -= 1
    return data, found


@call()
def shut_down(world: World, fd: int, how: int) -> None:
    """As socket.shutdown."""
    opened = opened_as(world, fd)
    if isinstance(opened, Listener):
        opened.is_shut = True
        opened.network.listeners.pop(opened.address, None)
        world.notify(opened.changed)
    elif isinstance(opened, Stream):
        if how in (real_socket.SHUT_WR, real_socket.SHUT_RDWR):
            opened.finish()
        if how in (real_socket.SHUT_RD, real_socket.SHUT_RDWR) and opened.inward is not None:
            opened.inward.ended = True
            world.notify(opened.changed)


def is_stream(fd: int) -> bool:
    """Whether a descriptor of this process is a connected socket."""
    world = the_world()
    return (
        world is not None and isinstance(me(world).fds.get(fd), Stream) and not isinstance(me(world).fds[fd], PipeEnd)
    )


def chance() -> random.Random:
    """The world's random numbers."""
    world = the_world()
    assert world is not None
    return world.random
