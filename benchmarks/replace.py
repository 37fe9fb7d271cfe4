"""Replace a view that two views read, against an epoch that rebuilds all three, in turns.

    python -m benchmarks replace
    python -m benchmarks replace --rows 1000000 --max-bytes 8000000

With `--max-bytes` the view is also built over several epochs, and the longest is shown next to the single epoch. The
view filters half of a table. Its threshold alternates by a hundredth, so a fiftieth of its rows change. The output also
contains the number of rows sent to the views that read it. At the end the views are compared with Spark's answers over
the table.
"""

import argparse
import tempfile
import time

import numpy as np
import pyarrow as pa

from benchmarks.report import Comparison, Series, table_of
from tussock import Session
from tussock.jobs.driver.summary import EpochSummary

BUDGET = 1.0  # never slower than a rebuild of everything
OVER = {
    "by_shop": "SELECT shop, count(*) AS n, max(id) AS last FROM large GROUP BY shop",
    "named": "SELECT l.id, l.amount, s.name FROM large l JOIN shops s ON s.shop = l.shop",
}


def _large(threshold: float) -> str:
    return f"SELECT id, shop, amount FROM orders WHERE amount > {threshold}BD"


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if the budget is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks replace", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--runs", type=int, default=5, help="epochs per side")
    parser.add_argument(
        "--max-bytes", type=int, help="also build the view over several epochs of at most this many bytes each"
    )
    options = parser.parse_args(arguments)
    random = np.random.default_rng(5)
    ids = np.arange(options.rows)
    orders = pa.table(
        [ids, random.integers(0, 1000, len(ids)), random.random(len(ids)).round(4)], names=["id", "shop", "amount"]
    )
    replaced, anew, given = [], [], []
    with (
        tempfile.TemporaryDirectory(prefix="tussock-replace-") as folder,
        Session(f"{folder}/store", runner="local") as session,
    ):
        session.execute("CREATE TABLE orders (id bigint, shop bigint, amount double, PRIMARY KEY (id))")
        session.execute("CREATE TABLE shops (shop bigint, name string, PRIMARY KEY (shop))")
        session.insert("orders", orders)
        session.insert("shops", pa.table([np.arange(1000), [f"shop {n}" for n in range(1000)]], names=["shop", "name"]))
        _create(session, 0.5)
        session.flush()
        for run in range(options.runs + 1):  # the first warms up
            session.execute(f"CREATE OR REPLACE MATERIALIZED VIEW large AS {_large(0.5 if run % 2 else 0.51)}")
            seconds, summary = _epoch(session)
            session.execute("DROP MATERIALIZED VIEW large CASCADE")
            _create(session, 0.5 if run % 2 else 0.51)
            if run > 0:
                replaced.append(seconds)
                anew.append(_epoch(session)[0])
                given.append({name: summary.rows[name].rows_in for name in OVER})
            else:
                session.flush()
        session.execute(f"CREATE OR REPLACE MATERIALIZED VIEW large AS {_large(0.505)}")
        steps = _steps(session, options.max_bytes)
        for name, select in OVER.items():
            expected = session.query(f"WITH large AS ({_large(0.505)}) {select}")
            assert _sorted(session.read(name)).equals(_sorted(expected.cast(session.read(name).schema)))
        kept = session.read("large").num_rows
    what = f"replace a view of {kept:,} rows that two views read"
    found = Comparison(
        what, Series("CREATE OR REPLACE", tuple(replaced)), Series("all three rebuilt", tuple(anew)), BUDGET
    )
    print(table_of([found]))
    print(f"rows sent to the views that read it: {given[-1]}")
    if options.max_bytes:
        of_each = f"the longest {max(steps):.2f} s, the last {steps[-1]:.2f} s"
        print(f"over {len(steps)} epochs, each with a changed row: {sum(steps):.2f} s, {of_each}")
    return int(found.ratio < BUDGET)


def _steps(session: Session, max_bytes: int | None) -> list[float]:
    """Seconds of each epoch until the view is replaced. Until then readers see the old one."""
    before, seconds = session.read("large").num_rows, []
    while not seconds or session.meta.read_latest().catalog.builds:
        if max_bytes:
            session.insert("orders", pa.table([[len(seconds)], [1], [0.9]], names=["id", "shop", "amount"]))
        started = time.perf_counter()
        session.flush(max_epoch_bytes=max_bytes)
        seconds.append(time.perf_counter() - started)
        if session.meta.read_latest().catalog.builds:
            assert abs(session.read("large").num_rows - before) <= len(seconds), "readers see the old view"
    return seconds


def _create(session: Session, threshold: float) -> None:
    for name, select in {"large": _large(threshold), **OVER}.items():
        session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")


def _epoch(session: Session) -> tuple[float, EpochSummary]:
    started = time.perf_counter()
    summary = session.flush()
    return time.perf_counter() - started, summary


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in rows.column_names]).combine_chunks()
