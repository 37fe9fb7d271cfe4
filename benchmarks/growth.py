"""Growth of costs with the number of columns, views, files and so on:

CPU seconds at several sizes, and the fitted exponent.

    python -m benchmarks growth
    python -m benchmarks growth views files --most 3000

Stores of several sizes are created for each kind of thing. Each step of its use is measured separately, in CPU seconds
of this process and of the JVM. Epochs run without Spark. The fixed cost of a step is its cost for one thing, measured
in the same process. The exponent is the slope of log(cost - fixed cost) over log(size), by least squares over the sizes
at which the difference is at least 20 ms. So 1 is linear and 2 is quadratic. A step whose cost stays near its fixed
cost has no exponent.
"""

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cpu import cpu_seconds_between, tree_usage
from tussock import Session
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.compaction import compact_round, run_here
from tussock.jobs.upkeep.vacuum import clean_store
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.statestore.hummock.compaction_picker import CompactionOptions, pick_compactions

WARM = 10  # things of a first, uncounted run
AT_MOST = 1.2  # maximum exponent: as n log n between 100 and 10,000 things
LEAST_S = 0.02

Timed = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of things.

    `use(session, folder, n, timed)` creates n of them and uses them; each block of `with timed(step)` is a step.
    """

    name: str
    use: Callable[[Session, Path, int, Timed], None]
    most: int = 10_000  # largest size, so that the run stays affordable


def exponent_of(costs: dict[int, float]) -> float | None:
    """The slope of log(cost - fixed) over log(size).

    None if fewer than two sizes cost LEAST_S more than the fixed cost.

    Args:
        costs: by size, including size 1, which is the fixed cost.
    """
    more = {n: cost - costs[1] for n, cost in costs.items() if n > 1 and cost - costs[1] >= LEAST_S}
    if len(more) < 2:
        return None
    return float(np.polyfit([math.log(n) for n in more], [math.log(cost) for cost in more.values()], 1)[0])


# --- kinds ---


def columns(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """A table and a view of n columns."""
    names = [f"c{i}" for i in range(n)]
    with timed("CREATE TABLE"):
        session.execute(f"CREATE TABLE t (id bigint, {', '.join(f'{c} int' for c in names)}, PRIMARY KEY (id))")
    with timed("CREATE VIEW, SELECT *"):
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM t WHERE c0 > 0")
    with timed("CREATE VIEW, computed"):
        session.execute(
            f"CREATE MATERIALIZED VIEW w AS SELECT id, {', '.join(f'{c} + 1 AS {c}' for c in names)} FROM t"
        )
    with timed("CREATE VIEW, aggregates"):
        session.execute(
            "CREATE MATERIALIZED VIEW g AS SELECT id % 3 AS k, "
            f"{', '.join(f'sum({c}) AS {c}' for c in names)} FROM t GROUP BY 1"
        )
    row = {"id": pa.array([1]), **{c: pa.array([1], pa.int32()) for c in names}}
    for step in ("first epoch", "epoch of one row"):
        session.insert("t", pa.table(row))
        with timed(step):
            session.flush()
    with timed("read a view"):
        session.read("v")


def views(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """A table with n views; a row reaches one of them."""
    _table(session)
    with timed("CREATE n VIEWs"):
        for i in range(n):
            session.execute(
                f"CREATE MATERIALIZED VIEW v{i} AS SELECT k, count(*) AS n, sum(v) AS s FROM t WHERE k = {i} GROUP BY k"
            )
    with timed("first epoch"):
        session.flush()
    _rows(session, 2)
    session.flush()  # warms the caches
    _rows(session, 3)
    with timed("epoch of one row"):
        session.flush()
    with timed("status"):
        read_status(session.meta, datetime.now(UTC))


def chained_views(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """n views in a chain."""
    _table(session)
    with timed("CREATE n VIEWs"):
        for i in range(n):
            session.execute(
                f"CREATE MATERIALIZED VIEW v{i} AS SELECT id, k, v + 1 AS v FROM {f'v{i - 1}' if i else 't'}"
            )
    with timed("first epoch"):
        session.flush()
    _rows(session, 2)
    with timed("epoch of one row"):
        session.flush()


def view_files(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """A pipeline whose files define n views."""
    _table(session)
    select = "SELECT k, count(*) AS n FROM t WHERE k = {} GROUP BY k"
    text = ";\n".join(f"CREATE MATERIALIZED VIEW v{i} AS {select.format(i)}" for i in range(n))
    with timed("apply"):
        session.apply([(folder / "views.sql", text)])
    session.flush()
    with timed("plan, unchanged"):
        session.plan([(folder / "views.sql", text)])


def files(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """A source of n files."""
    for i in range(n):
        _parquet(folder / "files" / f"{i:05}.parquet", i)
    _source(session, folder / "files", timed)
    _parquet(folder / "files" / "a-late-one.parquet", n)
    with timed("epoch of one more file"):
        session.flush()
    with timed("epoch without news"):
        session.flush()
    with timed("a view over all"):
        session.execute("CREATE MATERIALIZED VIEW late AS SELECT k, count(*) AS n FROM s GROUP BY k")
        session.flush()


def partitions(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """A source of n folders with one file each, in Hive's layout."""
    for i in range(n):
        _parquet(folder / "files" / f"day={i}" / "a.parquet", i)
    _source(session, folder / "files" / "day=*", timed)


