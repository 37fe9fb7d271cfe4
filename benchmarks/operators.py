"""Every operator as a view: its first load, and an epoch of a thousand changes, on two sizes of the same table.

    python -m benchmarks operators
    python -m benchmarks operators --rows 200000 1000000 --only rank lag

A view is created over a loaded table, updated by some epochs, and dropped; then the next one follows. The first load is
measured with the same view over sources (Parquet files with the same rows) in a separate store: on Spark, and without
Spark in worker processes, which the first such load starts. The peer runs on the same files: Spark computes and writes
the same SELECT, once warm. The inner join and the plain group-by come first. The epoch of another operator is shown as
a multiple of its peer's among these two. Growth is the epoch at the largest size over that at the smallest.
"""

import argparse
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.report import Figure, write_json
from tussock import Session
from tussock.jobs.driver.runner import NeedsSparkError
from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.compaction import compact_store, compact_with_spark
from tussock.jobs.upkeep.vacuum import apply_retention, sweep_store
from tussock.statestore.errors import InputError

RESULTS = Path(__file__).parent / "results"
GROWTH_BUDGET = 1.3
LOAD_BUDGET = 1.5
_ROWS_A_GROUP = 20
_LOAD_ROWS = 2_500_000
_DAY = 86_400  # seconds
_RANGES = 10  # rows of `ranges`, the input of the join without an equality


@dataclass(frozen=True, slots=True)
class Operator:
    """A view to measure.

    `beside`: operator to compare its epoch with. `partition`: it recomputes touched partitions.
    """

    name: str
    sql: str
    beside: str = "group by"
    partition: bool = False


