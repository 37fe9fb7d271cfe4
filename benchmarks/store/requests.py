"""Requests, bytes and seconds of reads and writes over S3 with injected latency.

Peers cannot be slowed in the same way.
"""

import shutil
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.report import Figure
from benchmarks.store.latency import LatencyObjectStore, RequestCounts
from benchmarks.store.task import PartResult, Stopwatch, Task
from benchmarks.store.tussock import Tussock
from benchmarks.store.workload import Workload
from tussock.statestore.hummock.block_source import ReadMode, Unit
from tussock.statestore.hummock.shared_buffer import BufferedSource, Section
from tussock.statestore.hummock.sorted_keys import Positions
from tussock.statestore.objectstore.local import LocalObjectStore

LATENCY_MS, MBPS = 30.0, 100.0
_FEW = 200  # absent keys of the call whose block reads are counted


def measure_requests(task: Task, load: Workload) -> PartResult:
    """Measure reads of the built state, each with empty caches, and an ingest, through a LatencyObjectStore.

    Returns: seconds by operation; facts `<what>: requests` and `<what>: bytes`.
    """
    watch = Stopwatch()
    facts: dict[str, float] = {}
    slow = LatencyObjectStore(LocalObjectStore(task.state), LATENCY_MS, MBPS)
    engine = Tussock(task.state, slow)
    engine.open()
    few = load.present.slice(0, 1000)
    groups = load.prefixes["g"].combine_chunks().slice(0, 100)
    reads: dict[str, Callable[[], object]] = {
        f"multi_get of {few.num_rows:,} keys": lambda: engine.multi_get(few),
        f"multi_get of {load.present.num_rows:,} keys": lambda: engine.multi_get(load.present),
        f"multi_get of {load.absent.num_rows:,} absent keys": lambda: engine.multi_get(load.absent),
        f"scan of {len(groups)} prefixes": lambda: engine.scan_prefixes(groups),
    }
    for what, work in reads.items():
        engine.reopen()
        before = slow.counts.copy()
        watch.measure(what, work)
        _count(facts, what, slow, before)
    folder = task.state.with_name(f"{task.state.name}-requests")
    shutil.rmtree(folder, ignore_errors=True)
    slow = LatencyObjectStore(LocalObjectStore(folder), LATENCY_MS, MBPS)
    engine = Tussock(folder, slow)
    engine.open()
    engine.ingest(load.rows.slice(0, 1000))
    for rows in (1000, load.size.batch):
        batch = load.rows.slice(load.size.rows - rows, rows)
        before = slow.counts.copy()
        what = f"ingest and commit of {rows:,} rows"
        watch.measure(what, partial(engine.ingest, batch))
        _count(facts, what, slow, before)
    shutil.rmtree(folder)
    return watch.result(facts)


def measure_block_reads(task: Task, load: Workload) -> PartResult:
    """Count the absent keys that reach a block, in calls of so few keys that no two share a block.

    Returns: fact `share`: the fraction of absent keys answered without reading a block, 0 to 1.
    """
    engine = Tussock(task.state)
    engine.open()
    counting = engine.store.source = _CountingSource(engine.store.source.stored)
    for start in range(0, load.size.keys, _FEW):
        engine.multi_get(load.absent.slice(start, _FEW))
    return PartResult({}, {"share": 1 - counting.reads / load.size.keys, "reads": counting.reads})


class _CountingSource(BufferedSource):
    """Counts the blocks that reads request, from any source."""

    reads = 0

    def read_units(
        self, requests: Sequence[tuple[Section, Positions]], until: int, mode: ReadMode = ReadMode.DENSE
    ) -> list[list[Unit]]:
        self.reads += sum(len(blocks) for _, blocks in requests)
        return super().read_units(requests, until, mode)


def figures_of_requests(found: PartResult) -> list[Figure]:
    """One figure per operation: its seconds, with requests and bytes as facts."""
    figures = []
    for what, (seconds,) in found.seconds.items():
        requests, size = int(found.facts[f"{what}: requests"]), int(found.facts[f"{what}: bytes"])
        shown = f"{what}, {LATENCY_MS:g} ms, {MBPS:g} MB/s: {requests:,} requests, {size / 1e6:.1f} MB"
        figures.append(Figure(shown, seconds, "s", facts={"requests": requests, "bytes": size}))
    return figures


def _count(facts: dict[str, float], what: str, store: LatencyObjectStore, before: RequestCounts) -> None:
    counts = store.counts.since(before)
    facts[f"{what}: requests"] = sum(counts.requests.values())
    facts[f"{what}: bytes"] = sum(counts.sizes.values())
