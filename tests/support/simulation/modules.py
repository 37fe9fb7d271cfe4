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
from types import ModuleType
from typing import Any

from tests.support.simulation import (
    descriptors,
    files,
    paths,
    polling,
    processes,
    sockets,
    subprocesses,
    system,
    threads,
)
from tests.support.simulation.scheduler import Killed, the_world

ENGINE = "tussock"
COPY = "simulated"


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


_CALLS_OF_OS = {
    descriptors: "close dup pipe read write pread preadv lseek ftruncate fsync posix_fadvise isatty set_inheritable "
    "set_blocking",
    paths: "stat fstat mkdir rmdir unlink rename link access utime chmod listdir scandir",
    processes: "getpid getppid fork waitpid kill",
    system: "urandom",
}


def _os_module() -> ModuleType:
    names: dict[str, Any] = {
        "open": paths.open_file,
        "_exit": processes.exit_now,
        "remove": paths.unlink,
        "replace": paths.replace,
        "lstat": paths.lstat,
        "fdatasync": descriptors.fsync,
        "environ": Environ(),
        "register_at_fork": _register_at_fork,
        "fdopen": _fdopen,
        "makedirs": _makedirs,
    }
    for module, calls in _CALLS_OF_OS.items():
        names |= {name: getattr(module, name) for name in calls.split()}
    names["getenv"] = lambda key, default=None: names["environ"].get(key, default)
    return Like(real_os, names, lambda name: name in _HARMLESS_OS or name.isupper() or name.startswith("_"))


def _register_at_fork(*, before: Any = None, after_in_parent: Any = None, after_in_child: Any = None) -> None:
    if getattr(after_in_child, "__module__", "") == f"{COPY}.threading":
        return  # it would forget the threads of all processes, which share its tables
    system.AT_FORK.append((before, after_in_parent, after_in_child))


def _fdopen(fd: int, mode: str = "r", buffering: int = -1, *args: Any, **named: Any) -> Any:
    return files.open_file(fd, mode, buffering, *args, **named)


def _makedirs(path: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
    head = real_os.fspath(path).rpartition("/")[0]
    if head not in ("", "/"):
        try:
            paths.stat(head)
        except FileNotFoundError:
            _makedirs(head, mode, exist_ok=True)
    try:
        paths.mkdir(path, mode)
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
            "allocate_lock": threads.Lock,
            "allocate": threads.Lock,
            "LockType": threads.Lock,
            "RLock": threads.RLock,
            "_local": threads.Local,
            "start_new_thread": threads.start_new_thread,
            "start_new": threads.start_new_thread,
            "get_ident": threads.get_ident,
            "get_native_id": threads.get_ident,
            "_set_sentinel": threads.set_sentinel,
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
        self.by_name["io"] = Like(real_io, {"open": files.open_file})
        self.by_name["gc"] = _Nothing()
        self.by_name["fcntl"] = Like(real_fcntl, {"flock": descriptors.flock}, str.isupper)
        self.by_name["signal"] = Like(
            real_signal, {}, lambda name: name.startswith("SIG") or name in ("Signals", "strsignal")
        )
        self.by_name["select"] = ModuleType("select")
        self.by_name["select"].poll, self.by_name["select"].select = polling.Poll, polling.select
        self.by_name["select"].error = OSError
        for name in ("POLLIN", "POLLOUT", "POLLERR", "POLLHUP", "POLLNVAL", "POLLPRI"):
            setattr(self.by_name["select"], name, getattr(polling, name))
        self.by_name["socket"] = Like(
            real_socket,
            {
                "socket": sockets.Socket,
                "SocketType": sockets.Socket,
                "socketpair": sockets.make_pair,
                "send_fds": real_socket.send_fds,  # calls `sendmsg`
                "recv_fds": real_socket.recv_fds,
                "create_server": sockets.create_server,
                "create_connection": sockets.create_connection,
                "gethostname": system.gethostname,
            },
            _constants,
        )
        self.by_name["subprocess"] = Like(
            real_subprocess,
            {"Popen": subprocesses.Popen},
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
        threading.Lock = threading._allocate_lock = threads.Lock  # type: ignore[attr-defined]
        threading.RLock = threads.RLock  # type: ignore[attr-defined]
        threading._CRLock, threading.local = threads.RLock, threads.Local  # type: ignore[attr-defined]
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
