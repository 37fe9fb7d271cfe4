"""Benchmark: the rows that bills expect beside the rows that epochs read, in three pipelines of this repository.

    python -m benchmarks bills --days 9

Each pipeline gets one delivery per day, and an epoch takes it. Before the last days, a view of the pipeline is created
again under another name, and its first epoch is compared with the bill of this deployment. The exit code is 1 if fewer
than nine in ten pairs of a view and an epoch are within a quarter.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tussock.jobs.facts.bill import RowsCompared, compare_rows
from tussock.jobs.facts.history import one_epoch
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.process import open_meta

ROOT = Path(__file__).resolve().parent.parent
PIPELINES = {"flights": "--days", "customers": "--nights", "orders": "--days"}
"""Pipelines, and the option of their load.py that says how many deliveries there are."""
WITHIN, SHARE = 0.25, 0.9
TUSSOCK = (sys.executable, "-m", "tussock")  # of this environment, which PATH need not have
_AGAIN = {
    "flights": "CREATE MATERIALIZED VIEW again AS SELECT carrier, max(arr_delay) AS m FROM flights GROUP BY carrier;",
    "customers": "CREATE MATERIALIZED VIEW again AS SELECT * FROM customers;",
    "orders": "CREATE MATERIALIZED VIEW again AS SELECT * FROM orders;",
}


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark. Returns 1 if too few pairs are near."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks bills", description="Compare bills with epochs.")
    parser.add_argument("--days", type=int, default=9, help="deliveries to each pipeline (default 9)")
    chosen = parser.parse_args(arguments)
    pairs: list[tuple[str, RowsCompared]] = []
    with tempfile.TemporaryDirectory(prefix="tussock-bills-") as folder:
        for name in PIPELINES:
            pairs += [(name, rows) for rows in run_pipeline(name, Path(folder), chosen.days)]
    near = [pair for pair in pairs if is_near(pair[1])]
    for name, rows in pairs:
        mark = " " if is_near(rows) else "FAR"
        print(f"{name:10} {rows.relation:24} {rows.rows_in:>9,} read, expected {rows.expected_in or 0:>9,}  {mark}")
    print(f"{len(near)} of {len(pairs)} within {WITHIN:.0%}")
    return 0 if len(near) >= SHARE * len(pairs) else 1


def is_near(rows: RowsCompared) -> bool:
    """Whether the expected rows differ from the read ones by at most WITHIN of the larger number."""
    expected = rows.expected_in or 0
    return abs(rows.rows_in - expected) <= WITHIN * max(rows.rows_in, expected)


def run_pipeline(name: str, folder: Path, days: int) -> Iterator[RowsCompared]:
    """Yield the rows of views in the epochs of a copy of a pipeline, from the third one on."""
    home = folder / name
    shutil.copytree(ROOT / "pipelines" / name, home / "pipelines" / name)
    view = home / "pipelines" / name / "views.sql"
    for variable in ("STORE", "DATA", "TABLES"):
        os.environ[f"{name.upper()}_{variable}"] = str(home / variable.lower())
    os.environ["TUSSOCK_PIPELINES"] = str(home / "pipelines")
    for day in range(1, days + 1):
        load = home / "pipelines" / name / "load.py"
        _run(home, sys.executable, str(load), "--out", str(home / "data"), PIPELINES[name], str(day))
        if day == days - 2:
            view.write_text(f"{view.read_text()}\n{_AGAIN[name]}\n")
        if day in (1, days - 2):
            _run(home, *TUSSOCK, "apply", name)
        _run(home, *TUSSOCK, "epoch", "--pipeline", name)
        if day > 2:
            meta = open_meta(load_pipeline(home / "pipelines" / name).store)
            facts = one_epoch(meta, meta.read_latest().epoch)
            assert facts is not None, "the epoch of this day is committed"
            building = day == days - 2
            yield from (
                rows
                for rows in compare_rows(meta, facts)
                if rows.kind == "view" and not rows.relation.startswith("__") and (rows.relation == "again") >= building
            )


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
        done.check_returncode()
