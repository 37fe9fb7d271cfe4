"""Benchmark (b): an epoch of a thousand changed rows, three levels deep, against recomputing the same views with Spark."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.report import Comparison, Series
from jobs.session import Session

LOAD_ROWS = 500_000  # rows an INSERT brings; a log entry is one object
BY_AUCTION = "SELECT auction, count(*) AS bids, sum(price) AS total, max(price) AS best FROM bids GROUP BY auction"
BY_CLASS = "SELECT auction % 1000 AS class, count(*) AS auctions, sum(total) AS total FROM by_auction GROUP BY auction % 1000"


@dataclass(frozen=True, slots=True)
class SmallEpoch:
    """Sizes of the benchmark."""

    rows: tuple[int, ...] = (1_000_000, 10_000_000)
    changed: int = 1_000
    epochs: int = 9
    recomputes: int = 3
    rows_per_auction: int = 20


def compare_small_epoch(spark: SparkSession, scratch: Path, size: SmallEpoch, progress: Callable[[str], None]) -> list[Comparison]:
    """For each table size: load, run small epochs in turns with recomputing, check the deepest view.

    Returns: per size the epoch against the recompute; then the largest size's epoch against the smallest's, whose budget says that the
    larger may take 1.3 times as long at most.
    """
    compared, epochs = [], []
    for rows in size.rows:
        ours, theirs = _measure(spark, scratch, size, rows, progress)
        epochs.append(ours)
        compared.append(Comparison(f"small epoch: {size.changed:,} changed rows of {rows:,}, 3 levels, against recomputing", ours, theirs))
    if len(epochs) > 1:
        smallest, largest = epochs[0], epochs[-1]
        compared.append(Comparison("small epoch: growth with the state", largest, smallest, 1 / 1.3))
    return compared


def _measure(spark: SparkSession, scratch: Path, size: SmallEpoch, rows: int, progress: Callable[[str], None]) -> tuple[Series, Series]:
    store = scratch / f"small-store-{rows}"
    shutil.rmtree(store, ignore_errors=True)
    auctions = rows // size.rows_per_auction
    session = Session(str(store), spark)
    session.execute("CREATE TABLE bids (bid bigint, auction bigint, price bigint, PRIMARY KEY (bid))")
    session.execute(f"CREATE MATERIALIZED VIEW by_auction AS {BY_AUCTION}")
    session.execute(f"CREATE MATERIALIZED VIEW by_class AS {BY_CLASS}")
    began = time.perf_counter()
    for first in range(0, rows, LOAD_ROWS):
        end = min(rows, first + LOAD_ROWS)
        session.execute(f"INSERT INTO bids SELECT id, (id * 7919) % {auctions}, (id * 31) % 100000 FROM range({first}, {end})")
        session.flush()
    progress(f"small epoch: {rows:,} rows loaded in {time.perf_counter() - began:.1f} s")

    ours, theirs, parts = [], [], {}
    for epoch in range(size.epochs):
        # Keys spread over the whole table; the first two epochs warm up what a steady pipeline has warm.
        step = rows // size.changed
        session.execute(f"INSERT INTO bids SELECT id * {step} + {epoch}, (id * 104729) % {auctions}, id FROM range({size.changed})")
        began = time.perf_counter()
        summary = session.flush()
        seconds = time.perf_counter() - began
        if epoch >= 2:
            ours.append(seconds)
            parts = dict(summary.seconds)
        if epoch == 2:
            _export(session, scratch / f"small-bids-{rows}", rows)
            _recompute(spark, scratch, rows)  # its warm-up
        if 2 <= epoch < 2 + size.recomputes:
            theirs.append(_recompute(spark, scratch, rows))
    progress(f"small epoch: {rows:,} rows, last epoch: {', '.join(f'{k} {v:.3f}' for k, v in parts.items())}")
    _require_equal(spark, session)
    session.close()
    return Series(f"tussock, {rows:,} rows of state", tuple(ours)), Series(f"recompute from {rows:,} rows", tuple(theirs))


def _export(session: Session, folder: Path, rows: int) -> None:
    """The table as Parquet, where a batch job would find it."""
    folder.mkdir(parents=True, exist_ok=True)
    table = session.query("SELECT * FROM bids")
    pieces = max(2, rows // 1_250_000)
    per_file = -(-table.num_rows // pieces)
    for i in range(pieces):
        pq.write_table(table.slice(i * per_file, per_file), folder / f"{i}.parquet", compression="zstd")


def _recompute(spark: SparkSession, scratch: Path, rows: int) -> float:
    """Both views from all rows, written as Parquet: what a pipeline without increments does each time."""
    began = time.perf_counter()
    spark.read.parquet(str(scratch / f"small-bids-{rows}")).createOrReplaceTempView("bids")
    spark.sql(BY_AUCTION).write.mode("overwrite").parquet(str(scratch / "recomputed-by-auction"))
    spark.read.parquet(str(scratch / "recomputed-by-auction")).createOrReplaceTempView("by_auction")
    spark.sql(BY_CLASS).write.mode("overwrite").parquet(str(scratch / "recomputed-by-class"))
    return time.perf_counter() - began


def _require_equal(spark: SparkSession, session: Session) -> None:
    rows = session.query("SELECT * FROM bids")
    found = session.query("SELECT * FROM by_class").sort_by("class")
    spark.createDataFrame(rows).createOrReplaceTempView("bids")
    spark.sql(BY_AUCTION).createOrReplaceTempView("by_auction")
    expected: pa.Table = spark.sql(BY_CLASS).toArrow().sort_by("class")
    if not found.cast(expected.schema).equals(expected):
        raise RuntimeError(f"by_class has {found.num_rows} rows that are not the {expected.num_rows} that Spark computes")
