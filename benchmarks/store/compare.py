"""Runs the parts on all engines in turns, with one process for each, and compares their figures.

RocksDB is measured at the full size. SlateDB's Python binding makes one call per key, so it and Tussock are measured at
a tenth of every size for their own lines. All processes have the same limits, cache sizes and data; no two of them run
at the same time.
"""

import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.report import Comparison, Figure, Series
from benchmarks.store.requests import figures_of_requests
from benchmarks.store.task import PartResult, Task, encode_task
from benchmarks.store.workload import Size, Workload, make_workload

OURS = "tussock"
_BY_FILE = "rocksdb-file"  # another way to write; everything else equals "rocksdb"
REPEATS = {"ingest": 2, "warm": 3, "prefixes": 2}  # within a process; one for all other parts
PARTS = ("ingest", "cold-present", "cold-absent", "warm", "prefixes", "scan", "compact")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Found:
    """All series of one engine at one size, by part and name, over its processes, with the last facts."""

    engine: str
    seconds: dict[str, tuple[float, ...]]
    cpu_seconds: dict[str, tuple[float, ...]]
    facts: dict[str, dict[str, float]]

    def series(self, name: str) -> Series:
        """One series as a side of a comparison."""
        return Series(self.engine, self.seconds[name])


def compare_stores(
    folder: Path, size: Size, runs: int, parts: Sequence[str], progress: Progress
) -> tuple[list[Comparison], list[Figure]]:
    """Run everything: RocksDB at `size`, SlateDB at a tenth of it, and requests under latency.

    Args:
        folder: for data and stores; 2 GB at the default size.
        runs: processes per engine and part.
        parts: some of PARTS.
    """
    load = make_workload(folder / "data", size)
    progress(f"wrote data of {size.rows:,} rows")
    measured = {engine: _build(folder, load, engine, progress) for engine in (OURS, "rocksdb")}
    found = _measure(folder, load, {OURS: OURS, "rocksdb": "rocksdb", _BY_FILE: "rocksdb"}, runs, parts, progress)
    small = make_workload(folder / "small" / "data", size.tenth())
    measured_small = {engine: _build(folder / "small", small, engine, progress) for engine in (OURS, "slatedb")}
    found_small = _measure(folder / "small", small, {OURS: OURS, "slatedb": "slatedb"}, runs, parts, progress)
    compared = [
        *_against_rocksdb(size, found, parts),
        *_against(size.tenth(), found_small[OURS], found_small["slatedb"], parts),
    ]
    figures = [*_build_figures(size, measured), *_build_figures(size.tenth(), measured_small)]
    if "compact" in parts:
        figures += [
            *_compaction_figures(size, found, "rocksdb"),
            *_compaction_figures(size.tenth(), found_small, "slatedb"),
        ]
    if "warm" in parts:
        reads = _run(_task(folder, load, OURS, OURS, "block-reads"))
        figures.append(Figure("absent keys answered without reading a block", 100 * reads.facts["share"], "%", 99))
    figures += figures_of_requests(_run(_task(folder, load, OURS, OURS, "requests")))
    return compared, figures


def _build(folder: Path, load: Workload, engine: str, progress: Progress) -> PartResult:
    found = _run(_task(folder, load, engine, engine, "build"))
    ingests, (compaction,) = found.seconds["ingest"], found.seconds["compaction"]
    size = found.facts["bytes"]
    progress(
        f"{engine}: {load.size.rows:,} rows in {sum(ingests):.1f} s, compacted in {compaction:.1f} s, {size:,.0f} bytes"
    )
    return found


def _measure(
    folder: Path, load: Workload, engines: dict[str, str], runs: int, parts: Sequence[str], progress: Progress
) -> dict[str, Found]:
    """Run parts on engines (by their state folders) in turns."""
    seconds: dict[str, dict[str, list[float]]] = {engine: defaultdict(list) for engine in engines}
    cpu_seconds: dict[str, dict[str, list[float]]] = {engine: defaultdict(list) for engine in engines}
    facts: dict[str, dict[str, dict[str, float]]] = {engine: {} for engine in engines}
    for part in parts:
        taking_part = {engine: state for engine, state in engines.items() if engine != _BY_FILE or part == "ingest"}
        for _ in range(runs):
            for engine, state in taking_part.items():
                answer = _run(_task(folder, load, engine, state, part))
                facts[engine][part] = answer.facts
                for kept, measured in ((seconds, answer.seconds), (cpu_seconds, answer.cpu_seconds)):
                    for name, values in measured.items():
                        kept[engine][f"{part} {name}"] += values
        for engine in taking_part:
            shown = ", ".join(
                f"{k} {statistics.median(v):.3f} s" for k, v in seconds[engine].items() if k.startswith(f"{part} ")
            )
            progress(f"{engine}, {load.size.rows:,} rows: {shown}")
    return {
        engine: Found(engine, _tuples(seconds[engine]), _tuples(cpu_seconds[engine]), facts[engine])
        for engine in engines
    }


