"""`python -m benchmarks nexmark`: Nexmark's queries, one view each, on Tussock and on its peers in one run.

Prints a table, and writes JSON to benchmarks/results/.

    python -m benchmarks nexmark                                  all queries on all sides, 1 M events
    python -m benchmarks nexmark --events 80000 --epochs 4 --queries q1 q4 --peers local spark     a minute

First each side runs each query over few events, uncounted, so that start-up is not measured. Then each query and side
starts from an empty store. An epoch takes one file of each stream. The definition of the view or query is part of its
first epoch. After the last epoch the rows of each side are compared with the rows of Spark's own SELECT over the same
files. The command returns 1 if a result is wrong. The record is written after each query, so an interrupted run keeps
its results.
"""

import argparse
import logging
import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.nexmark.compare import compare_nexmark
from benchmarks.nexmark.figures import Record, table_of, write_record
from benchmarks.nexmark.peers import PEERS
from benchmarks.nexmark.workload import Sizes, queries
from benchmarks.report import machine
from tussock.jobs.spark.session import build_spark

RESULTS = Path(__file__).parents[1] / "results"


def main(arguments: list[str]) -> int:
    default, known = Sizes(), queries()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks nexmark", description="Compare Tussock with its peers on the queries of Nexmark."
    )
    parser.add_argument("--queries", nargs="+", choices=known, default=list(known), metavar="Q", help="default: all")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="sides to run (default: all)")
    parser.add_argument("--events", type=int, default=default.events, help="events of all large epochs together")
    parser.add_argument("--epochs", type=int, default=default.epochs, help="number of large epochs")
    parser.add_argument("--small-events", type=int, default=default.small_events, help="events of a small epoch")
    parser.add_argument("--small-epochs", type=int, default=default.small_epochs, help="small epochs after the others")
    parser.add_argument("--runs", type=int, default=default.runs, help="runs per query and side")
    parser.add_argument("--scratch", type=Path, help="folder for temporary files; default: the system's")
    parser.add_argument("--driver-memory", default="3g", help="memory of the Spark session that all sides share")
    parser.add_argument("--out", type=Path, help="the JSON file; default: benchmarks/results/nexmark-<time>.json")
    options = parser.parse_args(arguments)
    out = options.out or RESULTS / f"nexmark-{time.strftime('%Y%m%dT%H%M%S')}.json"
    sizes = Sizes(options.events, options.epochs, options.small_events, options.small_epochs, options.runs)

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # errors of queries that streaming refuses
    with tempfile.TemporaryDirectory(prefix="tussock-nexmark-", dir=options.scratch) as temporary:
        scratch = Path(temporary)
        settings = {"spark.driver.memory": options.driver_memory, "spark.local.dir": str(scratch / "spark")}
        spark = build_spark("tussock-nexmark", settings=settings)
        spark.sparkContext.setLogLevel("OFF")
        try:
            sides = {name: make(spark) for name, make in PEERS.items() if name in options.peers}
            record = Record(_machine(options.driver_memory), sizes, {name: side.title for name, side in sides.items()})
            chosen = [query for name, query in known.items() if name in options.queries]
            for results in compare_nexmark(spark, scratch, chosen, sides, sizes, _progress):
                record = record.plus(results)
                write_record(out, record)
        finally:
            spark.stop()
    print(table_of(record))
    print(f"wrote {out}")
    return int(any(one.wrong for one in record.results))


def _machine(driver_memory: str) -> dict[str, str | int | None]:
    """The machine, the day, and the versions and the memory that decide the figures of the sides."""
    return {
        **machine(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "driver_memory": driver_memory,
        "date": time.strftime("%Y-%m-%d"),
        **{package: version(package) for package in ("pyspark", "duckdb")},
    }


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
