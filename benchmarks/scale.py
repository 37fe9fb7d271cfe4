"""How one store grows: versions of 10^4 to 10^6 SSTs, and barriers of as many files, without their bytes; and units.

    python -m benchmarks scale                       10^4, 10^5 and 10^6; a quarter of an hour
    python -m benchmarks scale --sizes 1000 10000    a smoke test

The catalog, and the first epoch, come from the code that every epoch runs. A snapshot then gives the version `n` SSTs:
64 MB each, of 100 state tables, a run each epoch on L0 and all others sorted on the deepest levels. The SSTs do not
exist. So everything that reads only versions and documents runs as it does in a store of that size, and everything that
reads SSTs is left out. A listing names the SSTs, because vacuum compares it with the version. The files of the source
have two bytes, and no epoch reads them.

The units of an epoch run one after another in one process, so their cost is the CPU seconds of all units together.

Each size is a new process, whose private memory (RssAnon) is measured, and compared with a store without SSTs or files.
The steps are measured in CPU seconds. The exponent is the slope of log(cost - cost for one thing) over log(size), as in
`python -m benchmarks growth`.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa

from benchmarks.growth import exponent_of
from benchmarks.memory import rss_anon
from benchmarks.report import machine
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.epoch_plan import Base, plan_epoch
from tussock.jobs.barriers.leaves import taken_batches
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.logical.nodes import AggCall, AggFunction, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateTable, CreateView, Insert, Statement
from tussock.jobs.upkeep.compaction import due_picks
from tussock.statestore.decoding import decode_json
from tussock.statestore.hummock.compaction_picker import BOTTOM
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.hummock.version import part_of, sections_at
from tussock.statestore.meta.barrier import Barrier, BarrierPlan
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.compaction import CompactionPlan
from tussock.statestore.meta.levels import hull_of, ssts_between
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.names import (
    DATA,
    PAGES,
    ROOTS,
    SNAPSHOTS,
    barrier_name,
    data_prefix,
    hash_of,
    manifest_name,
    task_prefix,
)
from tussock.statestore.meta.pages import laid_out
from tussock.statestore.meta.settings import initial_version
from tussock.statestore.meta.snapshots import SNAPSHOT_EVERY, Snapshots
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import (
    CompactionTask,
    HummockVersion,
    LevelInput,
    SectionInfo,
    SstInfo,
    VersionPart,
)
from tussock.statestore.objectstore.base import ObjectInfo
from tussock.statestore.objectstore.local import LocalObjectStore

RESULTS = Path(__file__).parent / "results"
SIZES = (10_000, 100_000, 1_000_000)
UNITS = (10, 100, 1_000)
VNODES = 4_096  # of the stores that measure units
SST_BYTES = 64 << 20
ROWS = 1_000_000  # per SST
TABLES = 100  # tables of the catalog, each with one state table
FLUSHED = 3  # SSTs per epoch
L0_RUNS = 3
_SHARES = ((BOTTOM, 0.9), (BOTTOM - 1, 0.09), (BOTTOM - 2, 0.01))  # levels a tenth of the next
_FIELDS = tuple(Field(name, "int") for name in ("k", "g", "a"))

_MEMORY = "private memory, bytes"
_CLOCK_MS = 1_700_000_000_000
_ticks = itertools.count(1)


class SimulatedStore(LocalObjectStore):
    """A local store whose listing also names SSTs without bytes."""

    absent: tuple[ObjectInfo, ...] = ()

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See ObjectStore."""
        named = self.absent if prefix in ("", DATA) else ()
        return itertools.chain(named, super().list(prefix, start_after))


def ssts_of(version: HummockVersion, n: int) -> tuple[tuple[SstInfo, ...], ...]:
    """Levels of `n` SSTs. Below L0 they are sorted and disjoint: a table's keys are divided among its SSTs."""
    tables = [
        t.table_id for r in version.catalog.stored_relations() for t in r.state_tables if r.kind is RelationKind.TABLE
    ]
    levels: list[tuple[SstInfo, ...]] = [()] * (BOTTOM + 1)
    runs = [[_sst(table, 0, 1, version.epoch, f"l0-{run}") for table in tables[:FLUSHED]] for run in range(L0_RUNS)]
    levels[0] = tuple(sst for run in runs for sst in run) if n > 1 else ()
    for level, share in _SHARES:
        held = int(n * share)
        each, more = divmod(held, len(tables))
        levels[level] = tuple(
            _sst(table, i, count, version.epoch, f"{level}")
            for place, table in enumerate(tables)
            for count in [each + (place < more)]
            for i in range(count)
        )
    return tuple(levels)


