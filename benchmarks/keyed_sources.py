"""Keyed sources: a dump of which few rows changed, and few changes of many keys. No Spark.

    python -m benchmarks keyed-sources

* A dump of `--rows` rows in which 1,000 changed, against reading the file with DuckDB into Arrow: CPU time, and the
  greatest memory of the process during each epoch. `--memory` is `[epoch] memory`.
* An upsert of 1,000 keys at each size of `--sizes`, in new processes, as a scheduler runs epochs, and in one process
  that stays: CPU time, and the ratio to the smallest size. Budget of new processes: 1.3. Also the time and the memory
  of the first load of that many upserts.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.jobs.driver.embedded import append, new_store, open_store
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import AggCall, Aggregate, Column, Field, Literal, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, KeyedBy
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.statestore.meta.store import MetaStore

BUDGET = 1.3
CHANGED, EPOCHS = 1_000, 5
_WRITTEN_ROWS = 1 << 20  # of a dump at once
_FIELDS = (Field("id", "bigint"), Field("v", "int"), Field("city", "string"), Field("amount", "double"))
_GROUPED = (Field("city", "string"), Field("rows", "bigint"))
_VIEW = Aggregate(
    Scan("customers", (0, 2), (_FIELDS[0], _FIELDS[2])),
    (Column(1, "string"),),
    (AggCall("Count", "bigint", (Literal(1, "int"),)),),
    _GROUPED,
)


def table_of(ids: np.ndarray, version: np.ndarray) -> pa.Table:
    """The rows of some keys: their values depend on the key and its version."""
    cities = pa.array([f"city {n}" for n in range(1_000)]).take(pa.array((ids * 7 + version) % 1_000))
    return pa.table({"id": ids, "v": version.astype(np.int32), "city": cities, "amount": ids * 0.5 + version})


def source_at(folder: Path, changes: str) -> CreateSource:
    """A keyed source of Parquet files."""
    options = {"path": str(folder), "retain": "none", "changes": changes, "may_be_missing": "true"}
    return CreateSource("customers", "parquet", _FIELDS, options, keyed=KeyedBy((0,)))


@dataclass(frozen=True)
class Seconds:
    """Of the clock, and of this process's CPU time, which a busy machine affects less."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.3f} s ({self.cpu:.3f} s CPU)"

    @staticmethod
    def median_of(some: Sequence["Seconds"]) -> "Seconds":
        """The median of each."""
        return Seconds(statistics.median(s.wall for s in some), statistics.median(s.cpu for s in some))


class Watch:
    """Measures the work inside of a `with`."""

    seconds: Seconds

    def __enter__(self) -> "Watch":
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._began
        self.seconds = Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def write_dump(path: str, rows: int, version: int) -> None:
    """Write a dump in which CHANGED rows have a version."""
    changed, writer = rows // CHANGED, None
    for start in range(0, rows, _WRITTEN_ROWS):
        ids = np.arange(start, min(rows, start + _WRITTEN_ROWS))
        table = table_of(ids, np.where((ids % changed == 0) & (ids < changed * CHANGED), version, 0))
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def read_by_duckdb(path: str) -> Seconds:
    """Read a file into Arrow."""
    with Watch() as watch:
        duckdb.read_parquet(path).to_arrow_table()
    return watch.seconds


def reset_peak() -> None:
    """Let the kernel measure the greatest memory of this process from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> int:
    """The greatest resident memory since the last reset."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) >> 10


def run_epoch(meta: MetaStore, memory: int | None = None) -> tuple[Seconds, int]:
    """Take the next file: the seconds, and the rows that views receive."""
    with Watch() as watch:
        (summary,) = advance_store(LocalRunner(FlushPolicy(memory=memory)), meta)
    return watch.seconds, summary.rows["customers"].rows_out


def store_of(work: Path, changes: str, rows: int, memory: int | None = None) -> None:
    """Make a store with a source of this many rows, and a view over it, and print the cost."""
    folder = work / "in"
    folder.mkdir(parents=True)
    with another_process() as other:
        other.submit(write_dump, str(folder / "000.parquet"), rows, 0).result()
    meta = new_store(work / "store", units=2)
    append(meta, source_at(folder, changes), CreateView("per_city", "SELECT …", _VIEW))
    reset_peak()
    took, _ = run_epoch(meta, memory)
    print(f"{changes} of {rows:,} rows: first epoch {took}, memory at most {peak_mb():,} MB", flush=True)


