"""Read 1,000 changed rows of a table in Postgres through its log of changes: CPU time by the size of the table.

    python -m benchmarks server-sources
    python -m benchmarks server-sources --rows 1000000 10000000

The source stores the table's rows by their key, under a view over all rows. The store is compacted after the first
load, as its DAG does. Each round updates 900 rows of random keys, deletes 100, and runs one epoch in this process. It
keeps its caches, as a resident process does; `--cold` empties them first, as a new process has them. The CPU time is
that of this process and of the server during the epoch, without the statements that change the rows. Each round begins
with a checkpoint, as the server makes one every few minutes: the first change of a page after it logs the whole page,
and otherwise a small table would log fewer pages. The view is compared with the server's own answer at the end.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psycopg

from benchmarks.server_changes import REAPED_S, read_cpu_s
from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.postgres import PostgresServer, password_set
from tussock.jobs.barriers.release import release_taken_input
from tussock.jobs.barriers.source_holds import require_not_held
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import AggCall, AggFunction, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, KeyedBy
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.meta.store import MetaStore

BUDGET = 1.3
UPDATED, DELETED = 900, 100
SHOPS = 200
_FIELDS = (Field("id", "bigint"), Field("shop", "int"), Field("v", "bigint"), Field("note", "string"))
_PER_SHOP = (Field("shop", "int"), Field("n", "bigint"), Field("total", "bigint"))
_VIEW = Aggregate(
    Scan("orders", (1, 2), _FIELDS[1:3]),
    (Column(0, "int"),),
    (AggCall(AggFunction.COUNT, "bigint", ()), AggCall(AggFunction.SUM, "bigint", (Column(1, "bigint"),))),
    _PER_SHOP,
)
_FILL = f"""
    CREATE TABLE orders (id bigint PRIMARY KEY, shop int, v bigint, note text);
    INSERT INTO orders SELECT n, n % {SHOPS}, 0, md5(n::text) FROM generate_series(0, %s - 1) n;
"""
_ANSWER = "SELECT shop, count(*), sum(v)::bigint FROM orders GROUP BY shop ORDER BY shop"


def change_rows(address: str, ids: np.ndarray, value: int) -> None:
    """Update the rows of some keys in one transaction, and delete the last DELETED of them."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    with psycopg.connect(address) as connection:
        connection.execute("UPDATE orders SET v = %s WHERE id = ANY(%s)", (value, ids[:UPDATED].tolist()))
        connection.execute("DELETE FROM orders WHERE id = ANY(%s)", (ids[UPDATED:].tolist(),))


def run_epoch(meta: MetaStore) -> None:
    """Take what waits, and let the server forget it."""
    advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)
    release_taken_input(meta)


def measure(work: Path, count: int, rounds: int, *, cold: bool) -> tuple[float, float]:
    """Return the median CPU seconds and seconds of a round, after two warm ones."""
    draw, costs = np.random.default_rng(1), list[tuple[float, float]]()
    with password_set(), PostgresServer("wal_level=logical\nautovacuum=off\n") as server:
        address = server.create_database("bank")
        with psycopg.connect(address) as connection:
            for statement in _FILL.replace("%s", str(count)).split(";"):
                connection.execute(statement)
        where = {"host": str(server.folder), "dbname": "bank", "user": "owner", "table": "public.orders", "slot": "s"}
        meta = new_store(work / "store", units=2)
        source = CreateSource("orders", "postgres", _FIELDS, where, keyed=KeyedBy((0,)))
        append(meta, source, CreateView("per_shop", "SELECT …", _VIEW))
        began = time.monotonic()
        run_epoch(meta)
        print(f"{count:>12,} rows  first epoch {time.monotonic() - began:.1f} s", flush=True)
        list(compact_store(meta, CompactionOptions()))
        live = np.arange(count)
        for number in range(1, rounds + 3):
            ids = draw.choice(live, UPDATED + DELETED, replace=False)
            live = np.setdiff1d(live, ids[UPDATED:], assume_unique=True)
            change_rows(address, ids, number)
            if cold:
                process_cache().clear()
            start, cpu = time.perf_counter(), read_cpu_s(server.pid)
            run_epoch(meta)
            seconds = time.perf_counter() - start
            time.sleep(REAPED_S)
            costs.append((read_cpu_s(server.pid) - cpu, seconds))
        with psycopg.connect(address) as connection:
            answer = connection.execute(_ANSWER).fetchall()
        assert sorted(rows(meta, "per_shop")) == answer
    cpu_s, elapsed_s = zip(*costs[2:], strict=True)
    return statistics.median(cpu_s), statistics.median(elapsed_s)


def main(arguments: Sequence[str]) -> int:
    """Run and print. Returns 1 if the cost depends on the number of rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks server-sources")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="rows of the tables")
    parser.add_argument("--rounds", type=int, default=15, help="measured epochs")
    parser.add_argument("--cold", action="store_true", help="empty the caches before each epoch")
    options = parser.parse_args(arguments)
    costs = list[float]()
    for count in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            cpu_s, seconds = measure(Path(folder), count, options.rounds, cold=options.cold)
        costs.append(cpu_s)
        print(f"{count:>12,} rows  {1000 * seconds:,.0f} ms, {1000 * cpu_s:,.0f} ms CPU", flush=True)
    ratio = max(costs) / min(costs)
    print(f"{ratio:.2f} times the CPU time between the sizes (limit {BUDGET})")
    return int(ratio > BUDGET)
