"""Benchmark: from the start of a process to the rows of a view, with and without a JVM.

    python -m benchmarks cold-start --rows 1000 --runs 5

Separate processes do the same work in turns: insert rows into a table, run an epoch, and read a view of the table.
`here` uses Session.insert, an epoch in its own process, and Session.read; `on Spark` runs the same epoch on Spark; `by
SQL` also inserts and reads with SQL. The figures exclude the stop of the JVM.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks.report import Comparison, Series, table_of

SIDES = ("here", "on Spark", "by SQL")
GROUPS = 100


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark; with the name of a side, run one process of it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cold-start", description="Measure the time from process start to a view's rows."
    )
    parser.add_argument("--rows", type=int, default=1_000, help="rows inserted by each process (default 1000)")
    parser.add_argument("--runs", type=int, default=5, help="runs per side (default 5)")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.side:
        found = work(chosen.side, chosen.store, chosen.rows)
        print("seconds", time.time() - chosen.began, found, flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="tussock-cold-start-") as folder:
        seconds = measure(Path(folder), chosen.rows, chosen.runs)
    here, others = seconds["here"], (side for side in SIDES if side != "here")
    what = f"process start to a view's rows, {chosen.rows:,} rows inserted"
    print(table_of([Comparison(what, Series("in this process", here), Series(side, seconds[side])) for side in others]))
    return 0


def work(side: str, store: str, rows: int) -> int:
    """The work of one process. Returns the row count in the view."""
    from tussock import Session

    with Session(store, create=False, runner="local" if side == "here" else "spark") as session:
        first = session.meta.log_end() * rows
        if side == "by SQL":
            session.execute(f"INSERT INTO t SELECT id + {first}, id % {GROUPS}, id FROM range({rows})")
        else:
            ids = pa.array(range(first, first + rows), pa.int64())
            numbers = pa.array(range(rows), pa.int64())
            groups = pa.array([n % GROUPS for n in range(rows)], pa.int32())
            session.insert("t", pa.table({"id": ids, "g": groups, "amount": numbers}))
        session.flush()
        found = session.query("SELECT n FROM by_g") if side == "by SQL" else session.read("by_g", ["n"])
        return sum(found["n"].to_pylist())


def measure(folder: Path, rows: int, runs: int) -> Mapping[str, tuple[float, ...]]:
    """Seconds of each process, by side. Each side has its own store with the same number of epochs."""
    import subprocess

    from tussock import Session

    stores = {side: str(folder / side.replace(" ", "-")) for side in SIDES}
    for store in stores.values():
        with Session(store) as session:
            session.execute("CREATE TABLE t (id bigint, g int, amount bigint, PRIMARY KEY (id))")
            session.execute(
                "CREATE MATERIALIZED VIEW by_g AS SELECT g, count(*) AS n, sum(amount) AS total FROM t GROUP BY g"
            )
            session.flush()
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for run in range(runs):
        for side, store in stores.items():
            command = [
                sys.executable,
                "-m",
                "benchmarks",
                "cold-start",
                "--side",
                side,
                "--store",
                store,
                "--rows",
                str(rows),
            ]
            done = subprocess.run([*command, "--began", str(time.time())], capture_output=True, text=True, check=True)
            _, taken, counted = next(line for line in done.stdout.splitlines() if line.startswith("seconds")).split()
            assert int(counted) == rows * (run + 1), f"{side}: the view counts {counted} rows"
            seconds[side].append(float(taken))
            print(f"cold-start: {side}: {taken[:5]} s", flush=True)
    return {side: tuple(found) for side, found in seconds.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