def another_process() -> ProcessPoolExecutor:
    """A process whose memory does not count."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def load_store(work: Path, changes: str, rows: int, memory: int | None) -> MetaStore:
    """Make the store, in another process, because a first load needs more memory than later epochs."""
    with another_process() as other:
        other.submit(store_of, work, changes, rows, memory).result()
    return open_store(work / "store", "a later run")


def measure_dump(work: Path, rows: int, memory: int | None) -> None:
    """Print the seconds and the memory of a dump with CHANGED changes, and the seconds of DuckDB."""
    seconds, read = list[Seconds](), list[Seconds]()
    meta = load_store(work, "snapshot", rows, memory)
    for n in range(1, 4):
        path = str(work / f"in/{n:03}.parquet")
        with another_process() as other:
            other.submit(write_dump, path, rows, n).result()
            read.append(other.submit(read_by_duckdb, path).result())
        reset_peak()
        took, sent = run_epoch(meta, memory)
        seconds.append(took)
        print(
            f"  dump {n}: {took}, memory at most {peak_mb():,} MB, {sent:,} rows sent to views; "
            f"DuckDB reads the file in {read[-1]}",
            flush=True,
        )
    took, alone = Seconds.median_of(seconds), Seconds.median_of(read)
    print(f"  median {took}, DuckDB {alone}: {took.cpu / alone.cpu:.1f} x its CPU time")


def write_changes(work: Path, rows: int, number: int) -> None:
    """Write CHANGED upserts of keys that earlier files did not change."""
    ids = (np.arange(CHANGED) * (rows // CHANGED) + number) % rows
    pq.write_table(table_of(ids, np.full(CHANGED, number)), work / "in" / f"{number:03}.parquet")


def run_new_process(work: Path) -> Seconds:
    """Take the next file in a new process, without the seconds of its start and its imports."""
    with another_process() as other:
        return other.submit(open_and_run, work).result()


def open_and_run(work: Path) -> Seconds:
    """Open the store, and take the next file."""
    with Watch() as watch:
        run_epoch(open_store(work / "store", f"{time.time_ns()}"))
    return watch.seconds


def measure_upserts(work: Path, rows: int, memory: int | None) -> tuple[Seconds, Seconds]:
    """Return the median seconds of epochs with CHANGED upserts: in new processes, and in one that stays."""
    meta, new, staying = load_store(work, "upsert", rows, memory), list[Seconds](), list[Seconds]()
    for number in range(1, EPOCHS + 2):
        write_changes(work, rows, number)
        new.append(run_new_process(work))
    for number in range(EPOCHS + 2, 2 * EPOCHS + 3):
        write_changes(work, rows, number)
        staying.append(run_epoch(meta)[0])
    # The first epoch of either fills a cache: the pages of the disk, and the memory of this process.
    return Seconds.median_of(new[1:]), Seconds.median_of(staying[1:])


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if the upserts miss the budget."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks keyed-sources", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the dump; 0: no dump")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000_000, 10_000_000], help="keys before upserts")
    parser.add_argument("--memory", type=int, default=512, help="[epoch] memory for dumps and loads, in MB; 0: none")
    options = parser.parse_args(arguments)
    if options.rows:
        with tempfile.TemporaryDirectory(prefix="tussock-dumps-") as work:
            measure_dump(Path(work), options.rows, options.memory << 20 or None)
    medians = dict[int, tuple[Seconds, Seconds]]()
    for rows in options.sizes:
        with tempfile.TemporaryDirectory(prefix="tussock-upserts-") as work:
            medians[rows] = measure_upserts(Path(work), rows, options.memory << 20 or None)
    missed = False
    smallest = next(iter(medians.values()), None)
    for rows, seconds in medians.items():
        assert smallest is not None
        ratios = [one.cpu / least.cpu for one, least in zip(seconds, smallest, strict=True)]
        missed |= ratios[0] > BUDGET
        print(
            f"{rows:,} keys, {CHANGED:,} changes: new process {seconds[0]}, {ratios[0]:.2f} x (budget {BUDGET}); "
            f"staying process {seconds[1]}, {ratios[1]:.2f} x"
        )
    return int(missed)
