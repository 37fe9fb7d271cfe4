"""Keyed sources: a dump of which few rows changed, and few changes of many keys. No Spark.

    python -m benchmarks keyed-sources

* A dump of `--rows` rows in which 1,000 changed, against reading the file with DuckDB into Arrow.
* An upsert of 1,000 keys at each size of `--sizes`: the ratio to the smallest size. Budget: 1.3.
"""

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.jobs.driver.embedded import append, new_store
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import AggCall, Aggregate, Column, Field, Literal, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, KeyedBy
from tussock.statestore.meta.store import MetaStore

BUDGET = 1.3
CHANGED, EPOCHS = 1_000, 5
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
        return f"{self.wall:.2f} s ({self.cpu:.2f} s CPU)"

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


def run_epoch(meta: MetaStore) -> tuple[Seconds, int]:
    """Take the next file: the seconds, and the rows that views receive."""
    with Watch() as watch:
        (summary,) = advance_store(LocalRunner(), meta)
    return watch.seconds, summary.rows["customers"].rows_out


def store_of(work: Path, changes: str, rows: int) -> tuple[MetaStore, Path]:
    """A store with a source of this many rows, and a view over it."""
    folder = work / "in"
    folder.mkdir(parents=True)
    pq.write_table(table_of(np.arange(rows), np.zeros(rows, np.int64)), folder / "000.parquet")
    meta = new_store(work / "store", units=2)
    append(meta, source_at(folder, changes), CreateView("per_city", "SELECT …", _VIEW))
    print(f"{changes} of {rows:,} rows: first epoch {run_epoch(meta)[0]}", flush=True)
    return meta, folder


def measure_dump(work: Path, rows: int) -> None:
    """Print the seconds of a dump with CHANGED changes, and those of DuckDB."""
    meta, folder = store_of(work, "snapshot", rows)
    seconds, read = list[Seconds](), list[Seconds]()
    for n in range(1, 4):
        version = np.zeros(rows, np.int64)
        version[(np.arange(CHANGED) * (rows // CHANGED))] = n
        path = str(folder / f"{n:03}.parquet")
        pq.write_table(table_of(np.arange(rows), version), path)
        with Watch() as watch:
            duckdb.sql(f"SELECT * FROM '{path}'").to_arrow_table()
        read.append(watch.seconds)
        took, sent = run_epoch(meta)
        seconds.append(took)
        print(f"  dump {n}: {took}, {sent:,} rows sent to views; DuckDB reads the file in {read[-1]}", flush=True)
    took, alone = Seconds.median_of(seconds), Seconds.median_of(read)
    print(f"  median {took}, DuckDB {alone}: {took.cpu / alone.cpu:.1f} x its CPU time")
    print(f"  memory of the process at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MB")


def measure_upserts(work: Path, rows: int) -> float:
    """Return the median seconds of an epoch with CHANGED upserts."""
    meta, folder = store_of(work, "upsert", rows)
    seconds = []
    for n in range(1, EPOCHS + 2):
        ids = (np.arange(CHANGED) * (rows // CHANGED) + n) % rows
        pq.write_table(table_of(ids, np.full(CHANGED, n)), folder / f"{n:03}.parquet")
        seconds.append(run_epoch(meta)[0].wall)
    median = statistics.median(seconds[1:])  # the first epoch after the load warms the caches
    print(f"  {CHANGED:,} changes: median {median:.3f} s of {[round(s, 3) for s in seconds]}", flush=True)
    return median


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if the upserts miss the budget."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks keyed-sources", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the dump; 0: no dump")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000_000, 10_000_000], help="keys before upserts")
    options = parser.parse_args(arguments)
    if options.rows:
        with tempfile.TemporaryDirectory(prefix="tussock-dumps-") as work:
            measure_dump(Path(work), options.rows)
    medians = {}
    for rows in options.sizes:
        with tempfile.TemporaryDirectory(prefix="tussock-upserts-") as work:
            medians[rows] = measure_upserts(Path(work), rows)
    missed = False
    for rows, median in medians.items():
        ratio = median / next(iter(medians.values()))
        missed |= ratio > BUDGET
        print(f"{rows:,} keys: {median:.3f} s, {ratio:.2f} x (budget {BUDGET})")
    return int(missed)
