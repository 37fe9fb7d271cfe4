"""Child processes of the simulation, as `subprocess` starts them."""

import signal as real_signal
import subprocess as real_subprocess
from typing import Any

from tests.support.simulation import processes, system
from tests.support.simulation.scheduler import the_world


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
            processes.kill(self.pid, number)

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
    return processes.child_status(world, pid, timeout)
