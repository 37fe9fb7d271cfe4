"""A story: the processes of a small world, the faults that they meet, and the checks of its history."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.support.simulation import engine, processes, system
from tests.support.simulation.cluster import Cluster
from tests.support.simulation.model import Books, Insertion, Row, epoch_fault, log_fault
from tests.support.simulation.scheduler import DeadlockError, Process, Thread
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.summary import EpochSummary
from tussock.jobs.settings.retention import Retention
from tussock.statestore.errors import RetryableError, TussockError
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.hummock.errors import MissingSstError
from tussock.statestore.meta.errors import EpochExpiredError, EpochNotCommittedError, LostRaceError
from tussock.statestore.meta.store import MetaStore

HOST = "h1"
#: Faults that no operation may notice.
UNNOTICED = frozenset({"clock", "stranger"})
CALM_S = 8.0  # of an operation of a driver with no other faults
LONGEST_S = 240.0  # of an operation of a driver, whatever happens to its workers
END_S = 20.0  # until workers have ended after their driver
ATTEMPTS = 8
_KEYS, _GROUPS = 6, 3


#: The faults that may happen in each kind of world. One that is named twice happens twice as often.
FAULTS: dict[str, tuple[str, ...]] = {
    "local": (
        "kill driver",
        "kill worker",
        "kill server",
        "kill upkeep",
        "kill at link",
        "kill at send",
        "stop worker",
        "stop workers",
        "stop server",
        "stop driver",
        "stop at send",
        "stop at send",
        "slow start",
        "clock",
        "disk full",
    ),
    "cluster": (
        "lose executor",
        "lose slots",
        "lose slots",
        "stop executor",
        "kill task",
        "kill driver",
        "cut",
        "reset",
        "stranger",
        "clock",
    ),
    "prefork": ("kill driver", "stop worker", "kill server", "clock"),
    "power": (
        "power",
        "kill driver",
        "kill at mkdir",
        "kill at mkdir",
        "kill at link",
        "kill at fsync",
        "kill at rename",
    ),
}


#: Faults of the engine that seeds have found and that are still in it. Remove a line with its fault.
KNOWN: dict[str, str] = {}


@dataclass(frozen=True)
class Fault:
    """An event from outside, after a number of events inside."""

    at_event: int
    kind: str
    amount: float  # seconds, or a choice in [0, 1)

    def __str__(self) -> str:
        return f"{self.kind} after {self.at_event} events ({self.amount:.3g})"


@dataclass
class Outcome:
    """The result of one seed."""

    seed: int
    digest: str
    problems: list[str]
    faults: list[Fault]
    kind: str
    events: int
    virtual_s: float
    epochs: int = 0

    @property
    def new_problems(self) -> list[str]:
        """The problems that KNOWN does not list."""
        return [problem for problem in self.problems if not any(re.search(known, problem) for known in KNOWN)]

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed} ({self.kind}): digest {self.digest}, {self.events} events, {self.epochs} epochs, "
            f"{self.virtual_s:.1f} s; faults: {'; '.join(map(str, self.faults)) or 'none'}"
        ]
        return "\n".join([*lines, *(f"  {problem}"[:1500] for problem in self.problems)])


@dataclass
class _Watched:
    """An operation with a limit. The time in which its own process stood still does not count."""

    process: Process
    what: str
    is_over: bool = False
    stood_s: float = 0.0


@cache
def _image(layout: engine.Layout) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(engine.make_store(1, layout))


def prepare() -> None:
    """Make the stores to start from."""
    for layout in engine.LAYOUTS:
        _image(layout)


class Story:
    """One seed."""

    def __init__(self, seed: int, tell: Callable[[str], None] | None = None, kind: str | None = None) -> None:
        self.layout = engine.LAYOUTS[seed % len(engine.LAYOUTS)]
        image = list(_image(self.layout))
        self.seed = seed
        self.world, self.machine = engine.new_world(seed, tell)
        self.machine.store.load(image)
        chance = self.world.random
        kinds = ("local", "local", "local", "cluster", "prefork", "power")
        self.kind = kind or kinds[int(chance.random() * len(kinds))]
        self.drivers: list[Process] = []
        self.others: list[Process] = []
        self.first = frozenset({"first/0"})
        counted = self.layout.tables[0]
        first = Insertion("first/0", counted, engine.FIRST_ROWS[:1], True)
        self.books = Books(counted, [first, *self._insertions()])
        self.faults = self._plan()
        self.is_calm = all(fault.kind in UNNOTICED for fault in self.faults)
        self.stopped_at: dict[Process, float] = {}
        self.epochs = 0
        self.is_over = False
        self.cluster = Cluster(self.world, self.machine, HOST) if self.kind == "cluster" else None
        self._left = list(self.faults)
        self._set_up()

    # --- the plan ---

    def _insertions(self) -> Iterator[Insertion]:
        chance, tables = self.world.random, self.layout.tables
        for i in range((1, 1, 2, 2, 3)[int(chance.random() * 5)]):
            rows: dict[int, Row] = {}
            for _ in range(1 + int(chance.random() * 3)):
                k = int(chance.random() * _KEYS)
                rows[k] = (k, int(chance.random() * _GROUPS), int(chance.random() * 100))
            yield Insertion(
                f"client/{i}", tables[(self.seed // len(engine.LAYOUTS) + i) % len(tables)], (*rows.values(),)
            )

    def _plan(self) -> list[Fault]:
        chance = self.world.random
        kinds = FAULTS[self.kind]
        count = int(chance.random() * 3) + (self.kind == "power")
        found = []
        for _ in range(count):
            kind = kinds[int(chance.random() * len(kinds))]
            at = int(chance.random() ** 1.5 * 700)
            amount = chance.random()
            found.append(Fault(at, kind, amount))
        return sorted(found, key=lambda fault: fault.at_event)

    def _set_up(self) -> None:
        world, chance = self.world, self.world.random
        world.switch_share = (0.0, 0.05, 0.3)[int(chance.random() * 3)]
        slow = any(fault.kind == "slow start" for fault in self.faults)
        self.machine.start_delay_s = lambda: 90.0 if slow else 0.3 + chance.random()
        self.machine.network.longest_delay_s = (0.002, 0.05, 1.0)[int(chance.random() * 3)]
        self.machine.network.tcp_bytes = (4_096, 65_536)[int(chance.random() * 2)]
        self.machine.network.local_bytes = (4_096, 212_992)[int(chance.random() * 2)]
        world.on_end.append(self._ended)
        self._start_driver(0.0)
        upkeeps = (1, 1, 2)[int(chance.random() * 3)] if chance.random() < 0.5 or self.kind == "prefork" else 0
        for _ in range(upkeeps):  # a vacuum beside a scrub or a compaction
            self.others.append(world.new_process("upkeep", HOST, self._upkeep))
        if chance.random() < 0.3:
            self.others.append(world.new_process("reader", HOST, lambda: self._read_often(2)))
        if self.kind == "local" and chance.random() < 0.2:
            self._start_driver(chance.random())
            self.is_calm = False

    # --- programs ---

    def _start_driver(self, after_s: float) -> None:
        def start() -> None:
            if not self.is_over:
                is_fork = self.kind == "prefork" and not self.drivers
                program = self._prefork if is_fork else self._drive
                name = f"driver{len(self.drivers)}"
                self.drivers.append(self.world.new_process(name, HOST, program, records=is_fork))

        if after_s:
            self.world.after(after_s, start)
        else:
            start()

    def _drive(self) -> None:
        """Insert the rows that are missing, and run epochs, as a repeated run of Airflow does."""
        meta = engine.open_store()
        for insertion in self.books.insertions:
            if not insertion.is_acknowledged:
                self._insert(meta, insertion)
                self._run_epochs(meta)
        self._run_epochs(meta)

    def _insert(self, meta: MetaStore, insertion: Insertion) -> None:
        def work() -> None:
            engine.insert(meta, insertion.client, insertion.table, insertion.rows)

        self._try("insert", work)
        insertion.is_acknowledged = True

    def _run_epochs(self, meta: MetaStore) -> None:
        must = self.books.acknowledged()
        runner = LocalRunner(workers=2) if self.cluster is None else self.cluster.runner()

        def work() -> list[EpochSummary]:
            return engine.advance_store(runner, meta)

        for done in self._try("epoch", work) or []:
            self.epochs += 1
            self.books.committed.setdefault(done.epoch, frozenset())
        epoch = meta.read_latest().epoch
        self.books.committed[epoch] = self.books.committed.get(epoch, frozenset()) | must
        self._try("publish", lambda: engine.publish_epoch(meta, epoch))
        self.books.published = max(self.books.published, epoch)

    def _try(self, what: str, work: Callable[[], Any]) -> Any:
        """Repeat an operation after errors that a repetition may solve."""
        for attempt in range(ATTEMPTS):
            try:
                with self._limited(what):
                    return work()
            except (RetryableError, LostRaceError) as err:
                if self.is_calm:
                    self.world.problem(f"{what} failed although nothing was wrong: {err!r}")
                self.world.trace(f"{what} failed: {type(err).__name__}: {str(err)[:160]}")
                if attempt == ATTEMPTS - 1:
                    self.world.problem(f"{what} failed {ATTEMPTS} times, at last with {err!r}")
                    return None
                system.sleep(0.2 + 3.0 * attempt)
            except TussockError as err:
                self.world.problem(f"{what} failed with {err!r}")
                return None
        return None

    @contextmanager
    def _limited(self, what: str) -> Iterator[None]:
        world, thread = self.world, self.world.current
        assert thread is not None
        watched = _Watched(thread.process, what)
        began = world.now

        def look() -> None:
            if watched.is_over or self.is_over or not watched.process.alive:
                return
            if (since := self.stopped_at.get(watched.process)) is not None:
                world.after(LONGEST_S, look)
                watched.stood_s += world.now - since
                return
            if world.now - began - watched.stood_s >= LONGEST_S:
                world.problem(f"{what} still runs after {LONGEST_S:.0f} s: {world.waits()}")
                self.is_over = True
            else:
                world.at(began + watched.stood_s + LONGEST_S, look)

        world.after(LONGEST_S, look)
        try:
            yield
        finally:
            watched.is_over = True
        if self.is_calm and world.now - began > CALM_S:
            world.problem(f"{what} took {world.now - began:.0f} s although nothing was wrong")

    def _upkeep(self) -> None:
        """Compact, vacuum and scrub, again and again."""
        meta, chance = engine.open_store(), self.world.random
        for _ in range(3):
            kind = chance.random()
            try:
                if kind < 0.4:
                    engine.vacuum.clean_store(meta, Retention(1, 0))
                elif kind < 0.7:
                    engine.compaction.compact_store(meta, CompactionOptions(l0_runs=2, l0_limit=2, small_bytes=0))
                else:
                    self._scrub(meta)
            except (RetryableError, LostRaceError) as err:
                self.world.trace(f"upkeep: {err!r}"[:200])
            system.sleep(chance.random() ** 2)

    def _scrub(self, meta: MetaStore) -> None:
        report = engine.scrub.scrub_store(meta.objects)
        if not report.is_whole:
            self.world.problem(f"scrub found damage in a whole store: {str([*report.meta, *report.ssts])[:300]}")

    def _read_often(self, times: int, rest_s: float = 0.3) -> None:
        """Read the published epoch under a pin, slowly."""
        meta, chance = engine.open_store(), self.world.random
        for _ in range(times):
            self._read_pinned(meta, rest_s * chance.random())
            system.sleep(rest_s * chance.random())

    def _read_pinned(self, meta: MetaStore, rest_s: float) -> None:
        thread = self.world.current
        assert thread is not None
        try:
            epoch = meta.read_latest().published
            pin = meta.pin_epoch(epoch)
        except (EpochExpiredError, EpochNotCommittedError, RetryableError):
            return
        began, drift = self.world.now, self.world.drift.get(HOST)
        system.sleep(rest_s)
        try:
            engine.rows_of(meta, meta.pinned_version(pin), self.layout.view, epoch)
            there = any(one.holder == pin.holder and one.epoch == epoch for one in meta.all_pins())
        except RetryableError as err:
            self.world.trace(f"a read failed: {err!r}"[:200])
            return
        except MissingSstError as err:
            self.world.problem(f"a read under a pin misses an object: {err!r}")
            return
        may_lapse = self.world.now - began > 30 or self.world.drift.get(HOST) != drift
        if not there and not may_lapse:
            self.world.problem(f"the pin {pin.holder} of epoch {epoch} is gone while its reader reads")
        meta.unpin(pin)

    def _prefork(self) -> None:
        """A server that opens the store, starts workers, forks readers, and then runs epochs."""
        world = self.world
        meta = engine.open_store()
        meta.read_latest()
        with suppress(RetryableError), engine.pool.worker_pool(2):
            pass
        for _ in range(2):
            if os_fork() == 0:
                self._child(meta)
                return
        thread = world.current
        assert thread is not None
        thread.process.records = False
        self._drive()

    def _child(self, meta: MetaStore) -> None:
        chance = self.world.random
        for _ in range(2):
            self._read_pinned(meta, 0.5 * chance.random())
            system.sleep(0.2 * chance.random())
        system.sleep(60.0)

    # --- faults ---

    def _ended(self, process: Process) -> None:
        if process in self.drivers and process.status != 0 and not self.is_over and len(self.drivers) < 6:
            self._start_driver(0.1 + self.world.random.random())

    def _look_for_faults(self) -> None:
        while self._left and self.world.events >= self._left[0].at_event:
            self._happen(self._left.pop(0))

    def _alive(self, name: str) -> list[Process]:
        return [p for p in self.world.processes.values() if p.alive and p.name.startswith(name)]

    def _one(self, found: list[Process], amount: float) -> Process | None:
        return found[int(amount * len(found))] if found else None

    def _happen(self, fault: Fault) -> None:
        world, amount = self.world, fault.amount
        world.trace(f"FAULT {fault}")
        workers = self._alive("server.")
        servers = [p for p in self._alive("server") if p not in workers]
        drivers = [p for p in self.drivers if p.alive]
        match fault.kind:
            case "kill driver" | "kill worker" | "kill server" | "kill upkeep":
                group = {"driver": drivers, "worker": workers, "server": servers, "upkeep": self._alive("upkeep")}
                if (process := self._one(group[fault.kind.split()[1]], amount)) is not None:
                    world.end_process(process, -9)
            case "stop worker" | "stop server" | "stop driver":
                group = {"driver": drivers, "worker": workers, "server": servers}
                if (process := self._one(group[fault.kind.split()[1]], amount)) is not None:
                    self._stop(process, self._rest_of(amount))
            case "stop workers":
                for process in workers:
                    self._stop(process, self._rest_of(amount))
            case "clock":
                world.drift[HOST] = world.drift.get(HOST, 0.0) + (amount - 0.5) * 10 ** (int(amount * 997) % 6)
            case "disk full":
                self.machine.store.is_full = True
                world.after(amount * 5, self._free_disk)
            case "power":
                self._lose_power()
            case "stop at send":
                self._stop_worker_at_send()
            case "kill at mkdir" | "kill at link" | "kill at fsync" | "kill at rename" | "kill at send":
                self._kill_at(fault.kind.split()[2] + " ", 1 + int(amount * 4))
            case "slow start":
                pass
            case _:
                assert self.cluster is not None
                self.cluster.happen(fault.kind, amount)

    def _kill_at(self, call: str, number: int) -> None:
        """Kill a driver right after its n-th call of a kind, before it can do anything else."""
        left = [number]

        def see(thread: Thread, what: str) -> None:
            if what.startswith(call) and thread.process in self.drivers:
                left[0] -= 1
                if not left[0]:
                    self.world.watch = None
                    self.world.kill(thread.process)

        self.world.watch = see

    def _stop_worker_at_send(self) -> None:
        """Stop a worker for long when a driver sends the next task."""

        def see(thread: Thread, what: str) -> None:
            workers = self._alive("server.")
            if what.startswith("send ") and thread.process in self.drivers and workers:
                self.world.watch = None
                self._stop(workers[int(self.world.random.random() * len(workers))], seconds=2000.0)

        self.world.watch = see

    def _free_disk(self) -> None:
        self.machine.store.is_full = False

    @staticmethod
    def _rest_of(amount: float) -> float:
        return (0.05, 3.0, 200.0, 2000.0, 2000.0)[int(amount * 1009) % 5]

    def _stop(self, process: Process, seconds: float) -> None:
        self.world.stop(process)
        self.stopped_at[process] = self.world.now

        def go_on() -> None:
            self.stopped_at.pop(process, None)
            self.world.go_on(process)

        self.world.after(seconds, go_on)

    def _lose_power(self) -> None:
        world = self.world
        for process in list(world.processes.values()):
            world.end_process(process, -9)
        lost = self.machine.store.lose_power(world.random)
        for disk in self.machine.local.values():
            disk.lose_power(world.random)
        world.trace(f"power lost: {lost}")

    # --- the course ---

    def run(self) -> Outcome:
        """Run it to its end, and check its history."""
        world = self.world
        try:
            world.run(self._is_done, 30_000)
            self.is_over = True
            self._settle()
            if not world.problems:
                self._audit()
        except DeadlockError as err:
            world.problem(f"all wait: {err}")
        self._end_all()
        return Outcome(
            self.seed, world.digest, world.problems, self.faults, self.kind, world.events, world.now, self.epochs
        )

    def _is_done(self) -> bool:
        self._look_for_faults()
        if self.is_over or self.world.problems:
            return True
        return (
            self.drivers != []
            and not any(p.alive for p in self.drivers)
            and not any(p.alive for p in self.others)
            and all(p.status == 0 for p in self.drivers[-1:])
        )

    def _settle(self) -> None:
        """All drivers are gone: workers must end, even if a child of a driver lives."""
        world = self.world
        if world.problems:
            return
        for process in list(world.processes.values()):
            world.go_on(process)
        for process in [*self.drivers, *self.others]:
            if process.alive:
                world.end_process(process, -9)
        starting = [thread for server in self._alive("server") for thread in server.threads.values()]
        world.run(lambda: not any(thread.why == "start" for thread in starting if not thread.ended), 100.0)
        ends = world.now + END_S
        world.run(lambda: world.now >= ends or not self._alive("server"), END_S)
        if left := self._alive("server"):
            world.problem(f"{[str(p) for p in left]} live {END_S:.0f} s after their driver: {world.waits()}")

    def _audit(self) -> None:
        """Read everything that a reader may read."""
        world = self.world
        for process in list(world.processes.values()):
            if process.alive:
                world.end_process(process, -9)
        if self.kind == "power":
            self._lose_power()
        world.switch_share, world.watch = 0.0, None
        self.machine.store.is_full = False
        process = world.new_process("auditor", HOST, self._check_all)
        world.run(lambda: not process.alive, 10_000)
        if process.alive:
            world.problem(f"the check did not end: {world.waits()}")

    def _check_all(self) -> None:
        world, books = self.world, self.books
        meta = engine.open_store()
        clients = [entry.client_id for entry in meta.read_log(0, meta.log_end())]
        if (fault := log_fault(books, clients)) is not None:
            world.problem(fault)
            return
        newest = meta.read_latest()
        for epoch in sorted(books.committed):
            if not meta.has_epoch(epoch):
                world.problem(f"epoch {epoch} was reported as committed, and is not in the store")
        if newest.published < books.published:
            world.problem(f"epoch {books.published} was published, and {newest.published} is now")
        least = 0
        epochs = [one for one in newest.epochs if one >= newest.min_readable_epoch] if hasattr(newest, "epochs") else []
        for epoch in epochs or [newest.epoch]:
            must = frozenset[str]().union(*(who for at, who in books.committed.items() if at <= epoch))
            try:
                with meta.open_for_reading(epoch) as version:
                    read = self.layout.tables if epoch == newest.epoch else ()
                    tables = {name: engine.rows_of(meta, version, name, epoch) for name in read}
                    counts = engine.rows_of(meta, version, self.layout.view, epoch)
            except TussockError as err:
                world.problem(f"epoch {epoch} is not readable: {err!r}")
                return
            fault, least = epoch_fault(books, clients, must, least, tables, counts)  # type: ignore[arg-type]
            if fault is not None:
                world.problem(f"epoch {epoch}: {fault}")

    def _end_all(self) -> None:
        self.is_over = True
        for process in list(self.world.processes.values()):
            if process.alive:
                self.world.end_process(process, -9)


def os_fork() -> int:
    """os.fork of a simulated process."""
    return int(processes.fork())


def run_seed(seed: int, tell: Callable[[str], None] | None = None, kind: str | None = None) -> Outcome:
    """Run one seed."""
    return Story(seed, tell, kind).run()