def _sst(table: int, i: int, count: int, epoch: int, what: str, prefix: str = data_prefix(1)) -> SstInfo:
    """The `i`-th of `count` SSTs that divide a table's keys."""
    head = table.to_bytes(4, "big")
    low, high = ((1 << 80) * i // count, (1 << 80) * (i + 1) // count - 1)
    keys = [head + key.to_bytes(10, "big") for key in (low, high)]
    name = f"{prefix}{hash_of(f'{what}/{table}/{i}'.encode())}.sst"
    return SstInfo(name, SST_BYTES, 200_000, ROWS, epoch, epoch, (SectionInfo(table, *keys, ROWS, SST_BYTES),))


# --- measuring, in a process per size ---


@contextmanager
def _timed(costs: dict[str, float], step: str) -> Iterator[None]:
    before = time.process_time()
    yield
    costs[step] = time.process_time() - before


def measure_ssts(folder: Path, n: int) -> dict[str, float]:
    """CPU seconds of each step on a version of `n` SSTs, and facts in bytes."""
    meta, objects = _new_store(folder, n)
    costs: dict[str, float] = {}
    empty = rss_anon(os.getpid())
    reader = MetaStore(objects, "reader", _clock)
    with _timed(costs, "open the store"):
        version = reader.read_latest()
    costs[_MEMORY] = rss_anon(os.getpid()) - empty
    costs["bytes read to open it"] = _stored_bytes(objects, SNAPSHOTS, ROOTS)
    with _timed(costs, "find the SSTs of ten tables"):
        for table in range(1, 11):
            list(sections_at(version, table))
    with _timed(costs, "send five tables to a worker"):
        task = msgspec.json.encode(part_of(version, range(11, 16)))
        decode_json(task, VersionPart)
    costs["bytes sent to a worker"] = len(task)
    with _timed(costs, "read all pages"):
        assert sum(1 for level in version.levels for _ in level) >= n - 1
    costs[f"{_MEMORY}, with all pages"] = rss_anon(os.getpid()) - empty
    costs["bytes of all pages"] = _stored_bytes(objects, PAGES)
    meta.read_latest()
    meta.append_log("benchmark/insert", msgspec.json.encode(CreateTable("one_more", _FIELDS, (0,))))
    with _timed(costs, "inject a barrier and plan its epoch"):
        barrier = inject_barrier(meta)
        assert barrier is not None
        plan_epoch(meta, Base(meta.read_latest()), barrier).input_size()
    made = [_committed(meta, barrier)]
    while meta.read_latest().id % SNAPSHOT_EVERY != SNAPSHOT_EVERY - 1:
        made.append(_committed(meta, _barrier(meta)))
    costs["commit an epoch"] = statistics.median(made)
    costs["commit an epoch, with a snapshot"] = _committed(meta, _barrier(meta))
    with _timed(costs, "pick compactions"):
        due_picks(meta)
    if (plan := _downwards(meta.read_latest())) is not None:
        with _timed(costs, "open and commit a compaction"):
            opened = meta.open_compaction(plan)
            meta.commit_compaction(opened, _outputs(meta.read_latest(), opened))
        before = _stored_bytes(objects, PAGES)
        while meta.read_latest().id % SNAPSHOT_EVERY != SNAPSHOT_EVERY - 1:
            _committed(meta, _barrier(meta))
        costs["commit an epoch, with a snapshot after it"] = _committed(meta, _barrier(meta))
        costs["bytes of pages that it writes"] = _stored_bytes(objects, PAGES) - before
    before = _stored_bytes(objects, "")
    with _timed(costs, "create a branch and open it"):
        branch = MetaStore(objects, "another", _clock).open_branch("b")
        assert branch.read_latest().epoch == meta.read_latest().epoch
    costs["bytes that a branch writes"] = _stored_bytes(objects, "") - before
    with _timed(costs, "vacuum, dry run"):
        vacuum_store(meta, dry_run=True)
    with _timed(costs, "status"):
        read_status(meta, datetime.fromtimestamp(_clock() / 1000, UTC))
    return costs


def _stored_bytes(objects: SimulatedStore, *prefixes: str) -> int:
    """The bytes of objects, without the absent ones."""
    return sum(found.size for prefix in prefixes for found in objects.list(prefix))


def measure_files(folder: Path, n: int) -> dict[str, float]:
    """CPU seconds of each step on a barrier of `n` files, and facts in bytes."""
    meta, objects = _new_store(folder, 0)
    for number in range(n):
        with (folder / "files" / f"{number:08}.json").open("wb") as file:
            file.truncate(2)  # no block of the disk
    costs: dict[str, float] = {}
    empty = rss_anon(os.getpid())
    with _timed(costs, "list the files and inject a barrier"):
        barrier = inject_barrier(meta)
    assert barrier is not None
    costs["bytes of a barrier"] = objects.head(barrier_name(barrier.prev_epoch, barrier.attempt)).size
    with _timed(costs, "read the barrier"):
        found = MetaStore(objects, "reader", _clock).barrier_after(barrier.prev_epoch)
    assert found == barrier
    with _timed(costs, "plan its epoch"):
        plan = plan_epoch(meta, Base(meta.read_latest()), barrier)
        plan.input_size()
    with _timed(costs, "write the rows of taken files"):
        list(taken_batches(meta, plan))
    costs[_MEMORY] = rss_anon(os.getpid()) - empty
    with _timed(costs, "status with an open barrier"):
        read_status(meta, datetime.fromtimestamp(_clock() / 1000, UTC))
    return costs


def _clock() -> int:
    return _CLOCK_MS + next(_ticks)


def _new_store(folder: Path, n: int) -> tuple[MetaStore, SimulatedStore]:
    """A store after one epoch, whose version has `n` SSTs. A source reads the empty folder `files`."""
    (folder / "files").mkdir(parents=True)
    objects = SimulatedStore(folder / "store")
    MetaStore.init(objects, units=2)
    meta = MetaStore(objects, "benchmark", _clock)
    for number, statement in enumerate(_statements(folder)):
        meta.append_log(f"benchmark/{number}", msgspec.json.encode(statement))
    barrier = inject_barrier(meta)
    assert barrier is not None
    run_epoch(LocalRunner(), meta, barrier)
    meta.publish(meta.read_latest().epoch)
    version = meta.read_latest()
    # Deltas are only read from the newest snapshot on, so the log may have a gap before it.
    grown = msgspec.structs.replace(version, id=SNAPSHOT_EVERY * (version.id // SNAPSHOT_EVERY + 1))
    if n:
        grown = msgspec.structs.replace(grown, levels=ssts_of(grown, n))
    objects.absent = tuple(ObjectInfo(sst.name, sst.size, "") for level in grown.levels for sst in level)
    Snapshots(objects, lambda: initial_version(meta.settings)).write_snapshot(laid_out(grown))
    return MetaStore(objects, "benchmark", _clock), objects


def _statements(folder: Path) -> Iterator[Statement]:
    for number in range(TABLES):
        yield CreateTable(f"t{number}", _FIELDS, (0,))
    yield _view()
    yield CreateSource("files", "json", _FIELDS, {"path": str(folder / "files")})


def _view() -> CreateView:
    scan = Scan("t0", (0, 1, 2), _FIELDS)
    count = AggCall(AggFunction.COUNT, "bigint", ())
    counted = Aggregate(scan, (Column(1, "int"),), (count,), (_FIELDS[1], Field("n", "bigint")))
    return CreateView("per_g", "SELECT g, count(*) AS n FROM t0 GROUP BY g", counted)


def _barrier(meta: MetaStore) -> Barrier:
    version = meta.read_latest()
    return meta.inject_barrier(version.epoch, BarrierPlan(mapping=version.mapping, log_end=version.log_end))


def _committed(meta: MetaStore, barrier: Barrier) -> float:
    """Seal and commit an epoch of FLUSHED SSTs. Returns the CPU seconds."""
    tables = [s.sections[0].table_id for s in meta.read_latest().levels[0][:FLUSHED]] or [1]
    made = tuple(_sst(table, 0, 1, barrier.epoch, "flushed", data_prefix(barrier.epoch)) for table in tables)
    began = time.process_time()
    meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, meta.writer, made)))
    return time.process_time() - began


