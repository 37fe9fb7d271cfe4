"""The cost of expressions that Spark computes: two JSON extractions and a part of a URL.

    python -m benchmarks by-spark --rows 1000000

The peers are Spark's own SELECT and a view with kernels only. Input is Parquet, in one warm Spark session, and both
sides write their result. A first load is a CREATE and an epoch. Spark reads the files, computes the SELECT and writes
Parquet.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tussock import Session
from tussock.jobs.spark.session import build_spark

BY_SPARK = (
    "SELECT id, get_json_object(doc, '$.user') AS user, get_json_object(doc, '$.n') AS n, "
    "parse_url(url, 'HOST') AS host FROM events"
)
BY_KERNELS = (
    "SELECT id, substring(doc, 10, 4) AS user, upper(doc) AS n, substring_index(url, '/', 3) AS host FROM events"
)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks by-spark", description="Measure expressions that Spark computes."
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the source (default 1000000)")
    parser.add_argument("--runs", type=int, default=3, help="runs per side (default 3)")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tussock-by-spark-") as folder:
        measure(Path(folder), chosen.rows, chosen.runs)
    return 0


def measure(folder: Path, rows: int, runs: int) -> None:
    """Time each side in turns, after one uncounted run of each."""
    data = folder / "events"
    data.mkdir()
    for part in range(2):
        pq.write_table(events(part * rows // 2, rows // 2), data / f"{part}.parquet")
    spark = build_spark("by-spark")
    spark.sparkContext.setLogLevel("ERROR")
    spark.read.parquet(str(data)).createOrReplaceTempView("events")
    sides: dict[str, Callable[[int], float]] = {
        "a view, by Spark": lambda run: first_load(folder / f"s{run}", data, BY_SPARK),
        "a view, by kernels": lambda run: first_load(folder / f"k{run}", data, BY_KERNELS),
        "Spark alone": lambda run: timed(lambda: spark.sql(BY_SPARK).write.parquet(str(folder / f"p{run}"))),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(runs + 1):
        for name, side in sides.items():
            seconds[name].append(side(run))
    for name, found in seconds.items():
        print(f"{name:20} {statistics.median(found[1:]):6.2f} s  (first, cold: {found[0]:.2f} s)")
    spark.stop()


def first_load(store: Path, data: Path, select: str) -> float:
    """Seconds of a view's first epoch over the files."""
    with Session(str(store), runner="spark") as session:
        session.execute(f"CREATE SOURCE events USING parquet OPTIONS (path '{data}', retain 'none')")
        session.execute(f"CREATE MATERIALIZED VIEW v AS {select}")
        return timed(session.flush)


def timed(work: Callable[[], object]) -> float:
    """Seconds of a call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def events(first: int, rows: int) -> pa.Table:
    """Rows with a small JSON document and a URL."""
    ids = np.arange(first, first + rows)
    docs = [f'{{"user": "u{i % 5000}", "n": {i % 97}, "tags": ["a", "b"]}}' for i in ids.tolist()]
    urls = [f"https://host{i % 300}.example.org/path/{i}?q={i % 11}" for i in ids.tolist()]
    return pa.table({"id": ids, "doc": docs, "url": urls})
