"""Units 2 -> 3 -> 8 -> 2 under load: the first epoch after each move, against ordinary epochs.

    python -m benchmarks rebalance
    python -m benchmarks rebalance --rows 10000000 --changed 100000

The views are counts and sums of the table by shop, and a join of the table with those. Each epoch changes some rows.
For each move the output contains the moved vnodes, the size of their state, and the time and written bytes of the
moving epoch and of ordinary ones. Every view is compared with DuckDB after each move.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from tussock import Session
from tussock.jobs.texts.table import align_cells
from tussock.jobs.upkeep.rebalance import measure_loads, move_vnodes, plan_rebalance, verify_rebalance

ROUTE = (3, 8, 2)  # from 2
VIEWS = {
    "by_shop": "SELECT shop, count(*) AS n, sum(amount) AS total FROM orders GROUP BY shop",
    "named": "SELECT o.id, o.amount, b.n FROM orders o JOIN by_shop b ON o.shop = b.shop",
}


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one move: seconds and written bytes of its epoch, and medians of the epochs before."""

    route: str
    vnodes: int
    moved_bytes: int
    move_s: float
    seconds: float
    ordinary_seconds: float
    bytes: int
    ordinary_bytes: int


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if a moving epoch writes more than 1.5 times the bytes of an ordinary one."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks rebalance", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--changed", type=int, default=10_000, help="changed rows per epoch")
    parser.add_argument("--epochs", type=int, default=5, help="ordinary epochs before each move")
    parser.add_argument("--scratch", type=Path, help="folder of the store; default: a temporary folder")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="tussock-rebalance-", dir=options.scratch))
    try:
        found = _measured(folder, options.rows, options.changed, options.epochs)
    finally:
        shutil.rmtree(folder)
    print(_table(found))
    return int(any(one.bytes > 1.5 * one.ordinary_bytes for one in found))


def _measured(folder: Path, rows: int, changed: int, epochs: int) -> list[Figures]:
    random, found = np.random.default_rng(7), []
    with Session(f"{folder}/store", runner="local", units=2) as session, duckdb.connect() as judge:
        session.execute("CREATE TABLE orders (id bigint, shop bigint, amount bigint, PRIMARY KEY (id))")
        for name, select in VIEWS.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
        orders = _orders(np.arange(rows), random)
        _do(judge, "CREATE TABLE orders (id bigint PRIMARY KEY, shop bigint, amount bigint)")
        _load(session, judge, orders)
        for before, after in zip((2, *ROUTE), ROUTE, strict=False):
            ordinary = [_epoch(session, judge, random, rows, changed) for _ in range(epochs)]
            planned = plan_rebalance(measure_loads(session.meta), after)
            began = time.perf_counter()
            move_vnodes(session.meta, planned)
            move_s = time.perf_counter() - began
            seconds, size = _epoch(session, judge, random, rows, changed)
            verify_rebalance(session.meta, planned)
            _check(session, judge)
            found.append(
                Figures(
                    f"{before} -> {after}",
                    planned.moved_vnodes,
                    planned.moved_vnodes * sum(s.bytes for s in planned.before) // planned.planned.vnode_count,
                    move_s,
                    seconds,
                    statistics.median(s for s, _ in ordinary),
                    size,
                    round(statistics.median(b for _, b in ordinary)),
                )
            )
    return found


def _orders(ids: np.ndarray, random: np.random.Generator) -> pa.Table:
    return pa.table(
        [ids, random.integers(0, 1000, len(ids)), random.integers(0, 10_000, len(ids))], names=["id", "shop", "amount"]
    )


def _load(session: Session, judge: duckdb.DuckDBPyConnection, orders: pa.Table) -> None:
    session.insert("orders", orders)
    _take(judge, orders)
    session.flush()


def _take(judge: duckdb.DuckDBPyConnection, news: pa.Table) -> None:
    judge.register("news", news)
    _do(judge, "INSERT OR REPLACE INTO orders SELECT * FROM news")
    judge.unregister("news")


def _epoch(
    session: Session, judge: duckdb.DuckDBPyConnection, random: np.random.Generator, rows: int, changed: int
) -> tuple[float, int]:
    """Run an epoch. Return its seconds and the bytes of its SSTs."""
    news = _orders(random.choice(rows, changed, replace=False), random)
    session.insert("orders", news)
    _take(judge, news)
    began = time.perf_counter()
    summary = session.flush()
    seconds = time.perf_counter() - began
    sealed = session.meta.read_manifest(summary.epoch)
    assert sealed is not None
    return seconds, sum(sst.size for sst in sealed.ssts)


def _check(session: Session, judge: duckdb.DuckDBPyConnection) -> None:
    """Check every view against DuckDB over the same rows."""
    _do(judge, f"CREATE OR REPLACE TEMP VIEW by_shop AS {VIEWS['by_shop']}")
    for name, select in VIEWS.items():
        rows = session.read(name)
        judge.register("found", rows)
        names = ", ".join(rows.column_names)
        for one, other in (("found", f"({select})"), (f"({select})", "found")):
            more = f"SELECT {names} FROM {one} EXCEPT ALL SELECT {names} FROM {other}"
            ((left,),) = _do(judge, f"SELECT count(*) FROM ({more})")
            assert left == 0, f"{name} differs from DuckDB's in {left} rows"
        judge.unregister("found")


def _do(judge: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = judge.execute(sql).fetchall()
    return found


def _table(found: list[Figures]) -> str:
    head = (
        "units",
        "vnodes moved",
        "their state, MB",
        "move, s",
        "epoch, s",
        "ordinary",
        "",
        "written, MB",
        "ordinary",
        "",
    )
    rows = [
        (
            one.route,
            str(one.vnodes),
            f"{one.moved_bytes / 1e6:.1f}",
            f"{one.move_s:.3f}",
            f"{one.seconds:.2f}",
            f"{one.ordinary_seconds:.2f}",
            f"{one.seconds / one.ordinary_seconds:.2f}x",
            f"{one.bytes / 1e6:.2f}",
            f"{one.ordinary_bytes / 1e6:.2f}",
            f"{one.bytes / one.ordinary_bytes:.2f}x",
        )
        for one in found
    ]
    return align_cells([head, *rows], [False, *[True] * 9])
