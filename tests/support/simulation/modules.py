"""The simulated modules, and how the engine gets them.

`install()` replaces Python's import for the engine's modules, and for private copies of some modules of the standard
library (threading, concurrent.futures, multiprocessing.connection, pathlib, tempfile …). They get simulated versions
of the modules that reach the outside: os, time, socket, select, _thread, fcntl, subprocess, random numbers. Everything
else, and all other packages, get the real ones. So new code cannot bypass the simulation, and the product has no seam.
"""

import _thread as real_thread
import builtins
import fcntl as real_fcntl
import functools
import importlib.util
import io as real_io
import logging
import os as real_os
import random as real_random
import secrets as real_secrets
import signal as real_signal
import socket as real_socket
import subprocess as real_subprocess
import sys as real_sys
import sysconfig
import time as real_time
import traceback as real_traceback
import uuid as real_uuid
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from types import ModuleType
from typing import Any

from tests.support.simulation import system
from tests.support.simulation.scheduler import Killed, Signal, Thread, the_world

ENGINE = "tussock"
COPY = "simulated"

# --- _thread ----------------------------------------------------------------------------------------------------------

_lock_serials = iter(range(1, 1 << 62))


class Lock:
    """A lock. Its state is memory of a process: each process has its own, although modules share the object."""

    __slots__ = ("__weakref__", "changed", "owners", "serial")

    def __init__(self) -> None:
        self.owners: dict[Any, Thread | None] = {}
        self.changed, self.serial = Signal(), next(_lock_serials)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As threading.Lock.acquire."""
        world = the_world()
        if world is None:
            if None in self.owners and blocking:
                raise RuntimeError("a lock of no simulated process is held")
            taken = None not in self.owners
            self.owners.setdefault(None, None)
            return taken
        thread = world.current
        assert thread is not None
        process = thread.process
        if not process.alive:
            raise Killed
        if process not in self.owners:
            if world.random.random() < 0.02:
                world.pause(True)
            if process not in self.owners:
                self._take(process, thread)
                return True
        if not blocking:
            return False
        found = world.wait_for(
            lambda: self._take(process, thread) if process not in self.owners else None,
            (self.changed,),
            None if timeout is None or timeout < 0 else timeout,
            "lock",
        )
        return found is not None

    def _take(self, process: Any, thread: Thread) -> bool:
        self.owners[process] = thread
        process.owned.add(self)
        return True

    def release(self) -> None:
        """As threading.Lock.release."""
        world = the_world()
        process = None if world is None or world.current is None else world.current.process
        if process is not None and not process.alive:
            raise Killed
        if process not in self.owners:
            raise RuntimeError("release unlocked lock")
        del self.owners[process]
        if world is not None and process is not None:
            process.owned.discard(self)
            world.notify(self.changed)

    def free(self) -> None:
        """Release it for a thread that has ended."""
        world = the_world()
        if world is None or world.current is None:
            return
        process = world.current.process
        if self.owners.pop(process, None) is not None:
            process.owned.discard(self)
            world.notify(self.changed)

    def locked(self) -> bool:
        """As threading.Lock.locked."""
        world = the_world()
        return (None if world is None or world.current is None else world.current.process) in self.owners

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self.free()


class RLock:
    """A lock that its thread may take again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[Any, int] = {}

    def _key(self) -> Any:
        world = the_world()
        return None if world is None else world.current

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As threading.RLock.acquire."""
        key = self._key()
        if self._counts.get(key):
            self._counts[key] += 1
            return True
        if self._lock.acquire(blocking, timeout):
            self._counts[key] = 1
            return True
        return False

    def release(self) -> None:
        """As threading.RLock.release."""
        key = self._key()
        if key is not None and not key.process.alive:  # perhaps killed in a wait, which had released the lock
            raise Killed
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
            self._lock.release()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        return bool(self._counts.get(self._key()))

    def _release_save(self) -> int:
        count = self._counts.pop(self._key())
        self._lock.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        self._lock.acquire()
        self._counts[self._key()] = count

    def _at_fork_reinit(self) -> None:
        self._counts.clear()


class Local:
    """As threading.local, for simulated threads."""

    def __new__(cls, *args: Any, **named: Any) -> "Local":
        self = object.__new__(cls)
        object.__setattr__(self, "_given", (args, named))
        object.__setattr__(self, "_outside", {})
        return self

    def _values(self) -> dict[str, Any]:
        world = the_world()
        thread = None if world is None else world.current
        places = object.__getattribute__(self, "_outside") if thread is None else thread.locals
        values = places.get(self)
        if values is None:
            values = places[self] = {}
            args, named = object.__getattribute__(self, "_given")
            if type(self).__init__ is not object.__init__:
                type(self).__init__(self, *args, **named)
        return values  # type: ignore[no-any-return]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") or name == "_values":
            return object.__getattribute__(self, name)
        values = Local._values(self)
        return values[name] if name in values else object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        Local._values(self)[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del Local._values(self)[name]
        except KeyError:
            raise AttributeError(name) from None


def _start_new_thread(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> int:
    world = the_world()
    assert world is not None, "a thread outside of a simulation"
    assert world.current is not None
    if not world.current.process.alive:
        raise Killed
    assert not world.current.process.records, "a process that may fork starts a thread"
    thread = world.new_thread(world.current.process, lambda: function(*args, **(kwargs or {})))
    world.trace(f"thread {thread.name}")
    return thread.ident


def _get_ident() -> int:
    world = the_world()
    return 1 if world is None else world.current.ident  # type: ignore[union-attr]


def _set_sentinel() -> Lock:
    lock = Lock()
    world = the_world()
    if world is not None and world.current is not None:
        world.current.sentinel = lock
    return lock


# --- files ------------------------------------------------------------------------------------------------------------


class RawFile(real_io.RawIOBase):
    """An unbuffered file on a simulated disk."""

    def __init__(self, fd: int, name: Any, readable: bool, writable: bool, appends: bool = False) -> None:
        self._fd, self.name, self._readable, self._writable = fd, name, readable, writable
        self.mode = "rb+" if readable and writable else "rb" if readable else "wb"

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return self._readable

    def writable(self) -> bool:
        return self._writable

    def seekable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data: bytes = system.read(self._fd, len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        parts = []
        while part := system.read(self._fd, 1 << 30):
            parts.append(part)
        return b"".join(parts)

    def write(self, data: Any) -> int:
        return system.write(self._fd, data)  # type: ignore[no-any-return]

    def seek(self, position: int, how: int = 0) -> int:
        return system.lseek(self._fd, position, how)  # type: ignore[no-any-return]

    def tell(self) -> int:
        return system.lseek(self._fd, 0, 1)  # type: ignore[no-any-return]

    def truncate(self, size: int | None = None) -> int:
        length = self.tell() if size is None else size
        system.ftruncate(self._fd, length)
        return length

    def close(self) -> None:
        if not self.closed:
            super().close()
            world = the_world()
            if world is not None and world.current is not None and world.current.process.alive:
                try:
                    system.close(self._fd)
                except OSError:
                    if not real_sys.is_finalizing():
                        raise

    def __del__(self) -> None:
        with suppress(Killed, OSError):
            self.close()


def _sim_open(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    if the_world() is None or not (isinstance(file, int) or system.is_simulated(file)):
        return open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    plus, writes = "+" in mode, any(kind in mode for kind in "wxa")
    if isinstance(file, int):
        fd = file
    else:
        flags = real_os.O_RDWR if plus else real_os.O_WRONLY if writes else real_os.O_RDONLY
        flags |= real_os.O_CREAT * writes | real_os.O_TRUNC * ("w" in mode)
        flags |= real_os.O_EXCL * ("x" in mode) | real_os.O_APPEND * ("a" in mode)
        fd = opener(file, flags) if opener is not None else system.open_file(file, flags)
    raw = RawFile(fd, file, plus or not writes, plus or writes)
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else 8192
    buffered: Any
    if plus:
        buffered = real_io.BufferedRandom(raw, size)
    elif writes:
        buffered = real_io.BufferedWriter(raw, size)
    else:
        buffered = real_io.BufferedReader(raw, size)
    return buffered if "b" in mode else real_io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline)


# --- sockets ----------------------------------------------------------------------------------------------------------


class Socket:
    """As socket.socket, over a descriptor of a simulated process."""

    def __init__(
        self,
        family: int = real_socket.AF_INET,
        type: int = real_socket.SOCK_STREAM,
        proto: int = 0,
        fileno: int | None = None,
    ) -> None:
        if fileno is None:
            raise NotImplementedError("a socket that is not connected yet")
        self._fd, self.family, self.type, self.proto = fileno, family, type, proto
        self._timeout: float | None = None
        self._times: dict[int, float] = {}
        self._name: tuple[str, int] = ("", 0)
        self._peer: tuple[str, int] = ("", 0)

    def __enter__(self) -> "Socket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            if self._fd >= 0:
                self.close()
        except (Killed, OSError, AssertionError, AttributeError):
            pass

    def fileno(self) -> int:
        return self._fd

    def detach(self) -> int:
        fd, self._fd = self._fd, -1
        return fd

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            system.close(fd)

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def gettimeout(self) -> float | None:
        return self._timeout

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def setsockopt(self, level: int, option: int, value: Any, *_: Any) -> None:
        if level == real_socket.SOL_SOCKET and option in (real_socket.SO_SNDTIMEO, real_socket.SO_RCVTIMEO):
            seconds, micro = system_timeval.unpack(value)
            self._times[option] = seconds + micro / 1e6

    def getsockopt(self, level: int, option: int, *_: Any) -> int:
        return 0

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def getpeername(self) -> tuple[str, int]:
        return self._peer

    def shutdown(self, how: int) -> None:
        system.shut_down(self._fd, how)

    def _limits(self, flags: int, option: int) -> tuple[float | None, bool, bool]:
        """The longest wait, whether to wait at all, and whether its end is a BlockingIOError."""
        if flags & real_socket.MSG_DONTWAIT or self._timeout == 0:
            return None, False, True
        if self._timeout is None and self._times.get(option):
            return self._times[option], True, True
        return self._timeout, True, False

    def _timed(self, work: Callable[[], Any], as_blocking: bool) -> Any:
        try:
            return work()
        except TimeoutError as err:
            if as_blocking:
                raise BlockingIOError(11, "Resource temporarily unavailable") from err
            raise

    def recv(self, size: int, flags: int = 0) -> bytes:
        timeout, block, again = self._limits(flags, real_socket.SO_RCVTIMEO)
        return self._timed(lambda: system.receive(self._fd, size, timeout, block), again)  # type: ignore[no-any-return]

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        view = memoryview(buffer).cast("B")
        data = self.recv(nbytes or len(view), flags)
        view[: len(data)] = data
        return len(data)

    def send(self, data: Any, flags: int = 0) -> int:
        timeout, block, again = self._limits(flags, real_socket.SO_SNDTIMEO)
        part = bytes(data)
        return int(self._timed(lambda: system.transmit(self._fd, part, timeout, block), again))

    def sendall(self, data: Any, flags: int = 0) -> None:
        left = memoryview(bytes(data))
        ends = None if self._timeout is None else system.monotonic() + self._timeout
        while len(left):
            timeout, block, again = self._limits(flags, real_socket.SO_SNDTIMEO)
            if ends is not None and block:
                timeout = max(0.0, ends - system.monotonic())
            part = bytes(left)
            left = left[self._timed(lambda: system.transmit(self._fd, part, timeout, block), again) :]  # noqa: B023

    def sendmsg(self, buffers: Any, ancillary: Any = (), flags: int = 0, address: Any = None) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        timeout, block, again = self._limits(flags, real_socket.SO_SNDTIMEO)
        if ancillary:
            ((level, kind, fds),) = ancillary
            assert (level, kind) == (real_socket.SOL_SOCKET, real_socket.SCM_RIGHTS)
            return self._timed(  # type: ignore[no-any-return]
                lambda: system.transmit_rights(self._fd, data, list(fds), timeout, block), again
            )
        return int(self._timed(lambda: system.transmit(self._fd, data, timeout, block), again))

    def recvmsg(self, size: int, space: int = 0, flags: int = 0) -> tuple[bytes, list[Any], int, Any]:
        timeout, _, again = self._limits(flags, real_socket.SO_RCVTIMEO)
        data, fds = self._timed(lambda: system.receive_rights(self._fd, size, timeout), again)
        packed = b"".join(fd.to_bytes(4, real_sys.byteorder) for fd in fds)
        found = [(real_socket.SOL_SOCKET, real_socket.SCM_RIGHTS, packed)] if fds else []
        return data, found, 0, None

    def accept(self) -> tuple["Socket", tuple[str, int]]:
        fd, address = system.accept_on(self._fd, self._timeout)
        connection = Socket(fileno=fd)
        connection._peer = address
        return connection, address

    def makefile(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("makefile")


class _Timeval:
    @staticmethod
    def unpack(value: Any) -> tuple[int, int]:
        import struct

        return struct.unpack("@ll", value)


system_timeval = _Timeval()


def _socketpair(*_: Any) -> tuple[Socket, Socket]:
    one, other = system.new_pair()
    return Socket(real_socket.AF_UNIX, fileno=one), Socket(real_socket.AF_UNIX, fileno=other)


def _create_server(address: tuple[str, int], *, family: int = 2, backlog: int | None = None, **_: Any) -> Socket:
    fd, name = system.listen_on(address[0], address[1], backlog or 128)
    found = Socket(family, fileno=fd)
    found._name = name
    return found


def _create_connection(address: tuple[str, int], timeout: Any = None, *_: Any, **__: Any) -> Socket:
    limit = timeout if isinstance(timeout, (int, float)) else None
    found = Socket(fileno=system.connect_to(address[0], address[1], limit))
    found._timeout, found._peer = limit, address
    return found


# --- other modules ----------------------------------------------------------------------------------------------------


class Environ(MutableMapping[str, str]):
    """As os.environ, per process."""

    def _values(self) -> MutableMapping[str, str]:
        world = the_world()
        return real_os.environ if world is None else world.current.process.environ  # type: ignore[union-attr]

    def __getitem__(self, name: str) -> str:
        return self._values()[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._values()[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._values()))

    def __len__(self) -> int:
        return len(self._values())

    def copy(self) -> dict[str, str]:
        """As os.environ.copy."""
        return dict(self._values())


class NotSimulatedError(AttributeError, NotImplementedError):
    """The engine uses a name of a module that the simulation does not have yet."""


class Like(ModuleType):
    """A module with some other names; the rest comes from the real one.

    Args:
        allowed: the names of the real module that change nothing outside; None: all.
    """

    def __init__(self, real: ModuleType, names: dict[str, Any], allowed: Callable[[str], bool] | None = None) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(names)
        self.__dict__["_real"], self.__dict__["_allowed"] = real, allowed

    def __getattr__(self, name: str) -> Any:
        if self._allowed is not None and not self._allowed(name):
            if hasattr(self._real, name):
                raise NotSimulatedError(
                    f"the simulation has no {self.__name__}.{name} (tests/support/simulation/modules.py)"
                )
            raise AttributeError(name)
        value = getattr(self._real, name)
        self.__dict__[name] = value
        return value


class _Sys(Like):
    """As sys, with the arguments and the path of a process."""

    @property
    def argv(self) -> list[str]:
        """The arguments of the program."""
        world = the_world()
        return real_sys.argv if world is None else world.current.process.argv  # type: ignore[union-attr]

    @property
    def path(self) -> list[str]:
        """Where modules are."""
        return real_sys.path if the_world() is None else list(real_sys.path)


class Popen:
    """As subprocess.Popen, for the fork server."""

    def __init__(self, args: list[str], pass_fds: Any = (), env: dict[str, str] | None = None, **options: Any) -> None:
        self.args = args
        self.pid: int = _spawn(list(args), list(pass_fds), env)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or None."""
        return self._look(0.0)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            world = the_world()
            if world is None:
                return None
            self.returncode = _child_status(self.pid, timeout)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises TimeoutExpired."""
        if (status := self._look(timeout)) is None:
            raise real_subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        if self.poll() is None:
            system.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(real_signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(real_signal.SIGTERM)

    def __enter__(self) -> "Popen":
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


@system.call()
def _spawn(world: Any, args: list[str], fds: list[int], env: dict[str, str] | None) -> int:
    machine, parent = system.the_machine(), system.me(world)
    program = machine.programs["fork server"]
    child = world.new_process("server", parent.host, program, parent, records=True)
    assert args[1] == "-c", args
    child.argv, child.memory["code"] = ["-c", *args[3:]], args[2]
    child.first_argv = tuple(child.argv)
    if env is not None:
        child.environ = dict(env)
        child.first_environ = dict(env)
    for fd in fds:
        opened = parent.fds[fd]
        child.fds[fd] = opened
        opened.holders += 1
    return int(child.pid)


@system.call()
def _child_status(world: Any, pid: int, timeout: float | None) -> int | None:
    return system.child_status(world, pid, timeout)


class SeededRandom(real_random.Random):
    """As random.Random; without a seed it gets the world's."""

    def __init__(self, seed: Any = None) -> None:
        super().__init__(seed if seed is not None or the_world() is None else int.from_bytes(system.urandom(8), "big"))


