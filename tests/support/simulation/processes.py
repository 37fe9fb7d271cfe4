"""Calls of simulated processes on processes: forks, ends and signals."""

import errno
import os as real_os
import signal as real_signal

from tests.support.simulation.scheduler import Killed, World
from tests.support.simulation.system import call, me


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