def _downwards(version: HummockVersion) -> CompactionPlan | None:
    """A merge of an SST with the SSTs of its keys on the level below, or None if the version has none."""
    above = version.levels[BOTTOM - 1] if len(version.levels) > BOTTOM else ()
    if not above:
        return None
    sst = above[len(above) // 2]
    hull = hull_of((sst,))
    inputs = ((BOTTOM - 1, (sst,)), (BOTTOM, ssts_between(version.levels[BOTTOM], hull.first, hull.last)))
    return CompactionPlan(
        tuple(LevelInput(level, tuple(one.name for one in ssts)) for level, ssts in inputs),
        BOTTOM,
        tuple(hull_of(ssts) for _, ssts in inputs),
    )


def _outputs(version: HummockVersion, task: CompactionTask) -> list[SstInfo]:
    """The SSTs that a task's merge would make: one for each key range of its lowest level."""
    given = task.inputs[-1]
    names = set(given.ssts)
    ranges = {s.sections[0].first_key: s for s in version.levels[given.level] if s.name in names}
    return [
        msgspec.structs.replace(sst, name=f"{task_prefix(task.id)}{hash_of(first)}.sst")
        for first, sst in sorted(ranges.items())
    ]


def measure_units(folder: Path, n: int) -> dict[str, float]:
    """CPU seconds of epochs on `n` units, of all units together, and facts in bytes."""
    objects = SimulatedStore(folder / "store")
    MetaStore.init(objects, vnode_count=VNODES, units=n)
    meta = MetaStore(objects, "benchmark", _clock)
    costs: dict[str, float] = {}
    for statement in (CreateTable("t0", _FIELDS, (0,)), _view()):
        meta.append_log(f"benchmark/{statement.name}", msgspec.json.encode(statement))
    for step, rows in (("first epoch", 1), ("epoch of 1 row", 1), ("epoch of 10,000 rows", 10_000)):
        _insert(meta, rows)
        barrier = inject_barrier(meta)
        assert barrier is not None
        with _timed(costs, step):
            run_epoch(LocalRunner(), meta, barrier)
    costs["bytes of a barrier"] = objects.head(barrier_name(barrier.prev_epoch, barrier.attempt)).size
    costs["bytes of a manifest"] = objects.head(manifest_name(barrier.epoch)).size
    costs["SSTs of an epoch"] = len(meta.read_latest().levels[0]) / 3
    return costs


def _insert(meta: MetaStore, rows: int) -> None:
    numbers = pa.array(range(rows), pa.int32())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, (table := pa.table({field.name: numbers for field in _FIELDS})).schema) as writer:
        writer.write_table(table)
    payload = meta.put_payload(sink.getvalue().to_pybytes())
    meta.append_log(f"benchmark/{next(_ticks)}", msgspec.json.encode(Insert("t0", rows, payload)))


