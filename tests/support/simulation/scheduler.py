"""The scheduler of a simulation: threads as greenlets, one virtual clock, one seed.

Exactly one simulated thread runs at a time, until it calls the simulated system. There the scheduler may let another
one run. If all of them wait, the clock jumps to the next timer. Every choice comes from one random generator, and every
event enters a digest, so equal seeds give equal histories.
"""

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")

EPOCH_S = 1_750_000_000.0  # the wall clock of hosts at the start
_STEP_S = 2e-5  # of a call to the system, at most
_SWITCH = 0.15  # the share of calls after which another thread may run
FOREVER_S = 1e9


class Killed(BaseException):
    """Ends a thread whose process is dead."""


class DeadlockError(AssertionError):
    """All threads wait, and no timer is left."""


class Signal:
    """A place where threads wait until something changes."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[Thread] = []


class Thread:
    """A thread of a simulated process."""

    def __init__(self, process: "Process", ident: int, name: str, run: Callable[[], object]) -> None:
        self.process, self.ident, self.name, self._work = process, ident, name, run
        self.locals: dict[Any, dict[str, Any]] = {}
        self.sentinel: Any = None  # a lock that is released at its end
        self.woken = self.ended = False
        self.waits_on: tuple[Signal, ...] = ()
        self.why = "start"  # the reason of its wait, in the trace
        self.since = 0.0
        self.is_housekeeping = False  # waits for ever by design
        self.greenlet = greenlet(self._run)

    def _run(self) -> None:
        try:
            if self.process.alive:
                self._work()
        except Killed:
            pass
        except BaseException as err:
            self.process.world.problem(f"thread {self.name} of {self.process} ended with {err!r}")
            if self.process.world.raises:
                raise
        finally:
            self.ended = True
            self.process.threads.pop(self.ident, None)
            if self.sentinel is not None:
                self.sentinel.free()


@dataclass(eq=False)
class Process:
    """A simulated process: its descriptors, its memory as far as it differs between processes, its threads."""

    world: "World"
    pid: int
    name: str
    host: str
    program: Callable[[], object]
    parent: "Process | None" = None
    argv: list[str] = field(default_factory=list)
    first_argv: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    fds: dict[int, Any] = field(default_factory=dict)
    threads: dict[int, Thread] = field(default_factory=dict)
    memory: dict[Any, Any] = field(default_factory=dict)
    owned: set[Any] = field(default_factory=set)  # locks
    alive: bool = True
    stopped: bool = False
    reaped: bool = False
    status: int = 0  # of its end: an exit code, or the negative number of a signal
    first_environ: dict[str, str] = field(default_factory=dict)  # as at its start
    children: "list[Process]" = field(default_factory=list)
    log: list[tuple[str, Any]] = field(default_factory=list)  # results of its calls, while `records`
    replay: "deque[tuple[str, Any]]" = field(default_factory=deque)
    records: bool = False
    changed: Signal = field(default_factory=Signal)  # it ended, or a child of it
    death_signal: bool = False  # dies with its parent

    def __str__(self) -> str:
        return f"{self.name}[{self.pid}]"


class World:
    """All simulated processes, and their clock."""

    def __init__(self, seed: int, tell: Callable[[str], None] | None = None, raises: bool = False) -> None:
        """
        Args:
            tell: receives each line of the trace.
            raises: whether an error that no thread catches ends the simulation.
        """
        self.seed, self.random, self.now = seed, random.Random(seed), 0.0
        self._tell, self.raises = tell, raises
        self.watch: Callable[[Thread, str], None] | None = None  # sees each event of a thread; may end its process
        self._digest, self.events = hashlib.blake2b(digest_size=12), 0
        self.current: Thread | None = None
        self._ready: list[Thread] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = self._idents = 0
        self._pids = 100
        self.processes: dict[int, Process] = {}
        self.problems: list[str] = []
        self.drift: dict[str, float] = {}  # by host: the difference of its wall clock
        self.install: Callable[[Process | None], None] = lambda process: None
        self._installed: Process | None = None
        self._hub: greenlet = getcurrent()
        self.switch_share = _SWITCH
        self.longest: tuple[float, str] = (0.0, "")
        self.on_end: list[Callable[[Process], None]] = []

    # --- trace ---

    def trace(self, what: str) -> None:
        """Add an event to the digest, and to the printed trace."""
        thread = self.current
        line = f"{self.now:12.6f} {thread.process if thread else '-'} {thread.name if thread else '-'}: {what}"
        self._digest.update(line.encode())
        self.events += 1
        if self._tell is not None:
            self._tell(line)
        if self.watch is not None and thread is not None and thread.process.alive:
            self.watch(thread, what)

    def problem(self, what: str) -> None:
        """Note what must not happen."""
        self.trace(f"PROBLEM {what}")
        self.problems.append(what)

    @property
    def digest(self) -> str:
        """The digest of all events so far."""
        return self._digest.hexdigest()

    def next_number(self) -> int:
        """A number that no other call returns."""
        self._serial += 1
        return self._serial

    # --- timers ---

    def at(self, moment: float, call: Callable[[], None]) -> None:
        """Call a function at a moment."""
        heapq.heappush(self._timers, (moment, self.next_number(), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function after some time."""
        self.at(self.now + seconds, call)

    # --- threads ---

    def new_thread(self, process: Process, run: Callable[[], object], name: str = "") -> Thread:
        """Start a thread."""
        self._idents += 1
        ident = 7_000_000 + self._idents
        thread = Thread(process, ident, name or f"t{self._idents}", run)
        process.threads[ident] = thread
        thread.greenlet.parent = self._hub
        self._ready.append(thread)
        return thread

    def new_process(
        self, name: str, host: str, program: Callable[[], object], parent: Process | None = None, records: bool = False
    ) -> Process:
        """Start a process whose main thread runs `program`; its end is the process's end."""
        self._pids += 1
        process = Process(self, self._pids, name, host, program, parent, records=records)
        self.processes[process.pid] = process
        if parent is not None:
            parent.children.append(process)
            process.environ = dict(parent.environ)
        process.first_environ = dict(process.environ)
        self.new_thread(process, lambda: self._main(process), "main")
        self.trace(f"start {process}")
        return process

    def _main(self, process: Process) -> None:
        status = 1
        try:
            process.program()
            status = 0
        except SystemExit as err:
            status = err.code if isinstance(err.code, int) else 1
        finally:
            if process.alive:
                self.end_process(process, status)

    def end_process(self, process: Process, status: int) -> None:
        """End a process at once. Its files and sockets close; its threads run no further code."""
        if not process.alive:
            return
        process.alive, process.status, process.stopped = False, status, False
        self.trace(f"end {process} status {status}")
        me, here = self.current, getcurrent()
        for thread in list(process.threads.values()):
            for signal in thread.waits_on:
                if thread in signal.waiting:
                    signal.waiting.remove(thread)
            if thread in self._ready:
                self._ready.remove(thread)
            if thread is me or thread.greenlet.dead:
                continue
            if thread.greenlet:
                self._show(thread)
                thread.greenlet.parent = here
                thread.greenlet.throw(Killed)
            thread.ended = True
        self._show(me)
        process.threads.clear()
        for lock in sorted(process.owned, key=lambda lock: lock.serial):
            lock.owners.pop(process, None)
        process.owned.clear()
        for open_file in list(process.fds.values()):
            open_file.drop(process)
        process.fds.clear()
        self.notify(process.changed)
        if process.parent is not None:
            self.notify(process.parent.changed)
        for child in list(process.children):
            if child.alive and child.death_signal:
                self.end_process(child, -9)
        for call in self.on_end:
            call(process)

    def kill(self, process: Process) -> None:
        """SIGKILL."""
        self.end_process(process, -9)
        if self.current is not None and self.current.process is process:
            raise Killed

    def stop(self, process: Process) -> None:
        """SIGSTOP: none of its threads runs until `go_on`."""
        if process.alive:
            self.trace(f"stop {process}")
            process.stopped = True
            if self.current is not None and self.current.process is process:
                self.pause(True)

    def go_on(self, process: Process) -> None:
        """SIGCONT."""
        if process.alive and process.stopped:
            self.trace(f"continue {process}")
            process.stopped = False

    # --- calls of threads ---

    def _show(self, thread: "Thread | None") -> None:
        """Make the memory of a thread's process the visible one."""
        self.current = thread
        process = None if thread is None else thread.process
        if process is not self._installed:
            self._installed = process
            self.install(process)

    def check_alive(self) -> None:
        """Raise Killed in a thread of a dead process."""
        if self.current is not None and not self.current.process.alive:
            raise Killed

    def pause(self, certainly: bool = False) -> None:
        """A point where another thread may run."""
        thread = self.current
        if thread is None:
            return
        if not thread.process.alive:
            raise Killed
        self.now += self.random.random() * _STEP_S
        if certainly or thread.process.stopped or self.random.random() < self.switch_share:
            self._ready.append(thread)
            self._leave(thread)

    def _leave(self, thread: Thread) -> None:
        self._hub.switch()
        if not thread.process.alive:
            raise Killed

    def wait_for(
        self, ready: Callable[[], T | None], signals: Iterable[Signal], timeout: float | None, why: str
    ) -> T | None:
        """Wait until `ready` returns something; None after the time.

        Args:
            ready: called again after each notification of one of the signals.
            why: for the trace.
        """
        thread = self.current
        assert thread is not None, "only a simulated thread may wait"
        if not thread.process.alive:
            raise Killed
        began, timer = self.now, False
        ends = None if timeout is None else self.now + max(0.0, timeout)
        thread.why, thread.since = why, began
        places = tuple(signals)
        while (found := ready()) is None:
            if ends is not None and self.now >= ends:
                return None
            thread.woken, thread.waits_on = False, places
            for signal in places:
                signal.waiting.append(thread)
            if ends is not None and not timer:
                timer = True
                self.at(ends, lambda: self._wake(thread))
            self._leave(thread)
            for signal in places:
                if thread in signal.waiting:
                    signal.waiting.remove(thread)
            thread.waits_on = ()
        if (waited := self.now - began) > self.longest[0]:
            self.longest = waited, f"{thread.process} {thread.name}: {why}"
        return found

    def sleep(self, seconds: float) -> None:
        """Let the thread rest."""
        self.wait_for(lambda: None, (), max(seconds, 1e-6), "sleep")

    def _wake(self, thread: Thread) -> None:
        if not thread.woken and not thread.ended and thread.process.alive:
            thread.woken = True
            self._ready.append(thread)

    def notify(self, signal: Signal) -> None:
        """Let all threads that wait there look again."""
        waiting, signal.waiting = signal.waiting, []
        for thread in waiting:
            self._wake(thread)

    # --- the loop ---

    def run(self, until: Callable[[], bool], longest_s: float = FOREVER_S) -> bool:
        """Run threads and timers until a condition holds. False if the time ended first.

        Raises DeadlockError if nothing can happen any more.
        """
        self._hub = getcurrent()
        ends = self.now + longest_s
        while not until():
            while self._timers and self._timers[0][0] <= self.now:
                heapq.heappop(self._timers)[2]()
            able = [thread for thread in self._ready if not thread.process.stopped]
            if able:
                thread = able[int(self.random.random() * len(able))] if len(able) > 1 else able[0]
                self._ready.remove(thread)
                self._show(thread)
                thread.greenlet.parent = self._hub
                thread.greenlet.switch()
                self.current = None  # the memory stays shown: the next thread is often one of the same process
                continue
            if not self._timers:
                raise DeadlockError(self.waits())
            if self._timers[0][0] > ends:
                self.now = ends
                return False
            self.now = max(self.now, self._timers[0][0])
        return True

    def waits(self) -> str:
        """The reason for which each thread waits."""
        threads = [t for p in self.processes.values() if p.alive for t in p.threads.values()]
        return "; ".join(
            f"{t.process}{' (stopped)' if t.process.stopped else ''} {t.name}: {t.why} since {t.since:.1f}"
            for t in threads
        )

    def wall(self, host: str) -> float:
        """The wall clock of a host, in Unix seconds."""
        return EPOCH_S + self.now + self.drift.get(host, 0.0)


_world: World | None = None


def set_world(world: World | None) -> None:
    """Choose the world of the simulated modules."""
    global _world
    _world = world


def the_world() -> World | None:
    """The world in which a simulated thread runs now; None outside of one."""
    world = _world
    return world if world is not None and world.current is not None else None
