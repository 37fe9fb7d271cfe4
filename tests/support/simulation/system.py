"""The simulated operating system: its machine, how a function becomes a call to it, and the calls on clocks.

The simulated modules (modules.py) consist of calls: those here, and of descriptors.py, paths.py, processes.py,
polling.py and connections.py. Outside of a simulated thread each of them is the real function, so modules can be
imported. All calls that a process made while it `records` can be given again to a child: so `os.fork` returns twice, in
a second run of the same program.
"""

import functools
import os as real_os
import socket as real_socket
import time as real_time
from collections.abc import Callable
from typing import Any

from tests.support.simulation.disk import Disk
from tests.support.simulation.network import Network
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


# --- clocks and chance ------------------------------------------------------------------------------------------------


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
