"""`python -m benchmarks memory --gb 10`: private memory of a compaction and of a full scan of 10 GB. Budget: 1 GB each.

The store has `RUNS` epochs. Each is a sorted run over all keys, so that the merge has work everywhere: an epoch writes
its share of the keys, and a quarter of the next epoch's share, which that epoch writes again. Payloads are random
bytes, so stored rows are as large as rows in memory. Then a compactor merges everything in one task (`python -m
tussock.jobs.submitted compact --full`), and a reader scans the result. Each is a separate process, whose RssAnon
(/proc/<pid>/status; Linux) is sampled continuously. The scan is checked against computed sums.

`--row-bytes 1000000` measures wide rows: a table with fewer vnodes, so that each run still has rows of all of them.
`--nested` stores each payload as an array of four parts.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.barrier import BarrierPlan
from tussock.statestore.meta.catalog import Catalog, ColumnSpec, KeyColumn, Relation, RelationKind, TableSchema
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.names import data_prefix
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import open_object_store

BUDGET_BYTES = 1_000_000_000
RUNS = 8
PAYLOAD = 100  # bytes per row, by default
_AROUND = 14  # further bytes per row: key, number, filter
_BATCH_BYTES = 128 << 20  # of payload, ingested at once
_VNODES = 256
_TABLE = 1
_COLUMNS = (ColumnSpec("n", "bigint"), ColumnSpec("run", "bigint"), ColumnSpec("payload", "binary"))
_NESTED = (*_COLUMNS[:2], ColumnSpec("payload", "array<binary>"))
_PARTS = 4  # of a nested payload
_LOOK_S = 0.02
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Figures of a process that ended successfully."""

    peak: int  # maximum RssAnon, in bytes
    resident: int  # maximum resident size, with pages of files: `ru_maxrss` of getrusage(2), in bytes
    seconds: float
    output: str


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures. `right`: the scan found each key once, with its newest row."""

    stored: int  # bytes of SSTs before the compaction
    live: int  # bytes of SSTs after it
    compaction: ProcessFigures
    scan: ProcessFigures
    right: bool

    @property
    def within_budget(self) -> bool:
        return self.right and max(self.compaction.peak, self.scan.peak) <= BUDGET_BYTES


def make_state(
    objects: ObjectStore,
    rows_per_vnode: int,
    progress: Callable[[str], None] = lambda _: None,
    payload: int = PAYLOAD,
    vnodes: int = _VNODES,
    nested: bool = False,
) -> None:
    """Create a store of RUNS epochs on L0, the last one published, with `rows_per_vnode` live rows in each of `vnodes`.

    Row n of a vnode belongs to run n mod RUNS. A run also writes every 4th row of the next run.
    """
    MetaStore.init(objects, vnode_count=_VNODES)
    ticks = iter(range(1, 1 << 40))
    meta = MetaStore(objects, "memory", lambda: next(ticks) * 1_000)
    random = np.random.default_rng(1)
    columns = _NESTED if nested else _COLUMNS
    schema = TableSchema(_TABLE, "t", columns, (KeyColumn(0),), (0,))
    catalog = Catalog((Relation(1, "t", RelationKind.VIEW, columns, msgspec.Raw(b"{}"), (schema,)),), 2, 2)
    numbers = np.arange(rows_per_vnode)
    most = min(500_000, RUNS * _BATCH_BYTES // payload)
    group = max(1, min(vnodes, most // rows_per_vnode))  # vnodes per batch
    for run in range(RUNS):
        version = meta.read_latest()
        barrier = meta.inject_barrier(
            version.epoch, BarrierPlan(mapping=version.mapping, log_end=0, catalog=catalog if run == 0 else None)
        )
        early = (numbers % RUNS == run + 1) & (numbers // RUNS % 4 == 0)
        mine = numbers[(numbers % RUNS == run) | early]
        ssts = []
        for start in range(0, vnodes, group):
            owners = np.repeat(np.arange(start, min(start + group, vnodes), dtype=np.uint16), len(mine))
            n = pa.array(np.tile(mine, len(owners) // len(mine)))
            count = len(n)
            rows = {
                "key": encode_keys(_TABLE, owners, [n], schema.key),
                "op": pa.array(np.ones(count, np.uint8)),
                "n": n,
                "run": pa.array(np.full(count, run)),
                "payload": _payloads(count, payload, nested, random),
            }
            ssts += batch_ingest(
                objects, [SealedBatch(_TABLE, pa.table(rows))], barrier.epoch, data_prefix(barrier.epoch)
            )
        meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, meta.writer, tuple(ssts))))
        meta.publish(barrier.epoch)
        progress(f"run {run + 1} of {RUNS}: {sum(sst.size for sst in ssts):,} bytes")
    meta.apply_retention(1)


def _payloads(count: int, size: int, nested: bool, random: np.random.Generator) -> pa.Array:
    """(count,): random values of `size` bytes each."""
    parts = _PARTS if nested else 1
    ends = np.arange(count * parts + 1, dtype=np.int32) * (size // parts)
    data = pa.py_buffer(random.bytes(int(ends[-1])))
    values = pa.Array.from_buffers(pa.binary(), count * parts, [None, pa.py_buffer(ends), data])
    return pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32) * parts, values) if nested else values


def scan_state(uri: str) -> tuple[int, int, int]:
    """(rows, sum of their numbers, sum of their runs) of a full scan."""
    objects = open_object_store(uri)
    version = MetaStore(objects, "scan", lambda: 0).read_latest()
    rows = numbers = runs = 0
    for part in HummockStore(objects, version).iter_rows(_TABLE, None, None, version.epoch):
        rows, numbers, runs = (
            rows + part.num_rows,
            numbers + pc.sum(part["n"]).as_py(),
            runs + pc.sum(part["run"]).as_py(),
        )
    return rows, numbers, runs


def watch(command: Sequence[str]) -> ProcessFigures:
    """Run a process and sample its private memory. Raises RuntimeError, with the end of its output, if it fails."""
    started, peak, resident = time.perf_counter(), 0, 0
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, cwd=ROOT)
        while process.poll() is None:
            peak = max(peak, rss_anon(process.pid))
            resident = max(resident, memory_of(process.pid, "VmHWM"))
            time.sleep(_LOOK_S)
        printed.seek(0)
        output = printed.read()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {process.returncode}:\n{output[-2000:]}")
    return ProcessFigures(peak, resident, time.perf_counter() - started, output)


def rss_anon(pid: int) -> int:
    """Private memory of a process, in bytes; 0 if it has ended. Linux only."""
    return memory_of(pid, "RssAnon")


def memory_of(pid: int, counter: str) -> int:
    """A counter of a process's memory, in bytes; 0 if it has ended. Linux only.

    VmHWM is the highest resident size so far, with pages of files.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has just ended
        return 0
    line = next((line for line in status.splitlines() if line.startswith(f"{counter}:")), f"{counter}: 0 kB")
    return int(line.split()[1]) * 1024