def _token_bytes(nbytes: int | None = None) -> bytes:
    return system.urandom(32 if nbytes is None else nbytes)  # type: ignore[no-any-return]


def _uuid4() -> real_uuid.UUID:
    return real_uuid.UUID(bytes=system.urandom(16), version=4)


_HARMLESS_OS = {
    "path", "fspath", "fsencode", "fsdecode", "strerror", "sep", "altsep", "curdir", "pardir", "extsep", "linesep",
    "pathsep", "name", "devnull", "PathLike", "stat_result", "error", "waitstatus_to_exitcode", "get_terminal_size",
    "supports_follow_symlinks", "supports_dir_fd", "supports_fd", "supports_effective_ids", "DirEntry", "cpu_count",
    "sched_getaffinity", "WNOHANG", "WIFEXITED", "WEXITSTATUS", "terminal_size", "get_exec_path", "umask", "getcwd",
    "getlogin", "getuid", "geteuid", "walk", "fwalk", "uname", "sysconf", "sysconf_names",
}  # fmt: skip


def _os_module() -> ModuleType:
    names: dict[str, Any] = {
        "open": system.open_file,
        "_exit": system.exit_now,
        "remove": system.unlink,
        "replace": system.replace,
        "lstat": system.lstat,
        "fdatasync": system.fsync,
        "environ": Environ(),
        "register_at_fork": _register_at_fork,
        "fdopen": _fdopen,
        "makedirs": _makedirs,
    }
    for name in [
        "close",
        "dup",
        "pipe",
        "read",
        "write",
        "pread",
        "preadv",
        "lseek",
        "ftruncate",
        "fsync",
        "posix_fadvise",
        "isatty",
        "set_inheritable",
        "set_blocking",
        "stat",
        "fstat",
        "mkdir",
        "rmdir",
        "unlink",
        "rename",
        "link",
        "access",
        "utime",
        "chmod",
        "listdir",
        "scandir",
        "getpid",
        "getppid",
        "fork",
        "waitpid",
        "kill",
        "urandom",
    ]:
        names[name] = getattr(system, name)
    names["getenv"] = lambda key, default=None: names["environ"].get(key, default)
    return Like(real_os, names, lambda name: name in _HARMLESS_OS or name.isupper() or name.startswith("_"))


