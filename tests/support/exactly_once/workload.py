"""One small pipeline with every kind of input and four levels, some epochs of it, and the expected rows after them.

Epoch one is the template that every test copies. The input after it: new Parquet and CSV files, changed files, inserts,
updates and deletes, views created over existing rows, and one view that replaces another. Epoch two takes all of it
except some files. Those files and the input of the late views exceed one epoch, so more epochs follow, and the epoch
job runs them as a train. Runs of single epochs, each to its commit, produce the same bytes.
"""

import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

from tests.support.waiting import eventually
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.reading.reader import scan_relation
from tussock.jobs.session import Session
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.types import arrow_type

BEFORE = datetime(
    2023, 11, 13, 20, tzinfo=UTC
)  # the moment of the template's epoch: rows enter and expire until the clock's time
CLOCK_MS = 1_700_000_000_000  # every run's, so that undisturbed and disturbed runs allot the same epochs
NOW = datetime.fromtimestamp(CLOCK_MS // 1000, UTC)
MAX_EPOCH_BYTES = 45_000  # one file of sales per epoch; the late views read more, so several epochs build them
PADDING = "".join(random.Random(1).choices("0123456789abcdef", k=12_500))  # of a file of sales
POLICY = FlushPolicy(target_bytes=4096)  # small: several SSTs an epoch, some uploaded by the actors themselves

VIEWS = {
    "by_group": "SELECT g, count(*) AS n, sum(amount) AS s, max(amount) AS hi FROM sales GROUP BY g",
    "joined": "SELECT t.k, t.a, b.n, b.s FROM t JOIN by_group b ON t.g = b.g",
    "shapes": "SELECT g, count(DISTINCT amount) AS n, median(amount) AS mid, stddev(amount) AS sd, bit_xor(id) AS x, "
    "max_by(amount, id) AS last, approx_count_distinct(id) AS ids FROM sales GROUP BY g",
    "words": "SELECT n.word, count(*) AS c, min(t.a) AS lo FROM notes n JOIN t ON n.g = t.g GROUP BY n.word",
    "unsold": "SELECT t.k, t.a, b.n FROM t LEFT JOIN by_group b ON t.g = b.g AND b.n > t.a",
    "unseen": "SELECT k FROM t WHERE a NOT IN (SELECT g FROM sales WHERE amount > 97)",
    "unequal": "SELECT t.k, x.id FROM t LEFT JOIN sales x ON x.amount < t.a - 8 AND x.id > t.k + 1100",
    "above_mean": "SELECT k, a, (SELECT max(g) FROM sales) AS hi FROM t "
    "WHERE a > (SELECT avg(amount) / 10 FROM sales) OR k IN (SELECT id - 1000 FROM sales)",
    "all_ids": "SELECT id, amount FROM sales UNION ALL SELECT k, a FROM t",
    "named": "SELECT t.k, v.name, r.id FROM t "
    "JOIN (VALUES (1, 'one'), (3, 'three'), (3, 'drei')) AS v(g, name) ON t.g = v.g "
    "JOIN range(0, 2000, 2) r ON t.k = r.id",
    "rolled": "SELECT g, a, count(*) AS n FROM t GROUP BY ROLLUP (g, a)",
    "duplicates": "SELECT e.word, count(*) AS n, sum(t.a) AS s FROM e JOIN t ON e.g = t.g GROUP BY e.word",
    "running": "SELECT k, sum(a) OVER (PARTITION BY g ORDER BY k) AS total, "
    "lag(a) OVER (PARTITION BY g ORDER BY k) AS before FROM t",
    "deviation": "SELECT k, stddev(a) OVER (PARTITION BY g ORDER BY k) AS sd, "
    "mode(a, true) OVER (PARTITION BY g ORDER BY k ROWS 3 PRECEDING) AS often FROM t",
    "visits": "SELECT g, session_window.start AS b, session_window.end AS e, count(*) AS n FROM "
    "(SELECT g, timestamp_seconds(a * 60) AS at FROM t) GROUP BY g, session_window(at, '1 minute')",
    "by_now": "SELECT g, count(*) AS n, max(id) AS last FROM sales "
    "WHERE timestamp_seconds(1699913600 + amount * 1000) <= now() "
    "AND timestamp_seconds(1699913600 + amount * 1000) > now() - INTERVAL 30 HOURS GROUP BY g",
    "first_two": "SELECT id, g FROM "
    "(SELECT *, row_number() OVER (PARTITION BY g ORDER BY amount DESC, id) AS n FROM sales) WHERE n <= 2",
    "nested": "SELECT array(g, NULL) AS gs, max(named_struct('a', a, 'k', k)) AS top, count(*) AS n FROM t "
    "GROUP BY array(g, NULL)",
    "scored": "SELECT score_of(a, g) AS score, count(*) AS n FROM t GROUP BY 1",
    "best": "SELECT k, s FROM joined ORDER BY s DESC, k LIMIT 3",
    "rejected": "SELECT raw, count(*) AS n FROM notes__rejects GROUP BY raw",
}
LATE_VIEWS = {
    "late_table": "SELECT g, count(*) AS n, sum(a) AS a FROM t GROUP BY g",
    "late_files": "SELECT g, min(amount) AS lo, avg(amount) AS mean FROM sales WHERE amount > 2 GROUP BY g",
    "late_view": "SELECT n, count(*) AS k FROM joined GROUP BY n",
}
#: These replace the views of the same names, while other views read them.
REPLACED = {
    "by_group": "SELECT g, count(*) AS n, sum(amount) AS s, max(amount) AS hi FROM sales "
    "WHERE amount % 10 <> 3 GROUP BY g"
}
LEVELS = 4
SCORING = "import pyarrow.compute as pc\n\ndef scored(a, g):\n    return pc.add(pc.multiply(a, 10), g)\n"

_SALES = pa.schema([("id", pa.int32()), ("g", pa.int32()), ("amount", pa.int32())], {"padding": PADDING})
_T = pa.schema([("k", pa.int32()), ("g", pa.int32()), ("a", pa.int32())])


def write_files(data: Path, epoch: int) -> None:
    """The files of the template, or the files that wait after it."""
    (data / "sales").mkdir(parents=True, exist_ok=True)
    (data / "notes").mkdir(exist_ok=True)
    (data / "functions").mkdir(exist_ok=True)
    (data / "functions" / "scoring.py").write_text(SCORING)
    sales = []
    for part in range(3):
        ids = [epoch * 1000 + part * 100 + i for i in range(60)]
        sales.append(pa.table({"id": ids, "g": [i % 7 for i in ids], "amount": [(i * 37) % 101 for i in ids]}, _SALES))
        notes = "".join(f"{i % 7},{'abc'[i % 3] * (i % 4)}w\n" for i in ids[::5])
        (data / "notes" / f"{epoch}-{part}.csv").write_text(notes + "none,x\n" * part)
    for part, rows in enumerate(sales if epoch > 1 else [pa.concat_tables(sales)]):  # the template's are one file
        pq.write_table(rows, data / "sales" / f"{epoch}-{part}.parquet")
    _settle()


def _settle() -> None:
    """Wait until the files are older than the clock's last tick.

    Newer files are pinned in another way: an immediate run would write other bytes than a later one.
    """
    written = time.time()
    eventually("the clock's next tick", lambda: time.time() > written + 0.05)


def correct_files(data: Path) -> None:
    """Change two files that the template has taken: fewer or more rows, other rows, and other unreadable records."""
    ids = [1000 + i for i in range(0, 60, 2)]
    rows = {"id": ids, "g": [i % 7 for i in ids], "amount": [(i * 41) % 101 for i in ids]}
    pq.write_table(pa.table(rows, _SALES), data / "sales" / "1-0.parquet")
    (data / "notes" / "1-1.csv").write_text(
        "".join(f"{i % 7},{'bcd'[i % 3]}w\n" for i in range(15)) + "none,x\nnone,y\n"
    )
    _settle()


def first_statements(data: Path) -> str:
    """The statements before epoch one, as a script in `data`."""
    views = "".join(f"CREATE MATERIALIZED VIEW {name} AS {sql};\n" for name, sql in VIEWS.items())
    rows = ", ".join(f"({k}, {k % 7}, {k * 3 % 11})" for k in range(400))
    words = ", ".join(f"({i % 7}, '{'xyz'[i % 3]}')" for i in range(50))
    return (
        f"CREATE SOURCE sales (id int, g int, amount int) USING parquet "
        f"OPTIONS (path '{data}/sales', on_change 'restate');\n"
        "CREATE SOURCE notes (g int, word string) USING csv "
        f"OPTIONS (path '{data}/notes', on_change 'restate', on_error 'quarantine');\n"
        f"CREATE TABLE t (k int, g int, a int, PRIMARY KEY (k));\nCREATE TABLE e (g int, word string);\n"
        "CREATE FUNCTION score_of (a int, g int) RETURNS int LANGUAGE PYTHON AS 'scoring:scored';\n"
        f"{views}"
        f"INSERT INTO t VALUES {rows};\nINSERT INTO e VALUES {words};"
    )


def second_statements() -> str:
    """The statements that wait after epoch one."""
    views = "".join(f"CREATE MATERIALIZED VIEW {name} AS {sql};\n" for name, sql in LATE_VIEWS.items())
    replaced = "".join(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {sql};\n" for name, sql in REPLACED.items())
    return (
        f"{replaced}"
        "UPDATE t SET g = (g + 3) % 7, a = a + 1 WHERE k % 5 = 0;\n"
        f"{views}"
        "DELETE FROM t WHERE k % 9 = 4;\n"
        "INSERT INTO t VALUES (4, 1, 100), (1000, 2, 200), (1001, 3, NULL);\nUPDATE t SET a = 7 WHERE k = 1000;\n"
        "INSERT INTO e VALUES (1, 'x'), (1, 'x');\nALTER TABLE e ADD COLUMN size int DEFAULT 3;\n"
        "INSERT INTO e VALUES (6, 'new', NULL);\nUPDATE e SET word = concat(word, '!'), size = size + g WHERE g = 1;\n"
        "DELETE FROM e WHERE g = 2 AND word = 'y';"
    )


def rows_of_e() -> pa.Table:
    """Table e, which has no key, after epoch two, by plain Python."""
    rows = [(i % 7, "xyz"[i % 3]) for i in range(50)] + [(1, "x"), (1, "x")]
    rows = [(g, word) for g, word in rows if (g, word) != (2, "y")]
    sized = [(g, word + "!", 4) if g == 1 else (g, word, 3) for g, word in rows] + [(6, "new", None)]
    columns = zip(*sized, strict=True)
    return pa.table(
        [pa.array(c, t) for c, t in zip(columns, (pa.int32(), pa.string(), pa.int32()), strict=True)],
        ["g", "word", "size"],
    )


def rows_of_t() -> pa.Table:
    """Table t after epoch two, by plain Python."""
    rows = {k: [k % 7, k * 3 % 11] for k in range(400)}
    for k in range(0, 400, 5):
        rows[k] = [(rows[k][0] + 3) % 7, rows[k][1] + 1]
    kept: dict[int, tuple[int, int | None]] = {k: (g, a) for k, (g, a) in rows.items() if k % 9 != 4}
    kept |= {4: (1, 100), 1000: (2, 7), 1001: (3, None)}
    return pa.Table.from_pylist([{"k": k, "g": g, "a": a} for k, (g, a) in kept.items()], _T)


def truth(spark: SparkSession, data: Path) -> dict[str, pa.Table]:
    """Every relation with rows after epoch two, by Spark over the same input."""
    judge = spark.newSession()
    judge.conf.set("spark.sql.ansi.enabled", "true")
    scored: Any = lambda a, g: a * 10 + g  # noqa: E731
    judge.udf.register("score_of", pandas_udf(scored, "int"))
    judge.read.parquet(str(data / "sales")).createOrReplaceTempView("sales")
    notes = (
        judge.read.schema("g int, word string, bad string")
        .option("columnNameOfCorruptRecord", "bad")
        .csv(str(data / "notes"))
        .cache()
    )
    notes.where("bad IS NULL").createOrReplaceTempView("notes")
    notes.where("bad IS NOT NULL").selectExpr("bad AS raw").createOrReplaceTempView("notes__rejects")
    found = {"t": rows_of_t(), "e": rows_of_e()}
    for name, rows in found.items():
        judge.createDataFrame(rows).createOrReplaceTempView(name)
    for name, sql in {**VIEWS, **REPLACED, **LATE_VIEWS}.items():
        answer = judge.sql(sql.replace("now()", f"timestamp_millis({CLOCK_MS})"))
        answer.createOrReplaceTempView(name)
        found[name] = answer.toArrow()
    return found


def open_meta(store: Path | str, writer: str = "test") -> MetaStore:
    """The store, with the clock that all runs share."""
    return MetaStore(open_object_store(str(store)), writer, lambda: CLOCK_MS)


def prepare(spark: SparkSession, store: Path, data: Path) -> None:
    """Make the template: a store at epoch one, with all that waits for epoch two."""
    write_files(data, 1)
    MetaStore.init(open_object_store(str(store)), units=3)
    with Session(str(store), spark, create=False, runner=SparkRunner(spark, POLICY)) as session:
        session.meta = open_meta(store, "template")
        session.execute(first_statements(data), base=data)
        session.flush(moment=BEFORE)
        session.execute(second_statements())
    write_files(data, 2)
    correct_files(data)


def resume(spark: SparkSession, store: Path) -> None:
    """Start again as the next driver does: finish the open barrier, then process the waiting input."""
    meta = open_meta(store, "resumer")
    while (barrier := inject_barrier(meta, settings=EpochSettings(max_bytes=MAX_EPOCH_BYTES))) is not None:
        run_epoch(SparkRunner(spark, POLICY), meta, barrier)


def read(meta: MetaStore, name: str) -> pa.Table:
    """A relation's rows at the committed epoch."""
    version = meta.read_latest()
    (relation,) = [r for r in version.catalog.live_relations() if r.name == name]
    schema = pa.schema([(c.name, arrow_type(c.type)) for c in relation.columns])
    return pa.concat_tables([schema.empty_table(), *scan_relation(meta.objects, version, relation, version.epoch)])