def measure(
    folder: Path,
    gigabytes: float,
    progress: Callable[[str], None] = lambda _: None,
    payload: int = PAYLOAD,
    nested: bool = False,
) -> Figures:
    """Create a store of about `gigabytes` of live state in `folder`, in rows of `payload` bytes; compact and scan it.

    Needs 2.3 times that space.

    Cost: about a minute per gigabyte on two cores.
    """
    objects = LocalObjectStore(folder / "store")
    rows = max(RUNS, int(gigabytes * 1e9 / (payload + _AROUND)))
    vnodes = min(_VNODES, rows // RUNS)
    rows_per_vnode = rows // vnodes
    make_state(objects, rows_per_vnode, progress, payload, vnodes, nested)
    stored = _bytes_in(objects)
    compaction = watch([sys.executable, "-m", "tussock.jobs.submitted", "compact", "--store", objects.uri, "--full"])
    live = _bytes_in(objects)
    progress(f"compacted in {compaction.seconds:.0f} s")
    scan = watch([sys.executable, "-m", "benchmarks.memory", "--scan", objects.uri])
    found = tuple(int(word) for word in scan.output.split()[-3:])
    numbers = np.arange(rows_per_vnode)
    expected = (vnodes * rows_per_vnode, vnodes * int(numbers.sum()), vnodes * int((numbers % RUNS).sum()))
    return Figures(stored, live, compaction, scan, found == expected)


def _bytes_in(objects: ObjectStore) -> int:
    version = MetaStore(objects, "reader", lambda: 0).read_latest()
    return sum(sst.size for level in version.levels for sst in level)


def show_figures(found: Figures) -> str:
    """The figures with their budget, as text."""
    lines = [
        f"{found.stored:,} bytes in {RUNS} runs, {found.live:,} after compaction; budget "
        f"{BUDGET_BYTES / 1e6:,.0f} MB of RssAnon each"
    ]
    for name, watched, size in (("compaction", found.compaction, found.stored), ("full scan", found.scan, found.live)):
        rate = size / watched.seconds / 1e6
        lines.append(
            f"  {name:<10} {watched.peak / 1e6:>6,.0f} MB ({watched.resident / 1e6:,.0f} MB with pages of files), "
            f"{watched.seconds:>5,.0f} s, {rate:,.0f} MB/s read"
        )
    lines.append(
        "  the scan found each key once, with its newest row" if found.right else "  THE SCAN FOUND WRONG ROWS"
    )
    return "\n".join([*lines, "  within budget" if found.within_budget else "  MISSED"])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks memory", description="Measure private memory of a compaction and of a full scan."
    )
    parser.add_argument("--gb", type=float, default=1.0, help="size of the live state (default 1)")
    parser.add_argument("--row-bytes", type=int, default=PAYLOAD, help=f"size of a row (default {PAYLOAD})")
    parser.add_argument("--nested", action="store_true", help="store each row's bytes as an array")
    parser.add_argument("--scratch", type=Path, help="folder of the store; default: a temporary folder")
    parser.add_argument("--scan", metavar="URI", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.scan:
        print(*scan_state(chosen.scan))
        return 0
    with tempfile.TemporaryDirectory(prefix="tussock-memory-", dir=chosen.scratch) as folder:
        found = measure(Path(folder), chosen.gb, lambda line: print(line, flush=True), chosen.row_bytes, chosen.nested)
    print(show_figures(found))
    return 0 if found.within_budget else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