OPERATORS = (
    Operator("group by", "SELECT g, count(*) AS n, sum(v) AS total, max(v) AS best FROM facts GROUP BY g"),
    Operator("inner join", "SELECT id, v, w FROM facts JOIN parts USING (g)", "inner join"),
    Operator("left join", "SELECT id, v, w FROM facts LEFT JOIN parts ON facts.g = parts.g AND v < w", "inner join"),
    Operator(
        "right join", "SELECT id, parts.g, w FROM facts RIGHT JOIN parts ON facts.g = parts.g AND v < w", "inner join"
    ),
    Operator(
        "full join", "SELECT id, parts.g, w FROM facts FULL JOIN parts ON facts.g = parts.g AND v < w", "inner join"
    ),
    Operator(
        "semi join",
        "SELECT id, v FROM facts WHERE EXISTS (SELECT 1 FROM parts WHERE parts.g = facts.g AND v < w)",
        "inner join",
    ),
    Operator(
        "anti join",
        "SELECT id, v FROM facts WHERE NOT EXISTS (SELECT 1 FROM parts WHERE parts.g = facts.g AND v < w)",
        "inner join",
    ),
    Operator(
        "existence join",
        "SELECT id, v FROM facts WHERE g IN (SELECT g FROM parts WHERE w < 50000) OR v < 1000",
        "inner join",
    ),
    Operator("inequality join", "SELECT id, r FROM facts JOIN ranges ON v BETWEEN low AND high", "inner join"),
    Operator("scalar subquery", "SELECT id, v FROM facts WHERE v > (SELECT avg(w) FROM parts)", "inner join"),
    Operator("union all", "SELECT id, v FROM facts UNION ALL SELECT g, w FROM parts", "inner join"),
    Operator("distinct", "SELECT DISTINCT g, v % 10 AS t FROM facts"),
    Operator("intersect", "SELECT g FROM facts WHERE v < 50000 INTERSECT SELECT g FROM parts WHERE w < 50000"),
    Operator(
        "rollup",
        "SELECT g % 1000 AS c, v % 10 AS t, count(*) AS n, sum(v) AS total FROM facts "
        "GROUP BY ROLLUP (g % 1000, v % 10)",
    ),
    Operator("explode", "SELECT id, e FROM facts LATERAL VIEW explode(array(v, v + 1)) x AS e"),
    Operator("count distinct", "SELECT g, count(DISTINCT v) AS n FROM facts GROUP BY g"),
    Operator(
        "two distincts",
        "SELECT g, count(DISTINCT v) AS n, count(DISTINCT s) AS m, sum(v) AS total FROM facts GROUP BY g",
    ),
    Operator("stddev", "SELECT g, stddev(x) AS d, corr(x, v) AS c FROM facts GROUP BY g"),
    Operator("percentile", "SELECT g, percentile(v, 0.9) AS p, median(x) AS m FROM facts GROUP BY g"),
    Operator("max by", "SELECT g, max_by(s, v) AS s, first(v) AS f FROM facts GROUP BY g"),
    Operator("collect list", "SELECT g, collect_list(v) AS vs FROM facts GROUP BY g"),
    Operator("rank", "SELECT id, rank() OVER (PARTITION BY g ORDER BY v) AS r FROM facts", partition=True),
    Operator("lag", "SELECT id, v - lag(v) OVER (PARTITION BY g ORDER BY ts, id) AS d FROM facts", partition=True),
    Operator("running sum", "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY ts, id) AS r FROM facts", partition=True),
    Operator(
        "group top 3",
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY v DESC, id) AS r FROM facts) WHERE r <= 3",
    ),
    Operator("top 10", "SELECT id, v FROM facts ORDER BY v DESC, id LIMIT 10"),
    Operator(
        "tumbling window",
        "SELECT window(ts, '1 hour').start AS at, count(*) AS n, sum(v) AS total FROM facts "
        "GROUP BY window(ts, '1 hour')",
    ),
    Operator(
        "sliding window",
        "SELECT window.start AS at, count(*) AS n FROM facts GROUP BY window(ts, '1 hour', '20 minutes')",
    ),
    Operator(
        "session window",
        "SELECT g, session_window.start AS at, count(*) AS n FROM facts GROUP BY g, session_window(ts, '5 minutes')",
    ),
    Operator("temporal filter", "SELECT id, v FROM facts WHERE ts > now() - INTERVAL 1 DAY"),
    Operator("computed by Spark", "SELECT id, soundex(s) AS a, get_json_object(s, '$.a') AS b FROM facts"),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the benchmark."""

    rows: int
    changed: int
    epochs: int
    warm_up: int


@dataclass(slots=True)
class Measured:
    """Seconds of one operator at one size."""

    load: float  # from files, on Spark
    load_alone: float  # from files, without Spark; NaN if the view needs Spark
    spark: float  # Spark computes and writes the same rows
    epochs: list[float] = field(default_factory=list)

    @property
    def epoch(self) -> float:
        return statistics.median(self.epochs) if self.epochs else math.nan


class Facts:
    """A store with the tables of one size, and the changes of the epochs.

    Every row follows from its number, its version and the start time of the run.
    """

    def __init__(self, spark: SparkSession, folder: Path, sizes: Sizes) -> None:
        self.spark, self.sizes, self.folder = spark, sizes, folder
        self.session = Session(str(folder / "store"), spark)
        self._random = np.random.default_rng(7)
        self._began = (
            int(time.time()) - _DAY - sizes.rows // _ROWS_A_GROUP // 2
        )  # half of the facts are older than a day
        self._next = sizes.rows
        self._load()

    def measure(self, operator: Operator) -> Measured:
        """Measure first load, epochs, and Spark's time. Raises InputError if the view is not supported."""
        alone = self._load_seconds(operator, None)
        measured = Measured(self._load_seconds(operator, self.spark), alone, self._spark_seconds(operator))
        if not self.sizes.epochs:
            return measured
        session = self.session
        session.execute(f"CREATE MATERIALIZED VIEW measured AS {operator.sql}")
        session.flush()
        try:
            for epoch in range(-self.sizes.warm_up, self.sizes.epochs):
                self._change()
                began = time.perf_counter()
                session.flush()
                if epoch >= 0:
                    measured.epochs.append(time.perf_counter() - began)
                self._tidy()
        finally:
            session.execute("DROP MATERIALIZED VIEW measured")
            session.flush()
            self._tidy()
        return measured

    def close(self) -> None:
        """Close the store."""
        self.session.close()

    # --- rows ---

    def _rows(self, ids: np.ndarray, version: int) -> pa.Table:
        values = (ids * 7_919 + version * 104_729) % 100_000
        moments = self._began * 1_000_000 + ids * 1_000_000 // _ROWS_A_GROUP
        columns = {
            "id": pa.array(ids),
            "g": pa.array(ids // _ROWS_A_GROUP),
            "v": pa.array(values),
            "x": pa.array(values / 7),
            "s": pa.array(np.char.add('{"a": ', np.char.add((values % 100).astype(str), "}"))),
            "ts": pa.array(moments).cast(pa.timestamp("us", tz="UTC")),
        }
        return pa.table(columns)

    def _load(self) -> None:
        session, rows = self.session, self.sizes.rows
        session.execute(
            "CREATE TABLE facts (id bigint, g bigint, v bigint, x double, s string, ts timestamp, PRIMARY KEY (id))"
        )
        session.execute("CREATE TABLE parts (g bigint, w bigint, PRIMARY KEY (g))")
        session.execute("CREATE TABLE ranges (r bigint, low bigint, high bigint, PRIMARY KEY (r))")
        groups = np.arange(rows // _ROWS_A_GROUP)
        lows = np.arange(_RANGES) * (100_000 // _RANGES)
        tables = {
            "parts": pa.table({"g": groups, "w": groups * 31 % 100_000}),
            "ranges": pa.table({"r": np.arange(_RANGES), "low": lows, "high": lows + 100_000 // _RANGES - 1}),
        }
        for name, table in tables.items():
            self._keep(name, table, 0)
        for number, first in enumerate(range(0, rows, _LOAD_ROWS)):
            self._keep("facts", self._rows(np.arange(first, min(rows, first + _LOAD_ROWS)), 0), number)
        if not self.sizes.epochs:
            return
        for name in (*tables, "facts"):
            for file in sorted(self._files(name).iterdir()):
                session.insert(name, pq.read_table(file))
                session.flush()
        apply_retention(session.meta, Retention(1, 0))
        compact_with_spark(self.spark, session.meta, full=True)
        sweep_store(session.meta)

    def _keep(self, name: str, rows: pa.Table, number: int) -> None:
        """Write the same rows as Parquet, for Spark."""
        folder = self._files(name)
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, folder / f"{number}.parquet", compression="zstd")

    def _files(self, name: str) -> Path:
        return self.folder / "parquet" / name

    def _change(self) -> None:
        """Change the table: half updates all over it, a quarter inserts, a quarter deletes."""
        quarter = self.sizes.changed // 4
        touched = self._random.choice(self.sizes.rows, 3 * quarter, replace=False)
        new = np.arange(self._next, self._next + quarter)
        self._next += quarter
        self.session.insert("facts", self._rows(np.concatenate([touched[: 2 * quarter], new]), self._next))
        gone = ", ".join(map(str, touched[2 * quarter :].tolist()))
        self.session.execute(f"DELETE FROM facts WHERE id IN ({gone})")

    def _tidy(self) -> None:
        """Do the work of the upkeep DAG in this process."""
        apply_retention(self.session.meta, Retention(1, 0))
        compact_store(self.session.meta)
        sweep_store(self.session.meta)

    def _load_seconds(self, operator: Operator, spark: SparkSession | None) -> float:
        """Seconds of the view's first epoch over files; NaN if `spark` is None and the view needs it."""
        store = self.folder / "from-files"
        try:
            with Session(str(store), spark) as session:
                for name in ("facts", "parts", "ranges"):
                    session.execute(
                        f"CREATE SOURCE {name} USING parquet OPTIONS (path '{self._files(name)}', retain 'none')"
                    )
                session.execute(f"CREATE MATERIALIZED VIEW measured AS {operator.sql}")
                began = time.perf_counter()
                session.flush()
                return time.perf_counter() - began
        except NeedsSparkError:
            return math.nan
        finally:
            shutil.rmtree(store, ignore_errors=True)

    def _spark_seconds(self, operator: Operator) -> float:
        """Seconds of Spark to compute the view from Parquet and write it, in the second run."""
        seconds = 0.0
        for name in ("facts", "parts", "ranges"):
            self.spark.read.parquet(str(self._files(name))).createOrReplaceTempView(name)
        for _ in range(2):
            began = time.perf_counter()
            self.spark.sql(operator.sql).write.mode("overwrite").parquet(str(self.folder / "computed"))
            seconds = time.perf_counter() - began
        return seconds


def main(arguments: list[str]) -> int:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks operators", description="Measure every operator: first load, and an epoch."
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="sizes of the table")
    parser.add_argument("--changed", type=int, default=1_000, help="changed rows per epoch")
    parser.add_argument("--epochs", type=int, default=5, help="measured epochs per operator; 0: only first loads")
    parser.add_argument("--warm-up", type=int, default=2, help="epochs before the measured ones")
    parser.add_argument("--only", nargs="+", help="names of operators; their peers are measured as well")
    parser.add_argument("--scratch", type=Path, help="folder of the stores; default: a temporary folder")
    parser.add_argument("--driver-memory", default="3g")
    parser.add_argument("--out", type=Path, help="the JSON file; default: benchmarks/results/<time>.json")
    options = parser.parse_args(arguments)
    chosen = _chosen(options.only)
    from tussock.jobs.spark.session import build_spark

    found: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="tussock-bench-") as temporary:
        scratch = options.scratch or Path(temporary)
        settings = {"spark.driver.memory": options.driver_memory, "spark.local.dir": str(scratch / "spark")}
        spark = build_spark("tussock-benchmarks", settings=settings)
        spark.sparkContext.setLogLevel("OFF")
        try:
            for rows in sorted(options.rows):
                facts = Facts(spark, scratch / str(rows), Sizes(rows, options.changed, options.epochs, options.warm_up))
                _progress(f"{rows:,} rows: loaded")
                for operator in chosen:
                    try:
                        found.setdefault(operator.name, []).append(facts.measure(operator))
                        _progress(f"{rows:,} rows: {operator.name}: {found[operator.name][-1]}")
                    except InputError as err:
                        _progress(f"{rows:,} rows: {operator.name} is not supported: {err}")
                facts.close()
        finally:
            spark.stop()
    print(table_of(chosen, found, sorted(options.rows)))
    out = options.out or RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}.json"
    write_json(
        out, [], {"rows": options.rows, "changed": options.changed}, _figures(chosen, found, sorted(options.rows))
    )
    print(f"wrote {out}")
    return 0


def _chosen(only: Sequence[str] | None) -> tuple[Operator, ...]:
    if not only:
        return OPERATORS
    known = {o.name: o for o in OPERATORS}
    if unknown := [name for name in only if name not in known]:
        sys.exit(f"unknown operator {unknown[0]!r}; expected some of: {', '.join(known)}")
    wanted = {*only, *(known[name].beside for name in only)}
    return tuple(o for o in OPERATORS if o.name in wanted)


def table_of(operators: Sequence[Operator], found: dict[str, list[Measured]], sizes: Sequence[int]) -> str:
    """One line per operator: at each size, both first loads over Spark's time, the epoch, and the epoch's ratios."""
    lines = []
    for at, rows in enumerate(sizes):
        lines += [
            f"{rows:,} rows",
            f"  {'':20}{'load s':>9}{'/ Spark':>9}{'alone':>9}{'/ Spark':>9}"
            f"{'epoch s':>9}{'/ peer':>8}{'Spark / epoch':>15}{'growth':>9}",
        ]
        for operator in operators:
            if len(measured := found.get(operator.name, [])) <= at:
                lines.append(f"  {operator.name:20} not measured")
                continue
            here, peer = measured[at], found[operator.beside][at]
            growth = "" if at == 0 else f"{here.epoch / measured[0].epoch:.2f}x"
            ratios = (
                f"{here.load / here.spark:>8.2f}x{here.load_alone:>9.2f}{here.load_alone / here.spark:>8.2f}x"
                f"{here.epoch:>9.3f}{here.epoch / peer.epoch:>7.2f}x"
                f"{here.spark / here.epoch:>14.2f}x"
            )
            lines.append(f"  {operator.name:20}{here.load:>9.2f}{ratios}{growth:>9}")
    return "\n".join(lines)


def _figures(operators: Sequence[Operator], found: dict[str, list[Measured]], sizes: Sequence[int]) -> list[Figure]:
    figures = []
    for operator in operators:
        measured = found.get(operator.name, [])
        for rows, here in zip(sizes, measured, strict=False):
            facts = {
                "load s": here.load,
                "load without Spark s": here.load_alone,
                "spark s": here.spark,
                "epochs s": here.epochs,
            }
            if here.epochs:
                figures.append(Figure(f"{operator.name}: an epoch at {rows:,} rows", here.epoch, "s", facts=facts))
            figures.append(
                Figure(
                    f"{operator.name}: first load over Spark's, {rows:,} rows",
                    here.load / here.spark,
                    "x",
                    at_most=LOAD_BUDGET,
                )
            )
        if len(measured) > 1 and measured[-1].epochs:
            growth = measured[-1].epoch / measured[0].epoch
            figures.append(
                Figure(f"{operator.name}: growth", growth, "x", at_most=None if operator.partition else GROWTH_BUDGET)
            )
    return figures


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