def _source(session: Session, folder: Path, timed: Timed) -> None:
    with timed("CREATE SOURCE"):
        session.execute(f"CREATE SOURCE s (id bigint, k bigint) USING parquet OPTIONS (path '{folder}')")
    session.execute("CREATE MATERIALIZED VIEW per_k AS SELECT k, count(*) AS n FROM s GROUP BY k")
    with timed("first epoch"):
        session.flush()


def statements(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """n statements in one epoch."""
    _table(session)
    with timed("n INSERTs"):
        for i in range(n):
            session.execute(f"INSERT INTO t VALUES ({i}, {i % 7}, {i})")
    with timed("epoch of n INSERTs"):
        session.flush()
    with timed("n UPDATEs by key"):
        for i in range(n):
            session.execute(f"UPDATE t SET v = 0 WHERE id = {i}")
    with timed("epoch of n UPDATEs"):
        session.flush()


def statement_files(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """A pipeline whose file contains n INSERTs."""
    _table(session)
    text = ";\n".join(f"INSERT INTO t VALUES ({i}, {i % 7}, {i})" for i in range(n))
    with timed("apply"):
        session.apply([(folder / "rows.sql", text)])
    with timed("epoch"):
        session.flush()
    with timed("plan, unchanged"):
        session.plan([(folder / "rows.sql", text)])


def rows_in_values(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """An INSERT of n rows in VALUES."""
    _table(session)
    with timed("INSERT"):
        session.execute(f"INSERT INTO t VALUES {', '.join(f'({i}, {i % 7}, {i})' for i in range(n))}")
    with timed("epoch"):
        session.flush()


def in_list(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """IN with n constants."""
    _table(session)
    constants = ", ".join(str(i) for i in range(n))
    _with_expression(session, f"SELECT id, v FROM t WHERE k IN ({constants})", timed)
    with timed("UPDATE and its epoch"):
        session.execute(f"UPDATE t SET v = 0 WHERE id IN ({constants})")
        session.flush()
    with timed("query"):
        session.query(f"SELECT * FROM t WHERE k IN ({constants})")


def branches(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """CASE with n branches."""
    _table(session)
    whens = " ".join(f"WHEN k = {i} THEN 'the name of {i}'" for i in range(n))
    _with_expression(session, f"SELECT id, CASE {whens} END AS name FROM t", timed)


def _with_expression(session: Session, select: str, timed: Timed) -> None:
    with timed("CREATE VIEW"):
        session.execute(f"CREATE MATERIALIZED VIEW v AS {select}")
    for key, step in ((2, "first epoch"), (3, "epoch of one row")):
        _rows(session, key)
        with timed(step):
            session.flush()


def epochs(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """n epochs in the log, with one SST each in the version."""
    _table(session)
    session.execute("CREATE MATERIALIZED VIEW per_k AS SELECT k, count(*) AS n FROM t GROUP BY k")
    with timed("n epochs"):
        for i in range(n):
            _rows(session, i)
            session.flush()
    with timed("another epoch"):
        _rows(session, n)
        session.flush()
    with timed("open and read"), Session(str(folder / "store"), runner="local") as other:
        other.read("per_k")
    with timed("changes since the first"):
        session.changes("t", session.meta.read_latest().epochs[1])
    with timed("status"):
        read_status(session.meta, datetime.now(UTC))
    with timed("compaction"):
        compact_round(session.meta, CompactionOptions(), run_here(session.meta.objects))
    with timed("vacuum"):
        clean_store(session.meta, Retention())


def ssts(session: Session, folder: Path, n: int, timed: Timed) -> None:
    """A version of about n SSTs."""
    small = 16 << 10
    with Session(str(folder / "ssts"), runner=LocalRunner(FlushPolicy(target_bytes=small))) as other:
        _table(other)
        meta, keys = other.meta, np.random.default_rng(3).permutation(400 * n) + 10
        other.insert("t", pa.table({"id": keys, "k": pa.array(keys % 97, pa.int32()), "v": keys}))
        with timed("epoch that uploads them"):
            other.flush()
        for key, step in ((1, ""), (2, "epoch of one row")):
            _rows(other, key)
            with timed(step):
                other.flush()
        with timed("open, read a key"), Session(str(folder / "ssts"), runner="local") as late:
            late.insert("t", pa.table({"id": keys[:1], "k": pa.array([1], pa.int32()), "v": [1]}))
            late.flush()
        with timed("full compaction"):
            compact_round(meta, CompactionOptions(target_bytes=small), run_here(meta.objects), full=True)
        with timed("epoch of one row after it"):
            _rows(other, 3)
            other.flush()
        with timed("what is due"):
            pick_compactions(
                meta.read_latest(), CompactionOptions(target_bytes=small), frozenset(), 1, meta.read_latest().epoch
            )
        with timed("vacuum"):
            clean_store(meta, Retention())
        print(f"{n}: {sum(map(len, meta.read_latest().levels))} SSTs", file=sys.stderr)


KINDS = (
    Kind("columns", columns, 3_000),
    Kind("views", views, 3_000),
    Kind("chained-views", chained_views, 300),
    Kind("view-files", view_files, 1_000),
    Kind("files", files),
    Kind("partitions", partitions),
    Kind("statements", statements, 1_000),
    Kind("statement-files", statement_files, 3_000),
    Kind("values", rows_in_values),
    Kind("in-list", in_list),
    Kind("case", branches, 1_000),
    Kind("epochs", epochs, 1_000),
    Kind("ssts", ssts, 1_000),
)


def _table(session: Session) -> None:
    session.execute("CREATE TABLE t (id bigint, k int, v bigint, PRIMARY KEY (id))")
    _rows(session, 1)
    session.flush()


def _rows(session: Session, key: int) -> None:
    session.insert("t", pa.table({"id": pa.array([key]), "k": pa.array([key % 97], pa.int32()), "v": pa.array([key])}))


def _parquet(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [number], "k": [number % 97]}), path)


# --- measuring ---


def measure(kind: Kind, n: int, folder: Path) -> dict[str, float]:
    """CPU seconds of each step for n things, in a new store below `folder`."""
    found: dict[str, float] = {}

    @contextmanager
    def timed(step: str) -> Iterator[None]:
        before = tree_usage()
        yield
        found[step] = cpu_seconds_between(before, tree_usage())

    folder.mkdir(parents=True)
    with Session(str(folder / "store"), runner="local", workers=1) as session:
        kind.use(session, folder, n, timed)
    return found


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if a cost grows faster than AT_MOST allows."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks growth", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("kinds", nargs="*", default=[k.name for k in KINDS], help="kinds of things (default: all)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[100, 300, 1_000, 3_000, 10_000], help="numbers of things"
    )
    parser.add_argument("--most", type=int, default=10_000, help="the largest size; some kinds have a lower bound")
    options = parser.parse_args(arguments)
    if unknown := {*options.kinds} - {k.name for k in KINDS}:
        parser.error(
            f"unknown kinds: {', '.join(sorted(unknown))}; expected some of {', '.join(k.name for k in KINDS)}"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    missed = False
    from tussock.jobs.spark.session import build_spark

    with tempfile.TemporaryDirectory(prefix="tussock-growth-") as root:
        spark = build_spark("tussock-growth", settings={"spark.local.dir": f"{root}/spark"})
        try:
            for kind in [k for k in KINDS if k.name in options.kinds]:
                sizes = [n for n in sorted(options.sizes) if n <= min(options.most, kind.most)]
                measure(kind, WARM, Path(root, kind.name, "warm"))
                costs = {n: measure(kind, n, Path(root, kind.name, str(n))) for n in [1, *sizes]}
                missed |= show(kind, costs)
        finally:
            spark.stop()
    return int(missed)


def show(kind: Kind, costs: dict[int, dict[str, float]]) -> bool:
    """Print a kind's steps. Returns whether one grows too fast."""
    print(f"{kind.name:46}" + "".join(f"{n:>9,}" for n in costs) + f"{'exponent':>10}")
    missed = False
    for step in costs[1]:
        exponent = exponent_of({n: found[step] for n, found in costs.items()})
        too_fast = exponent is not None and exponent > AT_MOST
        missed |= too_fast
        shown = "" if exponent is None else f"{exponent:.2f}"
        print(
            f"  {step:44}"
            + "".join(f"{found[step]:>9.2f}" for found in costs.values())
            + f"{shown:>10}{'  MISSED' if too_fast else ''}"
        )
    sys.stdout.flush()
    return missed
