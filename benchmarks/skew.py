"""Skew: peak private memory of a worker if one key, one group or one partition has all rows.

    python -m benchmarks skew
    python -m benchmarks skew --only join --rows 200000

The cases are: one key on both sides of a join of 1 M and 1 K rows (1e9 pairs); a count(DISTINCT) of one group with five
million values; one partition of five million rows under calls that continue from earlier rows, and under calls that
need all rows. Each case is a view over Parquet files. Spark loads it in one epoch and adds a thousand rows in another.
The view is checked against computed sums. The memory is RssAnon of Spark's Python workers (/proc/<pid>/status; Linux),
sampled continuously. Budget: 1.5 GB.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.cpu import processes
from benchmarks.memory import rss_anon
from tussock import Session

BUDGET_BYTES = 1_500_000_000
_LOOK_S = 0.02
_MORE = 1_000  # rows of the second epoch
_FEW = 1_000  # rows of the join's smaller side


@dataclass(frozen=True, slots=True)
class Case:
    """A view over `many(id, k, v)`, with k = 7 and distinct v, and `few(k, w)`.

    `answer`: expected result of `check` by row count.
    """

    name: str
    rows: int
    sql: str
    check: str
    answer: Callable[[int], tuple[int, ...]]


def _sum(rows: int) -> int:
    return rows * (rows - 1) // 2


CASES = (
    Case(
        "join",
        1_000_000,
        "SELECT w % 10 AS d, count(*) AS pairs, sum(v) AS total FROM many JOIN few USING (k) GROUP BY w % 10",
        "SELECT sum(pairs), CAST(sum(total) AS bigint) FROM measured",
        lambda rows: (rows * _FEW, _sum(rows) * _FEW),
    ),
    Case(
        "distinct",
        5_000_000,
        "SELECT k, count(DISTINCT v) AS n FROM many GROUP BY k",
        "SELECT k, n FROM measured",
        lambda rows: (7, rows),
    ),
    Case(
        "running-window",
        5_000_000,
        "SELECT id, v - lag(v) OVER w AS d, sum(v) OVER w AS total, row_number() OVER w AS n FROM many"
        " WINDOW w AS (PARTITION BY k ORDER BY v)",
        "SELECT sum(d), max(total), max(n) FROM measured",
        lambda rows: (rows - 1, _sum(rows), rows),
    ),
    Case(
        "whole-window",
        5_000_000,
        "SELECT id, ntile(4) OVER w AS q, percent_rank() OVER w AS p FROM many WINDOW w AS (PARTITION BY k ORDER BY v)",
        "SELECT count(*), count_if(q = 4 AND p >= 0.74) FROM measured",
        lambda rows: (rows, rows // 4),
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """The figures of a case. `right`: the view was correct after each epoch."""

    peaks: tuple[int, ...]  # per epoch: the maximum RssAnon of one worker, in bytes
    seconds: tuple[float, ...]
    right: bool


@contextmanager
def _watched(peaks: list[int]) -> Iterator[None]:
    """Append the peak private memory of one of Spark's Python workers during the block."""
    ended, seen = threading.Event(), [0]

    def look() -> None:
        while not ended.wait(_LOOK_S):
            seen.append(max((rss_anon(p.pid) for p in processes() if "pyspark.daemon" in p.title), default=0))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        peaks.append(max(seen))


def measure(spark: SparkSession, folder: Path, case: Case, rows: int) -> Found:
    """Load the view of a case in one epoch, then change it in another."""
    many, few = folder / "many", folder / "few"
    _write(many / "1.parquet", np.arange(rows))
    few.mkdir()
    pq.write_table(pa.table({"k": np.full(_FEW, 7), "w": np.arange(_FEW)}), few / "1.parquet")
    peaks, seconds, right = list[int](), list[float](), True
    with Session(str(folder / "store"), spark) as session:
        for source in (many, few):
            session.execute(f"CREATE SOURCE {source.name} USING parquet OPTIONS (path '{source}', retain 'none')")
        session.execute(f"CREATE MATERIALIZED VIEW measured AS {case.sql}")
        for total in (rows, rows + _MORE):
            if total > rows:
                _write(many / "2.parquet", np.arange(rows, total))
            began = time.perf_counter()
            with _watched(peaks):
                session.flush()
            seconds.append(time.perf_counter() - began)
            (answer,) = session.execute(case.check)
            assert answer.table is not None
            right &= tuple(answer.table.to_pylist()[0].values()) == case.answer(total)
    return Found(tuple(peaks), tuple(seconds), right)


def _write(file: Path, values: np.ndarray) -> None:
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": values, "k": np.full(len(values), 7), "v": values}), file)


def main(arguments: Sequence[str]) -> int:
    """Measure and print. Returns 1 if a budget is missed or a view is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks skew", description="Measure a worker's private memory if one key has all rows."
    )
    parser.add_argument("--only", nargs="+", choices=[c.name for c in CASES], help="cases")
    parser.add_argument("--rows", type=int, help="rows per case (default: 1 M for the join, 5 M for the others)")
    parser.add_argument("--runs", type=int, default=1, help="runs per case (default 1)")
    parser.add_argument("--scratch", type=Path, help="folder of the stores; default: a temporary folder")
    chosen = parser.parse_args(arguments)
    from tussock.jobs.spark.session import build_spark

    missed = False
    with tempfile.TemporaryDirectory(prefix="tussock-skew-", dir=chosen.scratch) as scratch:
        for case in CASES:
            for run in range(chosen.runs if not chosen.only or case.name in chosen.only else 0):
                spark = build_spark(
                    "tussock-benchmarks", settings={"spark.driver.memory": "3g", "spark.local.dir": f"{scratch}/spark"}
                )
                spark.sparkContext.setLogLevel("OFF")
                rows = chosen.rows or case.rows
                folder = Path(scratch) / f"{case.name} {run}"
                folder.mkdir()
                try:
                    found = measure(spark, folder, case, rows)
                finally:
                    spark.stop()  # the next case gets new workers
                verdict = "within budget" if max(found.peaks) <= BUDGET_BYTES else "MISSED"
                missed |= max(found.peaks) > BUDGET_BYTES or not found.right
                took = ", then ".join(
                    f"{peak / 1e9:.3f} GB in {s:.1f} s" for peak, s in zip(found.peaks, found.seconds, strict=True)
                )
                told = "" if found.right else "; THE VIEW IS WRONG"
                print(f"{case.name:16}{rows:>10,} rows: {took}; {verdict}{told}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