MEASURES: Mapping[str, Callable[[Path, int], dict[str, float]]] = {
    "SSTs": measure_ssts,
    "files": measure_files,
    "units": measure_units,
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="numbers of SSTs and of files")
    parser.add_argument("--units", type=int, nargs="+", default=list(UNITS), help="numbers of parallel units")
    parser.add_argument("--things", nargs="+", choices=MEASURES, default=list(MEASURES), help="default: all")
    parser.add_argument("--scratch", type=Path, help="folder for temporary files; default: the system's")
    parser.add_argument("--out", type=Path, help="the JSON file; default: benchmarks/results/scale-<time>.json")
    parser.add_argument("--measure", nargs=2, metavar=("THING", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tussock-scale-", dir=options.scratch) as root:
        if options.measure:
            thing, n = options.measure
            sys.stdout.buffer.write(msgspec.json.encode(MEASURES[thing](Path(root), int(n))))
            return 0
        found: dict[str, dict[int, dict[str, float]]] = {}
        for thing in options.things:
            sizes = options.units if thing == "units" else options.sizes
            found[thing] = {n: _in_a_process(thing, n) for n in (1, *sorted(sizes))}
            print(table_of(thing, found[thing]), flush=True)
    out = options.out or RESULTS / f"scale-{time.strftime('%Y%m%dT%H%M%S')}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(msgspec.json.format(msgspec.json.encode({"machine": machine(), "costs": found})))
    print(f"wrote {out}")
    return 0


def _in_a_process(thing: str, n: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks", "scale", "--measure", thing, str(n)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=dict[str, float])


def table_of(thing: str, costs: Mapping[int, Mapping[str, float]]) -> str:
    """A line per step: CPU seconds, or bytes, by size, and the exponent."""
    lines = [f"{thing:40}" + "".join(f"{n:>13,}" for n in costs) + f"{'exponent':>10}"]
    for step in next(iter(reversed(costs.values()))):
        is_size = "bytes" in step
        values = {n: found[step] for n, found in costs.items() if step in found}
        shown = {n: f"{value:,.0f}" if is_size else f"{value:.3f}" for n, value in values.items()}
        cells = "".join(f"{shown.get(n, ''):>13}" for n in costs)
        exponent = exponent_of({n: value / 1e6 if is_size else value for n, value in {1: 0.0, **values}.items()})
        lines.append(f"  {step:38}{cells}" + ("" if exponent is None else f"{exponent:>10.2f}"))
    return "\n".join(lines)