def _tuples(series: dict[str, list[float]]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(values) for name, values in series.items()}


def _against_rocksdb(size: Size, found: dict[str, Found], parts: Sequence[str]) -> list[Comparison]:
    ours, theirs = found[OURS], found["rocksdb"]
    budgets = {"ingest ingest": 3.0, "warm present": 3.0, "scan scan": 2.0}
    compared = _against(size, ours, theirs, parts, budgets)
    if "ingest" in parts:  # the budget applies to the faster way to write
        ways = sorted((found[engine] for engine in _WAYS), key=lambda way: way.series("ingest ingest").median)
        compared[:1] = [
            Comparison(
                compared[0].what,
                compared[0].ours,
                Series(f"rocksdb, {_WAYS[way.engine]}", way.seconds["ingest ingest"]),
                3.0 if way is ways[0] else None,
                _facts("ingest", "ingest ingest", ours, way),
            )
            for way in ways
        ]
    if "warm" in parts:
        absent, present = ours.seconds["warm absent"], ours.seconds["warm present"]
        what = f"multi_get, warm, {size}: absent keys against present ones"
        compared.append(Comparison(what, Series("tussock, absent", absent), Series("tussock, present", present), 3.0))
    return compared


_WAYS = {"rocksdb": "WriteBatch and flush", _BY_FILE: "sorted SstFileWriter and ingest"}


def _against(
    size: Size, ours: Found, theirs: Found, parts: Sequence[str], budgets: dict[str, float] | None = None
) -> list[Comparison]:
    """One comparison per series."""
    lines = {
        "ingest": {
            "ingest ingest": f"batch_ingest of {size.batch:,} rows, random key order, from Arrow, flush included"
        },
        "cold-present": {"cold-present present": f"multi_get, cold, {size} present"},
        "cold-absent": {"cold-absent absent": f"multi_get, cold, {size} absent"},
        "warm": {"warm present": f"multi_get, warm, {size} present", "warm absent": f"multi_get, warm, {size} absent"},
        "prefixes": {
            "prefixes prefixes": f"prefix scans: {size.prefixes:,} prefixes of 10 to 1,000 rows, {size.rows:,} rows"
        },
        "scan": {"scan scan": f"full scan to Arrow, {size.rows:,} rows"},
        "compact": {
            "compact compaction": f"compaction of 4 overlapping epochs of {size.batch // 2:,} rows into one run"
        },
    }
    return [
        Comparison(
            what, ours.series(name), theirs.series(name), (budgets or {}).get(name), _facts(part, name, ours, theirs)
        )
        for part in PARTS
        if part in parts
        for name, what in lines[part].items()
    ]


def _facts(part: str, name: str, ours: Found, theirs: Found) -> dict[str, object]:
    facts: dict[str, object] = {}
    for side in (ours, theirs):
        facts[f"{side.engine}, CPU s"] = statistics.median(side.cpu_seconds[name])
        facts |= {f"{side.engine}, {fact}": value for fact, value in side.facts[part].items()}
    return facts


def _build_figures(size: Size, built: dict[str, PartResult]) -> list[Figure]:
    figures = []
    for engine, found in built.items():
        whole = {"compaction_s": found.seconds["compaction"][0], "ingest_s": sum(found.seconds["ingest"])}
        figures.append(
            Figure(f"size on disk, {size.rows:,} rows, {engine}", found.facts["bytes"] / 1e6, "MB", facts=whole)
        )
    return figures


def _compaction_figures(size: Size, found: dict[str, Found], peer: str) -> list[Figure]:
    """Throughput by wall time, and by CPU time of all threads, which other work on the machine affects less."""
    figures = []
    for side in (found[OURS], found[peer]):
        facts, name = side.facts["compact"], "compact compaction"
        for seconds, unit in ((side.seconds[name], "M rows/s"), (side.cpu_seconds[name], "M rows/CPU s")):
            taken = statistics.median(seconds)
            what = f"compaction of 4 overlapping epochs of {size.batch // 2:,} rows, {side.engine}"
            figures.append(
                Figure(what, facts["rows in"] / taken / 1e6, unit, facts={"MB/s read": facts["bytes in"] / taken / 1e6})
            )
    return figures


def _task(folder: Path, load: Workload, engine: str, state: str, part: str) -> Task:
    return Task(engine, part, load.folder, folder / state, load.size, REPEATS.get(part, 1))


def _run(task: Task) -> PartResult:
    """Run one part in a separate process."""
    command = [sys.executable, "-m", "benchmarks.store.parts", encode_task(task)]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    if answer.returncode:
        raise RuntimeError(f"{task.engine} failed in {task.part}:\n{answer.stderr}")
    return msgspec.json.decode(answer.stdout.splitlines()[-1], type=PartResult)
