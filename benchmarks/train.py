"""Benchmark (c): epochs per minute on slow S3, as a train and with a commit before each next epoch.

The state store takes 30 ms per request and 100 MB/s per connection (benchmarks/store/latency.py); the source's files
are local. Every epoch takes one file of changed rows through three levels: a group-by, and a group-by over it.
"""

import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.report import Comparison, Series
from benchmarks.store.latency import read_log
from tussock import Session
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.driver.train import DEPTH, Train
from tussock.jobs.settings.tables import EpochSettings

BY_AUCTION = "SELECT auction, count(*) AS bids, sum(price) AS total, max(price) AS best FROM bids GROUP BY auction"
BY_CLASS = (
    "SELECT auction % 1000 AS class, count(*) AS auctions, sum(total) AS total FROM by_auction GROUP BY auction % 1000"
)


@dataclass(frozen=True, slots=True)
class TrainBenchmark:
    """Sizes of the benchmark."""

    epochs: int = 20  # per run
    runs: int = 3  # per side, in turns
    rows: int = 1_000  # changed per epoch
    auctions: int = 50_000
    ms: float = 30.0
    mbps: float = 100.0


def compare_trains(
    spark: SparkSession, scratch: Path, size: TrainBenchmark, progress: Callable[[str], None]
) -> list[Comparison]:
    """Seconds per epoch of both sides on one store, with each side's share of the files in turns.

    Requires: `latency.register` was called before the Spark session was created.
    """
    data, log = scratch / "train-bids", scratch / "train-requests"
    store = scratch / "train-store"
    for old in (data, store):
        shutil.rmtree(old, ignore_errors=True)
    data.mkdir(parents=True)
    uri = f"latency+file://{store}?ms={size.ms:g}&mbps={size.mbps:g}&log={log}"
    rng = np.random.default_rng(1)
    number = 0
    seconds: dict[str, list[float]] = {"alone": [], "train": []}
    asked: dict[str, list[float]] = {"alone": [], "train": []}
    sent: dict[str, list[float]] = {"alone": [], "train": []}
    with Session(uri, spark) as session:
        session.execute(
            f"CREATE SOURCE bids (auction bigint, price bigint) USING parquet OPTIONS (path '{data}', retain 'none')"
        )
        session.execute(f"CREATE MATERIALIZED VIEW by_auction AS {BY_AUCTION}")
        session.execute(f"CREATE MATERIALIZED VIEW by_class AS {BY_CLASS}")
        number = _write(data, rng, number, 1, 50 * size.rows, size.auctions)
        session.flush()
        for run in range(-1, size.runs):  # the first run warms up both sides
            for side in ("alone", "train"):
                number = _write(data, rng, number, size.epochs, size.rows, size.auctions)
                log.write_text("")
                began = time.perf_counter()
                done = _one_by_one(spark, session) if side == "alone" else _as_train(spark, session)
                taken = time.perf_counter() - began
                assert done == size.epochs, f"expected one epoch for each of {size.epochs} files, found {done}"
                if run < 0:
                    continue
                counts = read_log(log)
                seconds[side].append(taken / done)
                asked[side].append(sum(counts.requests.values()) / done)
                sent[side].append(sum(counts.sizes.values()) / done)
                progress(
                    f"train: {side}, {60 * done / taken:.0f} epochs/min, {asked[side][-1]:.0f} requests "
                    f"per epoch ({counts})"
                )
        _check(spark, session, data)
    facts = {
        f"{what} an epoch, {side}": statistics.median(values[side])
        for what, values in (("requests", asked), ("bytes", sent))
        for side in ("alone", "train")
    }
    rates = {f"epochs a minute, {side}": 60 / statistics.median(values) for side, values in seconds.items()}
    compared = Comparison(
        f"epochs of {size.rows:,} rows, {size.ms:g} ms per request, {size.mbps:g} MB/s",
        Series(f"train of epochs, {DEPTH} in flight", tuple(seconds["train"])),
        Series("each committed before the next", tuple(seconds["alone"])),
        1.5,
        {**rates, **facts},
    )
    for what, value in compared.facts.items():
        progress(f"train: {what}: {value:,.1f}")
    return [compared]


def _write(data: Path, rng: np.random.Generator, number: int, files: int, rows: int, auctions: int) -> int:
    for n in range(number, number + files):
        table = pa.table({"auction": rng.integers(0, auctions, rows), "price": rng.integers(1, 100_000, rows)})
        pq.write_table(table, data / f"{n:06}.parquet")
    return number + files


def _one_by_one(spark: SparkSession, session: Session) -> int:
    done = 0
    while (barrier := inject_barrier(session.meta, settings=EpochSettings(max_bytes=1))) is not None:
        run_epoch(SparkRunner(spark), session.meta, barrier)
        done += 1
    return done


def _as_train(spark: SparkSession, session: Session) -> int:
    with Train(SparkRunner(spark), session.meta) as train:
        while (barrier := train.next_barrier(settings=EpochSettings(max_bytes=1))) is not None:
            train.run(barrier)
    return len(train.done)


def _check(spark: SparkSession, session: Session, data: Path) -> None:
    """Check the view of the last level."""
    judge = spark.newSession()
    judge.read.parquet(str(data)).createOrReplaceTempView("bids")
    judge.sql(BY_AUCTION).createOrReplaceTempView("by_auction")
    expected: Sequence[object] = sorted(tuple(row.values()) for row in judge.sql(BY_CLASS).toArrow().to_pylist())
    found = session.query("SELECT * FROM by_class", epoch=session.meta.read_latest().epoch)
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == expected, (
        "by_class differs from Spark's answer over the files"
    )
