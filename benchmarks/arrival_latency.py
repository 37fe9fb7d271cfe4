"""From a file's arrival to readers: a resident process, and Structured Streaming, each with a trigger per second.

    python -m benchmarks arrival-latency
    python -m benchmarks arrival-latency --rows 10000000 --files 100

Both sides group the same rows by key. A file arrives at a random moment after readers have seen the one before. The
streaming query keeps its state in RocksDB and appends the changed groups to Parquet files.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from benchmarks.report import Figure, figures_of
from benchmarks.streaming import STREAMING
from tussock.jobs.settings.process import open_meta
from tussock.jobs.spark.session import build_spark

TRIGGER_S = 1.0
WARM_UP = 5
PATIENCE_S = 120.0
SQL = """CREATE SOURCE orders (k bigint, amount bigint) USING parquet OPTIONS (path '${data}');
CREATE MATERIALIZED VIEW per_key AS SELECT k, count(*) AS n, sum(amount) AS total FROM orders GROUP BY k;
"""
TOML = """name = "shop"
store = "store"
data = "data"
sql = ["views.sql"]
[epoch]
runner = "auto"
"""


def main(arguments: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks arrival-latency", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows before the first measured file")
    parser.add_argument("--files", type=int, default=40, help="measured files per side")
    parser.add_argument("--changed", type=int, default=1_000, help="rows of a file")
    options = parser.parse_args(arguments)
    figures = []
    for name, side in (("tussock --every 1s", _resident), ("Structured Streaming", _streaming)):
        with tempfile.TemporaryDirectory(prefix="tussock-arrival-") as root:
            seconds = _measure(Path(root), options.rows, options.files, options.changed, side)
        cuts = statistics.quantiles(seconds, n=20)
        figures += [Figure(f"{name}, p50", cuts[9], "s"), Figure(f"{name}, p95", cuts[18], "s")]
    print(figures_of(figures))
    return 0


Side = Callable[[Path], "Iterator[Callable[[], object]]"]


def _measure(root: Path, rows: int, files: int, changed: int, side: Side) -> list[float]:
    """Return the seconds from arrival to readers of each file."""
    (data := root / "data").mkdir()
    draw, waits = np.random.default_rng(1), random.Random(1)
    _add_file(data, 0, draw.integers(0, max(rows // 10, 1), rows))
    seconds = []
    with contextmanager(side)(root) as seen:
        before = None
        for number in range(files + WARM_UP + 1):
            if number:
                time.sleep(waits.random() * TRIGGER_S)
                before = seen()
                began = _add_file(data, number, draw.integers(0, max(rows // 10, 1), changed))
            else:
                began = time.perf_counter()
            while seen() == before:
                if time.perf_counter() - began > PATIENCE_S:
                    raise RuntimeError(f"file {number} was not seen within {PATIENCE_S:g} s")
                time.sleep(0.002)
            seconds.append(time.perf_counter() - began)
    return seconds[WARM_UP + 1 :]


def _add_file(data: Path, number: int, keys: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> float:
    """Write a file under its final name at once. Return the moment."""
    hidden = data / f".{number}"
    pq.write_table(pa.table({"k": keys, "amount": np.ones(len(keys), np.int64)}), hidden)
    began = time.perf_counter()
    hidden.rename(data / f"{number:06}.parquet")
    return began


def _resident(root: Path) -> Iterator[Callable[[], object]]:
    """Yields a function whose answer changes when readers see an epoch; None before the first one."""
    (folder := root / "pipelines/shop").mkdir(parents=True)
    (folder / "views.sql").write_text(SQL)
    (folder / "pipeline.toml").write_text(TOML)
    command = [sys.executable, "-m", "tussock.jobs.cli"]
    subprocess.run([*command, "apply", "shop"], cwd=root, check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen(
        [*command, "epoch", "--pipeline", "shop", "--every", f"{TRIGGER_S:g}s"], cwd=root, stdout=subprocess.DEVNULL
    )
    meta = open_meta(str(root / "store"))
    try:
        yield lambda: meta.read_latest().published or None
    finally:
        process.terminate()
        process.wait(60)


def _streaming(root: Path) -> Iterator[Callable[[], object]]:
    """As `_resident`, for a query that runs in this process's Spark."""
    spark = build_spark("arrival-latency", settings={**STREAMING, "spark.driver.memory": "3g"})
    batches = list[int]()
    lock = threading.Lock()

    def write(changes: DataFrame, number: int) -> None:
        changes.write.mode("append").parquet(str(root / "out"))
        with lock:
            batches.append(number)

    rows = spark.readStream.schema("k bigint, amount bigint").parquet(str(root / "data"))
    rows.createOrReplaceTempView("orders")
    changes = spark.sql("SELECT k, count(*) AS n, sum(amount) AS total FROM orders GROUP BY k")
    writer = changes.writeStream.foreachBatch(write).outputMode("update")
    query = (
        writer.option("checkpointLocation", str(root / "checkpoint"))
        .trigger(processingTime=f"{TRIGGER_S:g} seconds")
        .start()
    )
    try:
        yield lambda: batches[-1] if batches else None
    finally:
        query.stop()
        spark.stop()
