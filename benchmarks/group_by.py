"""Benchmark (a): count and sum by auction over epochs of bids, against Structured Streaming with RocksDB.

Both sides use the same files and the same session.
"""

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.bids import write_bids
from benchmarks.report import Comparison, Series
from benchmarks.streaming import BIDS_DDL, run_streaming
from tussock import Session

QUERY = "SELECT auction, count(*) AS bids, sum(price) AS total FROM bids GROUP BY auction"


@dataclass(frozen=True, slots=True)
class GroupBy:
    """Sizes of the benchmark. The defaults are the design's: 1.25 M events per epoch touch 460 K of 500 K groups."""

    bids: int = 20_000_000
    epochs: int = 16
    auctions: int = 500_000
    runs: int = 3
    warm_runs: int = 2  # whole runs, since the JVM continues to compile code that both sides run repeatedly


def compare_group_by(
    spark: SparkSession, scratch: Path, size: GroupBy, progress: Callable[[str], None]
) -> list[Comparison]:
    """Run both sides in turns, first `size.warm_runs` and then `size.runs` times, and check the engine's view once.

    Returns: a comparison of whole runs, and one of single epochs with micro-batches.
    """
    files = write_bids(scratch, size.bids, size.epochs, size.auctions)
    folder = files[0].parent
    ours, theirs, epochs, batches = [], [], [], []
    for run in range(-size.warm_runs, size.runs):
        name = f"group-by run {run + 1}" if run >= 0 else "group-by, warming up"
        total, each, phases = run_engine(spark, folder, scratch / "store", size.epochs, check=run == 0)
        progress(f"{name}: engine {total:.1f} s, median epoch {statistics.median(each):.2f} s ({phases})")
        other, batch = run_streaming(spark, folder, _fresh(scratch / "checkpoint"))
        progress(f"{name}: streaming {other:.1f} s, median batch {statistics.median(batch):.2f} s")
        if run >= 0:
            ours.append(total)
            epochs += each
            theirs.append(other)
            batches += batch
    per_epoch = size.bids // size.epochs
    facts = {
        "bids": size.bids,
        "epochs": size.epochs,
        "auctions": size.auctions,
        "bytes": sum(f.stat().st_size for f in files),
    }
    whole = f"group-by: {size.bids:,} bids in {size.epochs} epochs, {size.auctions:,} groups"
    single = f"group-by: one epoch of {per_epoch:,} bids"
    return [
        Comparison(
            whole, Series("tussock", tuple(ours)), Series("structured streaming, RocksDB", tuple(theirs)), 6.0, facts
        ),
        Comparison(
            single,
            Series("tussock", tuple(epochs)),
            Series("structured streaming, RocksDB", tuple(batches)),
            6.0,
            facts,
        ),
    ]


def run_engine(
    spark: SparkSession, folder: Path, store: Path, epochs: int, check: bool = False
) -> tuple[float, list[float], str]:
    """Create a store with a source over `folder` and the view, and run one epoch per file.

    Returns: (wall seconds from the first statement, seconds of each epoch, the parts of the epochs as text).
    Raises: RuntimeError if the view differs from Spark's answer. The check is not timed.
    """
    session = Session(str(_fresh(store)), spark)
    started = time.perf_counter()
    session.execute(f"CREATE SOURCE bids ({BIDS_DDL}) USING parquet OPTIONS (path '{folder}', retain 'none')")
    session.execute(f"CREATE MATERIALIZED VIEW by_auction AS {QUERY}")
    each: list[float] = []
    parts: dict[str, float] = {}
    for _ in range(epochs):
        began = time.perf_counter()
        summary = session.flush(max_epoch_bytes=1)  # at least one file per epoch, so exactly one
        each.append(time.perf_counter() - began)
        for part, seconds in summary.seconds.items():
            parts[part] = parts.get(part, 0.0) + seconds
    total = time.perf_counter() - started
    if check:
        _require_equal(spark, session, folder)
    session.close()
    return total, each, ", ".join(f"{part} {seconds:.2f}" for part, seconds in parts.items())


def _require_equal(spark: SparkSession, session: Session, folder: Path) -> None:
    spark.read.schema(BIDS_DDL).parquet(str(folder)).createOrReplaceTempView("bids")
    expected = spark.sql(QUERY).toArrow().sort_by("auction")
    found = session.query("SELECT * FROM by_auction").sort_by("auction")
    if not found.cast(expected.schema).equals(expected):
        raise RuntimeError(
            f"the view's {found.num_rows} rows differ from Spark's {expected.num_rows} rows over {folder}"
        )


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder
