"""The content of a release's store: its statements, its source files, and the expected rows after each step.

Plain data without an import of Tussock: `make_store.py` runs it with the code of the release that writes, and the test
with the code that reads. `T` and `U` are the tables' rows by key, computed in Python independently of the SQL.
"""

import os
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

#: The sources' folder. Sources are stored with absolute paths, and files are compared by path, size and time.
#: The archive therefore contains the files, and a reader of the store unpacks them to this path.
PLACE = Path("/tmp/tussock-store-of-0.1.0/sources")
FILE_TIME_NS = 1_700_000_000 * 10**9
START_MS = 1_700_000_000_000
MAX_EPOCH_BYTES = 3_500  # so that the open barrier takes some files and leaves others

T = dict[int, tuple[int | None, int, str | None]]  # k -> g, a, s
U = dict[int, tuple[str | None, float, Decimal, datetime, date | None]]  # id -> label, f, m, at, d

T_SCHEMA = pa.schema([("k", pa.int32()), ("g", pa.int32()), ("a", pa.int32()), ("s", pa.string())])
U_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("label", pa.string()),
        ("f", pa.float64()),
        ("m", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("d", pa.date32()),
    ]
)
SALES_SCHEMA = pa.schema([("id", pa.int32()), ("g", pa.int32()), ("amount", pa.int64()), ("price", pa.float64())])
NOTES_SCHEMA = "g int, word string"  # of Spark's CSV reader

#: Every operator, and views over views. Each ORDER BY is total.
VIEWS = {
    "kept": "SELECT k, a + 1 AS a1, upper(s) AS s FROM t WHERE a > 3 AND (s IS NOT NULL OR g = 2)",
    "joined": "SELECT t.k, u.id, t.a, u.label FROM t JOIN u ON t.g = u.id AND t.a > length(u.label)",
    "matched": "SELECT x.k AS k1, y.k AS k2 FROM t x JOIN t y ON x.g <=> y.g AND x.k < y.k WHERE x.a = y.a",
    "extremes": "SELECT g, min(a) AS lo, max(a) AS hi, max(s) AS last_s, count(*) AS n FROM t GROUP BY g",
    "different": "SELECT DISTINCT g, a FROM t",
    "totals": "SELECT count(*) AS n, sum(a) AS sa, avg(a) AS aa, min(s) AS first_s FROM t",
    "sums": "SELECT d, sum(f) AS sf, avg(f) AS af, sum(m) AS sm, max(at) AS last_at FROM u GROUP BY d",
    "by_group": "SELECT g, count(*) AS n, sum(amount) AS s, avg(price) AS p, max(amount) AS hi FROM sales GROUP BY g",
    "by_day": "SELECT date_trunc('month', at) AS m, count(*) AS n FROM u GROUP BY date_trunc('month', at)",
    "words": "SELECT n.word, count(*) AS c, sum(s.amount) AS a FROM notes n JOIN sales s ON n.g = s.g GROUP BY n.word",
    "over": "SELECT n, count(*) AS groups, max(hi) AS hi FROM by_group GROUP BY n",
    "best": "SELECT k, a, label FROM joined ORDER BY a DESC, k, id LIMIT 5 OFFSET 1",
    "stuck": "SELECT k, 100 / a AS q FROM t",
}
GONE = "gone"  # a view that an epoch drops
PAUSED = "stuck"  # paused by an abandoned barrier: it keeps its earlier rows
# In the log after the open barrier: the reading code creates them over rows and files of earlier epochs.
LATE_VIEWS = {
    "late_groups": "SELECT g, count(*) AS n, min(a) AS lo FROM t GROUP BY g",
    "late_files": "SELECT g, sum(price) AS p FROM sales WHERE amount > 20 GROUP BY g",
    "late_over": "SELECT n.groups, e.g FROM over n JOIN extremes e ON n.n = e.n + 4",
}


@dataclass(frozen=True)
class Moment:
    """The tables' rows and the taken files after an epoch."""

    t: T
    u: U
    files: tuple[str, ...]
    views: tuple[str, ...] = tuple(VIEWS)
    stuck: T = field(default_factory=dict)  # the rows of t that the paused view has read; empty: not paused


# --- files ---------------------------------------------------------------------------------------------------------

FIRST_FILES = ("notes/1-0.csv", "sales/1-0.parquet", "sales/1-1.parquet")
FOURTH_FILES = ("notes/4-0.csv", "sales/4-0.parquet")
BAD_FILE = "notes/5-0.csv"  # the open barrier skips it
OPEN_FILES = ("notes/5-1.csv", "notes/6-0.csv", "sales/5-0.parquet")
LAST_FILES = ("sales/6-0.parquet", "sales/6-1.parquet")


def write_file(name: str) -> None:
    """One source file, with the time that its ETag is made of."""
    path = PLACE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    epoch, part = (int(number) for number in path.stem.split("-"))
    ids = [epoch * 100 + part * 30 + i for i in range(30)]
    if name == BAD_FILE:
        path.write_text("1,fine\nnot a number,bad\n")
    elif path.suffix == ".csv":
        path.write_text("".join(f"{i % 5},{'abc'[i % 3] * (i % 4)}w\n" for i in ids[::3]))
    else:
        rows = {
            "id": ids,
            "g": [i % 6 for i in ids],
            "amount": [i * 37 % 101 for i in ids],
            "price": [i / 7 for i in ids],
        }
        pq.write_table(pa.table(rows, SALES_SCHEMA), path)
    set_time(path)


def set_time(path: Path) -> None:
    """The time that the pinned ETag was made of."""
    os.utime(path, ns=(FILE_TIME_NS, FILE_TIME_NS))


# --- statements ----------------------------------------------------------------------------------------------------


def creations() -> str:
    """All relations of the first epoch."""
    views = "".join(f"CREATE MATERIALIZED VIEW {name} AS {sql};\n" for name, sql in VIEWS.items())
    return (
        f"CREATE SOURCE sales (id int, g int, amount bigint, price double) "
        f"USING parquet OPTIONS (path '{PLACE}/sales');\n"
        f"CREATE SOURCE notes ({NOTES_SCHEMA}) USING csv OPTIONS (path '{PLACE}/notes');\n"
        "CREATE TABLE t (k int, g int, a int, s string, PRIMARY KEY (k));\n"
        "CREATE TABLE u (id bigint, label string, f double, m decimal(10,2), at timestamp, d date, PRIMARY KEY (id));\n"
        f"{views}CREATE MATERIALIZED VIEW {GONE} AS SELECT g, k FROM t WHERE a < 5;\n"
        f"{insert_t(first_t())};\n{insert_u(first_u())}"
    )


def first_t() -> T:
    """Table t after epoch one."""
    return {k: (k % 7 if k % 11 else None, k * 3 % 13 + 1, f"w{k % 5}" if k % 8 else None) for k in range(60)}


def first_u() -> U:
    """Table u after epoch one."""
    at = datetime(2024, 1, 31, 23, 59, 59, 123456)

    def row(i: int) -> tuple[str | None, float, Decimal, datetime, date | None]:
        money, day = Decimal(i * 1117 % 997) / 100, date(2024, 2, 1 + i % 3)
        return f"l{i}" * (i % 3) or None, (-1) ** i * 10.0 ** (i - 4), money, at + timedelta(i), day

    return {i: row(i) for i in range(12)}


SECOND = (
    "UPDATE t SET a = a + 10, g = (g + 1) % 7 WHERE k % 5 = 0;\nDELETE FROM t WHERE k % 9 = 4;\n"
    "INSERT INTO t VALUES (4, 2, 50, 'back');\nUPDATE u SET f = f * 2, m = m + 1 WHERE id > 8;\n"
    f"DELETE FROM u WHERE id = 3;\nDROP MATERIALIZED VIEW {GONE}"
)


def second_t() -> T:
    """Table t after epoch two."""
    rows: T = {
        k: (None if g is None else (g + 1) % 7, a + 10, s) if k % 5 == 0 else (g, a, s)
        for k, (g, a, s) in first_t().items()
    }
    return {k: row for k, row in rows.items() if k % 9 != 4} | {4: (2, 50, "back")}


def second_u() -> U:
    """Table u after epoch two."""
    rows: U = {i: (n, f * 2, m + 1, at, d) if i > 8 else (n, f, m, at, d) for i, (n, f, m, at, d) in first_u().items()}
    return {i: row for i, row in rows.items() if i != 3}


# 100 / 0 stops view `stuck`, which is then paused.
THIRD = "INSERT INTO t VALUES (100, 3, 0, 'zero'), (101, NULL, 77, NULL)"


def third_t() -> T:
    """Table t after epoch three."""
    return second_t() | {100: (3, 0, "zero"), 101: (None, 77, None)}


FOURTH = (
    "DELETE FROM t WHERE a > 20;\nUPDATE t SET a = 2 WHERE k = 7;\n"
    "INSERT INTO u VALUES (20, 'twenty', 0.1, 12.34, TIMESTAMP '2024-03-31 01:02:03', NULL)"
)


