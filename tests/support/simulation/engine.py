"""The engine inside the simulation: its modules, the memory that differs between its processes, stores to start from.

Import this module after `modules.install()`.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa

from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.support.simulation import modules, system
from tests.support.simulation.model import Row
from tests.support.simulation.scheduler import Process, World, set_world, the_world
from tussock.jobs.driver import runner
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.kernels import kernel
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, schema_of
from tussock.jobs.logical.statements import CreateSchema, Insert, Statement
from tussock.jobs.reading.reader import scan_relation
from tussock.jobs.settings import arrow
from tussock.jobs.settings.process import clock_ms, new_writer
from tussock.jobs.task import collector, stage
from tussock.jobs.upkeep import compaction, vacuum
from tussock.jobs.workers import fork_server, pool
from tussock.statestore import forks, local_disk
from tussock.statestore.hummock import cache, disk_cache, range_reader, scrub
from tussock.statestore.meta import packing, packs
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore import local, ranges
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.table import recalled_table, row_cache

__all__ = ["advance_store", "compaction", "fork_server", "pool", "publish_epoch", "runner", "scrub", "vacuum"]

STORE = "/store/s"
#: Cached functions whose answers are memory of a process.
CACHED: tuple[tuple[ModuleType, str], ...] = (
    (cache, "process_cache"),
    (disk_cache, "process_disk_cache"),
    (disk_cache, "process_settings"),
    (row_cache, "process_row_cache"),
    (recalled_table, "_process_memory"),
    (range_reader, "_fetch_threads"),
    (local_disk, "_folder_prefix"),
    (local_disk, "_remove_abandoned_once"),
    (ranges, "_fetch_threads"),
)
#: Objects of modules whose attributes are memory of a process.
OBJECTS: tuple[tuple[ModuleType, str], ...] = ((pool, "_of_process"), (stage, "_last"), (forks, "_marks"))
#: Names of modules that are memory of a process.
NAMES: tuple[tuple[ModuleType, str], ...] = (
    (collector, "_looked"),
    (local, "_serial"),
    (forks, "_connections"),
)


def listed_memory() -> list[str]:
    """The memory of processes, as tests/support/process_state.yaml names it."""
    return sorted(
        f"{module.__name__.removeprefix(modules.ENGINE + '.').replace('.', '/')}.py: {name}"
        for module, name in (*CACHED, *OBJECTS, *NAMES)
    )


class _EveryProcess:
    """As OwnProcess, for an object that all simulated processes share."""

    is_here = True


class WeaklyHeld(WeakKeyDictionary[Any, None]):
    """As a WeakSet, in the order of additions instead of addresses."""

    def add(self, one: Any) -> None:
        """As WeakSet.add."""
        self[one] = None


class Memory:
    """Shows each process its own memory, where modules keep state."""

    def __init__(self) -> None:
        tempfile = sys.modules["simulated.tempfile"]
        self._names = (*NAMES, (tempfile, "tempdir"), (tempfile, "_name_sequence"))
        self._fresh_names: dict[tuple[ModuleType, str], Callable[[], Any]] = {
            (module, name): partial(_same, getattr(module, name)) for module, name in self._names
        }
        self._fresh_names[local, "_serial"] = lambda: iter(range(1 << 62))
        self._fresh_names[forks, "_connections"] = WeaklyHeld
        self._objects = [getattr(*key) for key in OBJECTS]
        self._makers = [type(one) for one in self._objects]
        self._shown: Process | None = None

    def show(self, process: Process | None) -> None:
        """Make the memory of a process the one that modules see."""
        if process is self._shown:
            return
        if self._shown is not None:
            self._shown.memory["names"] = [getattr(*key) for key in self._names]
            self._shown.memory["objects"] = [one.__dict__ for one in self._objects]
        self._shown = process
        if process is None:
            return
        if (names := process.memory.get("names")) is None:
            names = [self._fresh_names[key]() for key in self._names]
            process.memory["objects"] = [make().__dict__ for make in self._makers]
        for (module, name), value in zip(self._names, names, strict=True):
            setattr(module, name, value)
        for one, values in zip(self._objects, process.memory["objects"], strict=True):
            one.__dict__ = values

    def forget(self) -> None:
        """Forget the last world."""
        self._shown = None


def _same(value: Any) -> Any:
    return value


_memory: Memory | None = None


def prepare() -> None:
    """Divide the memory of the engine's modules between processes. Call once."""
    global _memory
    for package in ("statestore", "jobs.workers", "jobs.exchange", "jobs.driver", "jobs.upkeep", "jobs.task"):
        root = importlib.import_module(f"tussock.{package}")
        for found in pkgutil.walk_packages(root.__path__, f"tussock.{package}."):
            importlib.import_module(found.name)
    for module, name in CACHED:
        modules.per_process(module, name)
    row_cache.RowCache.share_runs = lambda self: None  # type: ignore[method-assign]  # not simulated
    # Tiny epochs use workers too.
    runner.LocalRunner.may_unite = lambda self, task: False  # type: ignore[method-assign]
    runner.WORTH_WORKERS_BYTES = 0
    packs.PACK_SIZE, packing.UNPACKED = 4, 2  # so that vacuum packs the log of a few epochs
    arrow.leave_pandas = lambda: None  # of the whole process
    # One kernel serves all processes, since no thread waits within a query. A new one takes 20 ms.
    kernel.OwnProcess = _EveryProcess  # type: ignore[misc, assignment]
    _memory = Memory()  # before the kernel makes its folder
    kernel.thread_kernel()
    system.only_inside = True