def _register_at_fork(*, before: Any = None, after_in_parent: Any = None, after_in_child: Any = None) -> None:
    if getattr(after_in_child, "__module__", "") == f"{COPY}.threading":
        return  # it would forget the threads of all processes, which share its tables
    system.AT_FORK.append((before, after_in_parent, after_in_child))


def _fdopen(fd: int, mode: str = "r", buffering: int = -1, *args: Any, **named: Any) -> Any:
    return _sim_open(fd, mode, buffering, *args, **named)


def _makedirs(path: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
    head = real_os.fspath(path).rpartition("/")[0]
    if head not in ("", "/"):
        try:
            system.stat(head)
        except FileNotFoundError:
            _makedirs(head, mode, exist_ok=True)
    try:
        system.mkdir(path, mode)
    except FileExistsError:
        if not exist_ok:
            raise


def _time_module() -> ModuleType:
    names = {
        "time": system.wall_time,
        "time_ns": lambda: int(system.wall_time() * 1e9),
        "monotonic": system.monotonic,
        "monotonic_ns": lambda: int(system.monotonic() * 1e9),
        "perf_counter": system.monotonic,
        "perf_counter_ns": lambda: int(system.monotonic() * 1e9),
        "process_time": system.monotonic,
        "thread_time": system.monotonic,
        "sleep": system.sleep,
    }
    return Like(real_time, names, lambda name: name in ("strftime", "gmtime", "localtime", "struct_time", "mktime"))


def _print_exc(*_: Any, **__: Any) -> None:
    world = the_world()
    if world is not None and world.current is not None and world.current.process.alive:
        world.trace(f"printed {real_sys.exc_info()[1]!r}")


def _hash_by_age(one: Any) -> int:
    """A number that does not depend on addresses: sets of futures and threads are walked in its order."""
    if "serial" not in one.__dict__:
        world = the_world()
        one.serial = 0 if world is None else world.next_number()
    return int(one.serial)


def _thread_ended(args: Any) -> None:
    world = the_world()
    if world is not None and not isinstance(args.exc_value, Killed):
        world.problem(f"a thread ended with {args.exc_value!r}")


def _constants(name: str) -> bool:
    return name.isupper() or name in ("CMSG_LEN", "CMSG_SPACE", "error", "timeout", "gaierror", "herror")


class _Nothing:
    """As gc, which would end objects of the simulation at any moment."""

    def collect(self, *_: Any) -> int:
        return 0

    freeze = unfreeze = enable = disable = lambda self: None

    def isenabled(self) -> bool:
        return False

    def get_objects(self, *_: Any) -> list[Any]:
        return []


class Modules:
    """The simulated modules, by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}
        thread_names = {
            "allocate_lock": Lock,
            "allocate": Lock,
            "LockType": Lock,
            "RLock": RLock,
            "_local": Local,
            "start_new_thread": _start_new_thread,
            "start_new": _start_new_thread,
            "get_ident": _get_ident,
            "get_native_id": _get_ident,
            "_set_sentinel": _set_sentinel,
            "daemon_threads_allowed": lambda: True,
        }
        self.by_name["_thread"] = Like(
            real_thread,
            thread_names,
            lambda name: (
                name in ("error", "TIMEOUT_MAX", "_excepthook", "_ExceptHookArgs", "stack_size", "interrupt_main")
            ),
        )
        self.by_name["os"] = _os_module()
        self.by_name["time"] = _time_module()
        self.by_name["io"] = Like(real_io, {"open": _sim_open})
        self.by_name["gc"] = _Nothing()
        self.by_name["fcntl"] = Like(real_fcntl, {"flock": system.flock}, str.isupper)
        self.by_name["signal"] = Like(
            real_signal, {}, lambda name: name.startswith("SIG") or name in ("Signals", "strsignal")
        )
        self.by_name["select"] = ModuleType("select")
        self.by_name["select"].poll, self.by_name["select"].select = system.Poll, system.select
        self.by_name["select"].error = OSError
        for name in ("POLLIN", "POLLOUT", "POLLERR", "POLLHUP", "POLLNVAL", "POLLPRI"):
            setattr(self.by_name["select"], name, getattr(system, name))
        self.by_name["socket"] = Like(
            real_socket,
            {
                "socket": Socket,
                "SocketType": Socket,
                "socketpair": _socketpair,
                "send_fds": real_socket.send_fds,  # calls `sendmsg`
                "recv_fds": real_socket.recv_fds,
                "create_server": _create_server,
                "create_connection": _create_connection,
                "gethostname": system.gethostname,
            },
            _constants,
        )
        self.by_name["subprocess"] = Like(
            real_subprocess,
            {"Popen": Popen},
            lambda name: (
                name in ("PIPE", "DEVNULL", "STDOUT", "TimeoutExpired", "CalledProcessError", "SubprocessError")
            ),
        )
        self.by_name["random"] = Like(real_random, {"Random": SeededRandom}, lambda name: False)
        self.by_name["secrets"] = Like(
            real_secrets,
            {"token_bytes": _token_bytes, "token_hex": lambda n=None: _token_bytes(n).hex()},
            lambda name: name == "compare_digest",
        )
        self.by_name["uuid"] = Like(
            real_uuid, {"uuid4": _uuid4}, lambda name: name in ("UUID", "NAMESPACE_URL", "uuid5")
        )
        self.by_name["traceback"] = Like(real_traceback, {"print_exc": _print_exc})
        self.by_name["sys"] = _Sys(real_sys, {})
        self._stdlib = real_os.path.realpath(sysconfig.get_paths()["stdlib"])

    def copy_of(self, name: str, package: str = "") -> ModuleType:
        """A private copy of a module of the standard library, over the simulated modules."""
        path = f"{self._stdlib}/{name.replace('.', '/')}.py"
        spec = importlib.util.spec_from_file_location(f"{COPY}.{name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        module.__package__ = package
        real_sys.modules[f"{COPY}.{name}"] = module
        spec.loader.exec_module(module)
        self.by_name[name] = module
        return module

    def make_copies(self) -> None:
        """Copy the modules of the standard library that the engine uses."""
        self.copy_of("genericpath")
        self.by_name["os"].path = self.by_name["os.path"] = self.copy_of("posixpath")
        threading = self.copy_of("threading")
        threading.Lock, threading._allocate_lock, threading.RLock = Lock, Lock, RLock  # type: ignore[attr-defined]
        threading._CRLock, threading.local = RLock, Local  # type: ignore[attr-defined]
        threading.excepthook = _thread_ended  # type: ignore[attr-defined]
        queue = self.copy_of("queue")
        queue.SimpleQueue = queue._PySimpleQueue  # type: ignore[attr-defined]
        base = self.copy_of("concurrent.futures._base")
        base.LOGGER = logging.Logger("simulated")  # type: ignore[attr-defined] # it logs threads of dead processes
        base.LOGGER.disabled = True  # type: ignore[attr-defined]
        threading.Thread.__hash__ = base.Future.__hash__ = _hash_by_age  # type: ignore[attr-defined]
        base.id = hash  # type: ignore[attr-defined]
        futures = ModuleType(f"{COPY}.concurrent.futures")
        futures._base = base  # type: ignore[attr-defined]
        self.by_name["concurrent.futures"] = futures
        thread = self.copy_of("concurrent.futures.thread")
        for name in ("Future", "Executor", "wait", "as_completed", "CancelledError", "FIRST_COMPLETED", "ALL_COMPLETED",
                     "FIRST_EXCEPTION", "TimeoutError", "InvalidStateError"):  # fmt: skip
            setattr(futures, name, getattr(base, name))
        futures.ThreadPoolExecutor = thread.ThreadPoolExecutor  # type: ignore[attr-defined]
        futures.thread = thread  # type: ignore[attr-defined]
        concurrent = ModuleType(f"{COPY}.concurrent")
        concurrent.futures = futures  # type: ignore[attr-defined]
        self.by_name["concurrent"] = concurrent
        self.copy_of("selectors")
        self.copy_of("pathlib")
        self.copy_of("shutil")
        self.copy_of("tempfile")
        self.copy_of("multiprocessing.reduction", "multiprocessing")
        self.copy_of("multiprocessing.connection", "multiprocessing")


_modules: Modules | None = None
_real_import = builtins.__import__
#: Modules of the engine that stay real: they only wrap native code, whose threads and files are not part of the world.
REAL_MODULES = {
    "tussock.jobs.kernels.kernel": "DuckDB's files and threads; a query ends before its thread may wait",
    "tussock.statestore.allocator": "memory of the C library",
    "tussock.statestore.decoding": "a lock around a cache that all processes may share",
}


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    if _modules is not None and not level and globals is not None:
        caller = globals.get("__name__", "")
        if caller.startswith((ENGINE, COPY)) and caller not in REAL_MODULES:
            if fromlist:
                found = _modules.by_name.get(name)
                if found is not None:
                    return found
            else:
                found = _modules.by_name.get(name.partition(".")[0])
                if found is not None:
                    return found
    return _real_import(name, globals, locals, fromlist, level)


_FIRST = """numpy pyarrow pyarrow.compute pyarrow.parquet pyarrow.dataset pyarrow.csv duckdb msgspec msgspec.json
msgspec.msgpack zoneinfo logging.handlers importlib.metadata multiprocessing.reduction multiprocessing.connection
concurrent.futures.thread"""


def _quiet_hook(unraisable: Any) -> None:
    if not isinstance(unraisable.exc_value, Killed):
        real_sys.__unraisablehook__(unraisable)


def install() -> Modules:
    """Give the engine the simulated modules from now on. No module of the engine may be imported before.

    Other packages that it uses are imported first: they get the real modules.
    """
    global _modules
    early = [name for name in real_sys.modules if name.startswith(ENGINE + ".")]
    assert not early, f"imported before the simulation: {early[:3]}"
    for package in _FIRST.split():
        _real_import(package)
    _modules = Modules()
    builtins.__import__ = _import
    real_sys.unraisablehook = _quiet_hook
    _modules.make_copies()
    return _modules


def per_process(module: ModuleType, name: str) -> None:
    """Let a cached function of the engine answer for each process anew."""
    cached = getattr(module, name)
    plain = cached.__wrapped__

    @functools.wraps(plain)
    def of_process(*args: Any) -> Any:
        world = the_world()
        if world is None:
            return cached(*args)
        memory = world.current.process.memory  # type: ignore[union-attr]
        key = (module.__name__, name, args)
        if key not in memory:
            memory[key] = plain(*args)
        return memory[key]

    def clear() -> None:
        if (world := the_world()) is not None and world.current is not None:
            memory = world.current.process.memory
            for key in [key for key in memory if key[:2] == (module.__name__, name)]:
                del memory[key]

    of_process.cache_clear = clear  # type: ignore[attr-defined]
    system.AT_FORK[:] = [
        (before, in_parent, clear if in_child == cached.cache_clear else in_child)
        for before, in_parent, in_child in system.AT_FORK
    ]
    for other in list(real_sys.modules.values()):
        if getattr(other, "__name__", "").startswith((ENGINE, "tests")):
            for key, value in list(vars(other).items()):
                if value is cached:
                    setattr(other, key, of_process)