def fourth_t() -> T:
    """Table t after epoch four."""
    rows = {k: row for k, row in third_t().items() if row[1] <= 20}
    return rows | {7: (rows[7][0], 2, rows[7][2])}


def fourth_u() -> U:
    """Table u after epoch four."""
    late: U = {20: ("twenty", 0.1, Decimal("12.34"), datetime(2024, 3, 31, 1, 2, 3), None)}
    return second_u() | late


SKIPPED = "INSERT INTO t VALUES (200, 1, 1, 'skipped')"  # the open barrier skips this entry
OPEN = (
    "UPDATE t SET g = 1 WHERE k < 4;\nINSERT INTO t VALUES (201, 5, 19, 'open'), (2, 5, 18, 'open');\n"
    "DELETE FROM u WHERE id = 0"
)


def open_t() -> T:
    """Table t after the open barrier."""
    rows: T = {k: (1, a, s) if k < 4 else (g, a, s) for k, (g, a, s) in fourth_t().items()}
    return rows | {201: (5, 19, "open"), 2: (5, 18, "open")}


def open_u() -> U:
    """Table u after the open barrier."""
    return {i: row for i, row in fourth_u().items() if i != 0}


def waiting() -> str:
    """The statements of the log after the open barrier."""
    views = "".join(f"CREATE MATERIALIZED VIEW {name} AS {sql};\n" for name, sql in LATE_VIEWS.items())
    return f"{views}INSERT INTO t VALUES (300, 6, 3, 'waiting');\nUPDATE t SET a = a + 1 WHERE g = 6"


def waiting_t() -> T:
    """Table t after the waiting statements."""
    rows: T = open_t() | {300: (6, 3, "waiting")}
    return {k: (g, a + 1, s) if g == 6 else (g, a, s) for k, (g, a, s) in rows.items()}


# Executed by the code that reads:
LAST = "DELETE FROM t WHERE k % 2 = 0;\nUPDATE u SET f = 1.5 WHERE id = 1;\nINSERT INTO t VALUES (0, 0, 9, 'last')"


def last_t() -> T:
    """Table t at the end."""
    return {k: row for k, row in waiting_t().items() if k % 2} | {0: (0, 9, "last")}


def last_u() -> U:
    """Table u at the end."""
    return {i: (n, 1.5 if i == 1 else f, m, at, d) for i, (n, f, m, at, d) in open_u().items()}


_FIFTH_FILES = (*FIRST_FILES, *FOURTH_FILES, *OPEN_FILES)
MOMENTS = {
    "published": Moment(third_t(), second_u(), FIRST_FILES, stuck=second_t()),
    "committed": Moment(fourth_t(), fourth_u(), (*FIRST_FILES, *FOURTH_FILES), stuck=second_t()),
    "the open barrier": Moment(open_t(), open_u(), _FIFTH_FILES, stuck=second_t()),
    "what waited": Moment(waiting_t(), open_u(), (*_FIFTH_FILES, *LAST_FILES), (*VIEWS, *LATE_VIEWS), second_t()),
    "one more": Moment(last_t(), last_u(), (*_FIFTH_FILES, *LAST_FILES), (*VIEWS, *LATE_VIEWS), second_t()),
}


# --- rows ----------------------------------------------------------------------------------------------------------


def insert_t(rows: T) -> str:
    """The INSERT of these rows."""
    return "INSERT INTO t VALUES " + ", ".join(f"({k}, {_sql(g)}, {a}, {_sql(s)})" for k, (g, a, s) in rows.items())


def insert_u(rows: U) -> str:
    """The INSERT of these rows."""
    values = (f"({i}, {_sql(n)}, {f!r}, {m}, TIMESTAMP '{at}', DATE '{d}')" for i, (n, f, m, at, d) in rows.items())
    return "INSERT INTO u VALUES " + ", ".join(values)


def table_t(rows: T) -> pa.Table:
    """The rows as a table."""
    return pa.Table.from_pylist([{"k": k, "g": g, "a": a, "s": s} for k, (g, a, s) in rows.items()], T_SCHEMA)


def table_u(rows: U) -> pa.Table:
    """The rows as a table."""
    named = [{"id": i, "label": n, "f": f, "m": m, "at": at, "d": d} for i, (n, f, m, at, d) in rows.items()]
    return pa.Table.from_pylist(named, U_SCHEMA)


def _sql(value: int | str | None) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