def new_world(
    seed: int, tell: Callable[[str], None] | None = None, raises: bool = False
) -> tuple[World, system.Machine]:
    """A world with no process, and its machine. Ends the one before."""
    assert _memory is not None, "prepare() first"
    threading = sys.modules["simulated.threading"]
    for name in ("_active", "_limbo", "_dangling", "_shutdown_locks"):
        getattr(threading, name).clear()
    _memory.forget()
    world = World(seed, tell, raises)
    world.install = _memory.show
    machine = system.Machine(world)
    set_world(world)
    system.set_machine(machine)
    machine.programs["fork server"] = serve_workers
    return world, machine


@system.call()
def import_engine(world: World) -> None:
    """The start of a new Python process."""
    world.wait_for(lambda: None, (), system.the_machine().start_delay_s(), "start")


def serve_workers() -> None:
    """A new Python process with the fork server's code (jobs/workers/pool.py)."""
    import_engine()
    exec(_code_of_server(), {"__name__": f"{modules.ENGINE}.server"})


def _code_of_server() -> str:
    world = the_world()
    process = world.current.process if world is not None and world.current is not None else None
    while process is not None and "code" not in process.memory:
        process = process.parent
    assert process is not None
    return str(process.memory["code"])


# --- what programs do -------------------------------------------------------------------------------------------------


def open_store() -> MetaStore:
    """Open the store as a new process."""
    return MetaStore(open_object_store(STORE), new_writer(), clock_ms)


def append(meta: MetaStore, client: str, statement: Statement) -> int:
    """Append a bound statement to the log."""
    return meta.append_log(client, msgspec.json.encode(statement))


def insert(meta: MetaStore, client: str, table_name: str, rows: tuple[Row, ...]) -> None:
    """Insert rows into a table."""
    columns = {name: pa.array([row[i] for row in rows], pa.int32()) for i, name in enumerate(("k", "g", "a"))}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns))
    append(meta, client, Insert(table_name, len(rows), meta.put_payload(sink.getvalue().to_pybytes())))


def rows_of(meta: MetaStore, version: HummockVersion, name: str, epoch: int) -> list[tuple[Any, ...]]:
    """The rows of a relation at an epoch."""
    (relation,) = [r for r in version.catalog.live_relations() if r.name == name]
    found: list[tuple[Any, ...]] = []
    for rows in scan_relation(meta.objects, version, relation, epoch):
        found += zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return sorted(found)


@dataclass(frozen=True)
class Layout:
    """The tables of a store, and its view, which counts the rows of the first table."""

    tables: tuple[str, ...]
    view: str

    def statements(self) -> list[Statement]:
        """The statements that create its schemas and relations."""
        names = (*self.tables, self.view)
        schemas = sorted({schema_of(name) for name in names} - {DEFAULT_SCHEMA})
        return [
            *(CreateSchema(schema) for schema in schemas),
            *(table(name) for name in self.tables),
            view(self.view, counted(scan(self.tables[0]), 1)),
        ]


_ONE_SCHEMA = Layout(("t",), "c")
#: The layout of each seed. In half of them, two schemas share a name. Only one in eight has a second table, which
#: makes a seed slower.
LAYOUTS = (
    *(_ONE_SCHEMA, Layout(("t",), "twin.t"), _ONE_SCHEMA, Layout(("twin.t",), "t")),
    *(_ONE_SCHEMA, Layout(("twin.t", "t"), "c"), _ONE_SCHEMA, Layout(("t",), "twin.t")),
)
FIRST_ROWS: tuple[Row, ...] = ((1, 1, 10), (2, 2, 20), (3, 1, 30))


def make_store(epochs: int, layout: Layout, units: int = 2) -> list[tuple[str, bytes | None]]:
    """The disk of a new store with the relations of a layout and some epochs."""

    def build() -> None:
        objects = open_object_store(STORE)
        MetaStore.init(objects, units=units)
        meta = open_store()
        for i, statement in enumerate(layout.statements()):
            append(meta, f"first/statement/{i}", statement)
        for i in range(epochs):
            insert(meta, f"first/{i}", layout.tables[0], FIRST_ROWS[i : i + 1])
            (done,) = advance_store(LocalRunner(), meta)
            publish_epoch(meta, done.epoch)

    world, machine = new_world(0, raises=True)
    machine.store.mkdir("/store")
    process = world.new_process("builder", "h1", build)
    world.run(lambda: not process.alive)
    assert not world.problems, world.problems
    return machine.store.image()
