"""SELECTs that this process answers without a JVM, against Spark over the same rows: values, types, names and order."""

import random
from collections.abc import Sequence
from decimal import Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.jobs.driver.embedded import append, epoch, open_store
from tests.jobs.kernels.edge_values import edge_table
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.reading import plain_query
from tussock.jobs.reading.plain_query import plain_rows
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.session import Session
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE = "America/New_York"
#: Columns of edge values.
EDGES = {
    "t": "tinyint",
    "i": "int",
    "j": "int",
    "l": "bigint",
    "f": "float",
    "x": "double",
    "y": "double",
    "b": "boolean",
    "m": "decimal(9,2)",
    "n": "decimal(18,4)",
    "w": "decimal(38,10)",
    "s": "string",
    "r": "string",
    "z": "binary",
    "d": "date",
    "e": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
}
#: Columns whose sums fit.
SUMS = {
    "k": "int",
    "small": "smallint",
    "n": "bigint",
    "Price": "decimal(12,2)",
    "fine": "decimal(28,6)",
    "name": "string",
}


def _sums() -> pa.Table:
    values = [None if i % 7 == 0 else (i * 37 % 101 - 50) for i in range(60)]
    columns = {
        "id": pa.array(range(60), pa.int64()),
        "k": pa.array([None if i % 11 == 5 else i % 4 for i in range(60)], pa.int32()),
        "small": pa.array(values, pa.int16()),
        "n": pa.array([None if v is None else v * 1_000_003 for v in values], pa.int64()),
        "Price": pa.array([None if v is None else f"{v}.{i % 100:02}" for i, v in enumerate(values)]).cast(
            pa.decimal128(12, 2)
        ),
        "fine": pa.array([None if v is None else f"{v * 10**15}.{i:06}" for i, v in enumerate(values)]).cast(
            pa.decimal128(28, 6)
        ),
        "name": pa.array([("", "a", "B", "é", "\uffff", "😀", None)[i % 7] for i in range(60)]),
    }
    return pa.table(columns)


def _edges() -> pa.Table:
    rows = edge_table([*EDGES.values()]).rename_columns([*EDGES])
    return rows.add_column(0, "id", pa.array(range(rows.num_rows), pa.int64()))


#: Groups `k` of values whose greatest, least or sum is at an edge. From group 100 on, Spark must answer.
GROUPS = {"k": "int", "x": "double", "f": "float", "u": "decimal(31,2)", "v": "decimal(38,0)", "w": "decimal(38,38)"}
_TINY, _HUGE = 5e-324, 1.7976931348623157e308
_MOST = 10**38 - 1
_EXACT = Context(prec=76)


def _groups() -> pa.Table:
    chance = random.Random(38)
    doubles = [float("nan"), float("inf"), float("-inf"), _TINY, -_TINY, _HUGE, -_HUGE, 1.5, -1.5, None]
    rows: list[tuple[int, float | None, Decimal | None, Decimal | None, Decimal | None]] = []

    def add(group: int, doubles: Sequence[float | None], wholes: Sequence[int | None]) -> None:
        for double, whole in zip(doubles, wholes, strict=True):
            exact = [None if whole is None else _EXACT.scaleb(Decimal(whole), -s) for s in (2, 0, 38)]
            u = (
                None
                if whole is None
                else _EXACT.scaleb(Decimal(whole // 10**7 if whole >= 0 else -(-whole // 10**7)), -2)
            )
            rows.append((group, double, u, exact[1], exact[2]))

    for group in range(60):
        # One sign of zero, or both between values of both signs.
        zero = chance.choice([[0.0], [-0.0], [0.0, 0.0], [], [0.0, -0.0, 2.0, -2.0]])
        some = [*chance.sample(doubles, chance.randrange(4)), *zero, None]
        chance.shuffle(some)
        left, wholes = _MOST, list[int | None]()
        for _ in some:
            size = min(left, chance.choice([0, 1, 10**30, left // 3, left]))
            wholes.append(chance.choice([None, size, -size]))
            left -= abs(wholes[-1] or 0)
        add(group, some, wholes)
    add(60, [None] * 3, [None] * 3)
    add(61, [1.0, 2.0], [_MOST, 0])
    add(100, [0.0, -0.0], [1, 2])  # which zero is the greatest?
    add(101, [-0.0, 0.0, float("-inf")], [1, 2, 3])
    add(102, [1.0, 2.0], [_MOST, 1])  # too large
    add(103, [1.0, 2.0, 3.0], [_MOST, 1, -1])  # fits, but Spark raises if it meets the 1 before the -1
    chance.shuffle(rows)
    columns = list(zip(*rows, strict=True))
    doubles_of = pa.array(columns[1], pa.float64())
    names = {"id": pa.array(range(len(rows)), pa.int64()), "k": pa.array(columns[0], pa.int32()), "x": doubles_of}
    # The smallest doubles would be zeros.
    floats = [None if x is None else x * 2.0**925 if abs(x) == _TINY else x for x in columns[1]]
    names["f"] = pa.array(floats, pa.float64()).cast(pa.float32(), safe=False)
    for name, values in zip("uvw", columns[2:], strict=True):
        names[name] = pa.array(values, arrow_type(GROUPS[name]))
    return pa.table(names)


TABLES = {"edges": (EDGES, _edges()), "sums": (SUMS, _sums()), "groups": (GROUPS, _groups())}


class Here:
    """Answers of this process."""

    def __init__(self, store: Path) -> None:
        self.meta = open_store(store, "reader")

    def here(self, sql: str) -> pa.Table | None:
        with plain_rows(self.meta.objects, StoredRows(self.meta), sql, ZONE) as rows:
            return None if rows is None else rows.read_all()


class Both(Here):
    """Answers of this process and of Spark."""

    def __init__(self, store: Path, spark: "SparkSession") -> None:
        from tussock.jobs.spark.collected import frame_of
        from tussock.jobs.spark.session import sql_session

        super().__init__(store)
        self.spark = sql_session(spark, ZONE)
        for name, (_, rows) in TABLES.items():
            frame_of(self.spark, rows).createOrReplaceTempView(name)

    def sparks(self, sql: str) -> pa.Table:
        from tussock.jobs.spark.collected import collected

        frame = self.spark.sql(sql)
        rows = collected(frame)
        return rows.cast(pa.schema([(f.name, arrow_type(f.dataType.simpleString())) for f in frame.schema.fields]))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain") / "store"
    MetaStore.init(open_object_store(str(folder)), units=2, time_zone=ZONE)
    meta = open_store(folder, "maker")
    for name, (columns, _) in TABLES.items():
        fields = (Field("id", "bigint"), *(Field(c, kind) for c, kind in columns.items()))
        append(meta, CreateTable(name, fields, (0,)))
    meta.publish(epoch(meta).epoch)
    with Session(str(folder), create=False, runner="local", workers=1) as session:
        for name, (_, rows) in TABLES.items():
            session.insert(name, rows)
        session.flush()
    return folder


@pytest.fixture(scope="module")
def alone(store: Path) -> Here:
    return Here(store)


@pytest.fixture(scope="module")
def both(store: Path, spark: "SparkSession") -> Both:
    return Both(store, spark)


def shown(rows: pa.Table, in_order: bool) -> list[str]:
    """Rows as texts, which tell NaN, zeros and NULL apart. Times are numbers: Python has no year 10000."""
    for i, kind in enumerate(rows.schema.types):
        if pa.types.is_temporal(kind):
            number = pa.int32() if pa.types.is_date(kind) else pa.int64()
            rows = rows.set_column(i, rows.schema.names[i], rows.column(i).cast(number))
    found = [repr(tuple(row.values())) for row in rows.to_pylist()]
    return found if in_order else sorted(found)


def require_equal(both: Both, sql: str) -> None:
    here, sparks = both.here(sql), both.sparks(sql)
    assert here is not None, f"left to Spark: {sql}"
    assert here.schema.names == sparks.schema.names, sql
    assert here.schema.types == sparks.schema.types, sql
    in_order = "ORDER BY" in sql
    assert shown(here, in_order) == shown(sparks, in_order), sql


def listed(*terms: str) -> str:
    return ", ".join(f"{term} AS v{i}" for i, term in enumerate(terms))


COMPARED = [
    "i < j", "i = l", "t >= i", "l <> 2147483648", "i <=> j", "x = y", "x < y", "x >= i", "x > 0.5", "x <= m", "m = n",
    "m > 1", "m <= i", "n < 1.5", "w > m", "w = 0", "s < r", "s = r", "s >= 'a'", "d < e", "d = '2000-02-29'",
    "d >= DATE '1970-01-01'", "at > TIMESTAMP '2021-03-14 02:30:00'", "at <= '2021-11-07 01:30:00'", "at > d",
    "at >= '2000-02-29'", "b", "NOT b", "b = TRUE", "b AND i > 0", "b OR i > 0", "NOT (b OR s IS NULL)", "i IS NULL",
    "x IS NOT NULL", "i IN (1, -7, NULL)", "i IN (1, 2147483648)", "i NOT IN (0, 7)", "s IN ('', 'a', 'ß')",
    "d IN ('2000-02-29', '1970-01-01')", "m IN (1, 0.5)", "x IN (0, 1.5)", "i BETWEEN -7 AND 10",
    "m NOT BETWEEN -1 AND 1.5", "at BETWEEN '1900-01-01' AND '2021-03-28 02:30:00'", "s BETWEEN 'A' AND 'b'",
    "s LIKE 'a%'", "s NOT LIKE '%b_%'", "i = NULL", "i > -2147483648 AND - i < 5", "i + 1 > 5 AND i < 100",
    "f = f", "f IS NULL",
]  # fmt: skip

VALUES = [
    ["i", "-7", "1.50", "'é'", "TRUE", "DATE '2020-02-29'", "TIMESTAMP '2021-11-07 01:30:00.5'", "0.05", "3000000000"],
    ["lower(s)", "upper(s)", "length(s)", "trim(s)", "ltrim(s)", "rtrim(s)", "reverse(s)", "substring(s, 2)"],
    ["substr(s, -3, 2)", "replace(s, 'a', 'xy')", "replace(s, 'a')", "s || r", "concat(s, '-', r)", "instr(s, 'b')"],
    ["startswith(s, 'a')", "endswith(s, r)", "contains(s, 'b')", "lpad(s, 5, 'xy')", "rpad(s, 4)", "len(r)"],
    ["year(d)", "quarter(d)", "month(d)", "day(d)", "dayofweek(d)", "weekday(d)", "dayofyear(d)", "weekofyear(d)"],
    ["year(at)", "month(at)", "day(at)", "hour(at)", "minute(at)", "second(at)", "date_trunc('hour', at)"],
    ["date_trunc('month', at)", "datediff(d, e)", "last_day(d)", "date_add(d, 0)", "date_sub(d, 0)"],
    ["CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' END", "CASE i WHEN 1 THEN m WHEN -1 THEN 5 ELSE NULL END"],
    ["CASE WHEN b THEN i ELSE l END", "CASE WHEN b THEN i ELSE 0.5 END", "CASE WHEN b THEN x ELSE i END"],
    ["coalesce(i, 0)", "coalesce(i, l, 1)", "ifnull(m, 0)", "nvl(s, 'none')", "if(b, m, n)"],
    ["nullif(i, 1)", "nullif(m, 0)"],
    ["greatest(i, j)", "least(i, 0, l)", "greatest(s, r)", "least(d, e)"],
    ["m + 1", "m - n", "m * 2", "m * m", "n + 0.05"],
    ["x + y", "x * 2", "x - 0.5", "x / 2", "-x", "abs(x)", "-m", "abs(m)"],
    ["round(m)", "round(m, 1)", "round(n, 9)"],
    ["CAST(i AS bigint)", "CAST(t AS string)", "CAST(i AS double)", "CAST(d AS string)", "CAST(at AS date)"],
    ["CAST(b AS int)"],
    ["CAST(m AS double)", "CAST(m AS decimal(12, 4))", "CAST(at AS string)", "CAST(d AS timestamp)", "z", "local", "f"],
    ["coalesce(x, 1)", "i / 2", "t / 3", "i IS NULL", "s LIKE '%c'", "d = e", "(i)", "`i`"],
]  # fmt: skip

QUERIES = [
    "SELECT ID, S AS Name FROM Edges ORDER BY id",
    "SELECT * FROM edges WHERE i > 0 ORDER BY 1 DESC",
    *(f"SELECT id FROM edges ORDER BY {c} {way}, id LIMIT 17"
      for c in EDGES for way in ("", "DESC", "NULLS LAST", "DESC NULLS FIRST") if c not in ("t", "j", "y", "e", "r")),
    *(f"SELECT min({c}), max({c}), count({c}), count(DISTINCT {c}) FROM edges"
      for c, kind in EDGES.items() if kind not in ("float", "double", "binary")),
    *(f"SELECT {c}, count(*) FROM edges GROUP BY {c}"
      for c, kind in EDGES.items() if kind not in ("float", "double", "binary")),
    "SELECT count(*), count(x), count(f), count(z), COUNT(ID) FROM edges",
    "SELECT sum(small), avg(small), sum(n), avg(n), sum(Price), avg(price), sum(fine), avg(fine) FROM sums",
    "SELECT k, sum(small) AS a, avg(n) AS b, avg(price) AS c, min(name) AS d, count(DISTINCT name) AS e FROM sums "
    "GROUP BY k ORDER BY k",
    "SELECT sum(n) AS s, avg(n) AS a, count(n) AS c, min(n) AS m FROM sums WHERE id < 0",
    "SELECT k, sum(n) AS s FROM sums WHERE id < 0 GROUP BY k",
    "SELECT k FROM sums GROUP BY k HAVING count(*) > 13 AND sum(small) IS NOT NULL ORDER BY k DESC",
    "SELECT name, k, count(*) AS c FROM sums GROUP BY 1, 2 ORDER BY c DESC, 1, 2 LIMIT 9",
    "SELECT upper(name) AS u, max(price * 2) AS p, sum(small + 1) / count(*) AS q FROM sums "
    "GROUP BY upper(name) ORDER BY u",
    "SELECT k + 1 AS next, round(avg(small), 2) AS r FROM sums GROUP BY k ORDER BY next DESC",
    "SELECT CASE WHEN small > 0 THEN 'up' ELSE 'down' END AS way, sum(price) AS p FROM sums GROUP BY way ORDER BY way",
    "SELECT DISTINCT k FROM sums ORDER BY k DESC",
    "SELECT DISTINCT name, k FROM sums WHERE small > 0",
    "SELECT DISTINCT k, count(*) AS c FROM sums GROUP BY k, name ORDER BY c, k",
    "SELECT a.id, b.id AS other FROM sums a JOIN sums b ON a.id = b.n ORDER BY a.id",
    "SELECT a.name, count(b.id) AS c, sum(b.price) AS p FROM sums a LEFT JOIN sums b ON a.k = b.k AND b.name = a.name "
    "WHERE a.id < 20 GROUP BY a.name ORDER BY a.name",
    "SELECT e.id, s.name FROM edges e INNER JOIN sums AS s ON s.name = e.s WHERE e.i IS NOT NULL AND s.k = 1",
    "SELECT e.id, s.id AS sid FROM edges AS e LEFT OUTER JOIN sums s ON s.id = e.l ORDER BY e.id",
    "SELECT max(at) AS last, min(d) AS first FROM edges WHERE x > 0 LIMIT 5",
    "SELECT 'it''s' AS q, \"u\" AS u, id FROM edges WHERE id = 3 LIMIT 1",
    "SELECT id FROM edges LIMIT 0",
    "SELECT sum(price) AS price FROM sums",  # aliases that hide columns, but no clause has their names
    "SELECT max(n) AS k, min(k) AS n, count(name) AS name FROM sums WHERE k > 1 AND n > 0",
    "SELECT i AS j, j AS i, l + 1 AS l, i < j AS b FROM edges WHERE i < 100 AND j < 100 AND l < 100 ORDER BY id",
    "SELECT k, sum(small) AS small, max(n) AS price FROM sums GROUP BY k ORDER BY k",
]  # fmt: skip


def test_values_of_the_tested_list_equal_sparks(both: Both) -> None:
    for terms in VALUES:
        for n, term in enumerate(terms):
            assert both.here(f"SELECT {term} AS v FROM edges LIMIT 0") is not None, (n, term)
        guard = "i BETWEEN -1000 AND 1000 AND abs(m) < 100000 AND l BETWEEN -1000 AND 1000"
        require_equal(both, f"SELECT id, {listed(*terms)} FROM edges WHERE {guard} ORDER BY id")


def test_conditions_equal_sparks(both: Both) -> None:
    for term in COMPARED:
        assert both.here(f"SELECT {term} AS v FROM edges WHERE i < 100000 OR i IS NULL") is not None, term
    half = len(COMPARED) // 2
    for terms in (COMPARED[:half], COMPARED[half:]):
        require_equal(both, f"SELECT id, {listed(*terms)} FROM edges WHERE i < 100000 OR i IS NULL ORDER BY id")
    chance = random.Random(37)
    for _ in range(12):
        some = chance.sample(COMPARED, 4)
        require_equal(both, f"SELECT id FROM edges WHERE ({some[0]} OR NOT {some[1]}) AND ({some[2]} OR {some[3]})")


def test_extremes_and_sums_at_the_edges_equal_sparks(both: Both) -> None:
    terms = [f"{function}({c})" for function in ("min", "max") for c in "xf"] + [f"sum({c})" for c in "uvw"]
    require_equal(both, f"SELECT k, {listed(*terms)} FROM groups WHERE k < 100 GROUP BY k ORDER BY k")
    require_equal(both, "SELECT max(x), min(f), max(f), sum(u) FROM groups WHERE k < 100")
    for group, term in (
        (100, "max(x)"),
        (100, "min(f)"),
        (101, "max(f)"),
        *((group, f"sum({c})") for group in (102, 103) for c in "vw"),
    ):
        assert both.here(f"SELECT {term} AS v FROM groups WHERE k = {group}") is None, (group, term)
    require_equal(both, "SELECT min(x), max(u) FROM groups WHERE k = 101")


@pytest.mark.parametrize("part", range(4))
def test_queries_equal_sparks(part: int, both: Both) -> None:
    for sql in QUERIES[part::4]:
        require_equal(both, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(x) FROM edges",
        "SELECT avg(f) FROM edges",
        "SELECT x, count(*) FROM edges GROUP BY x",
        "SELECT DISTINCT x FROM edges",
        "SELECT sum(w) FROM edges",
        "SELECT m / n AS q FROM edges",
        "SELECT w * w AS q FROM edges",
        "SELECT i + 1 FROM edges",  # its name
        "SELECT s = 1 AS q FROM edges",
        "SELECT d = s AS q FROM edges",
        "SELECT f > 0.5 AS q FROM edges",
        "SELECT l AS i FROM edges ORDER BY i",  # an alias that hides a column
        "SELECT max(i) AS l FROM edges GROUP BY l",
        "SELECT sum(small) AS small FROM sums GROUP BY k HAVING small > 1",
        "SELECT k, max(n) AS n FROM sums GROUP BY k ORDER BY n + 1",
        "SELECT i FROM edges GROUP BY i HAVING l > 0",
        "SELECT i, count(*) FROM edges",
        "SELECT count(*) AS c FROM edges WHERE count(*) > 1",
        "SELECT k FROM sums GROUP BY k HAVING count(*) > 13 ORDER BY count(*)",  # Spark refuses it
        "SELECT max(k) AS h FROM sums HAVING count(*) > 1 ORDER BY max(k)",  # and this, though not without HAVING
        "SELECT i = j = l AS q FROM edges",
        "SELECT i IS NULL IS NULL AS q FROM edges",
        "SELECT a.id FROM sums a JOIN edges b ON a.k = b.l",
        "SELECT a.id FROM edges a JOIN edges b ON a.x = b.x",
        "SELECT * FROM sums a JOIN sums b ON a.id = b.id",
        "SELECT id FROM sums a JOIN sums b ON a.id = b.id",
        "SELECT a.id FROM sums a, sums b",
        "SELECT a.id FROM sums a RIGHT JOIN sums b ON a.id = b.id",
        "SELECT id FROM sums WHERE id IN (SELECT id FROM edges)",
        "SELECT sum(n) FILTER (WHERE k = 1) AS s FROM sums",
        "SELECT sum(n) OVER (ORDER BY id) AS s FROM sums",
        "SELECT sum(DISTINCT n) AS s FROM sums",
        "SELECT count(k, n) AS c FROM sums",
        "SELECT nothing FROM sums",
        "SELECT id FROM nothing",
        "SELECT 1e3 AS q FROM sums",
        "SELECT 'a' 'b' AS q FROM sums",
        "SELECT 'a\\%' AS q FROM sums",
        "SELECT id FROM sums LIMIT 1 + 1",
        "SELECT id FROM sums; SELECT 1",
        "SELECT id FROM sums UNION SELECT id FROM edges",
        "SELECT now() AS q FROM sums",
        "SELECT rand() AS q FROM sums",
        "SELECT m + CAST(1 AS bigint) AS q FROM edges",  # its digits
        "SELECT lower(upper(s)) AS q FROM edges",  # its optimizer omits upper, and keeps 'ß'
        "SELECT d = '2020-W01-1' AS q FROM edges",  # Spark refuses it, and all that follow
        "SELECT CASE WHEN NULL THEN 1 END AS q FROM sums",
        "SELECT a.k, count(*) AS c FROM sums a JOIN sums b ON a.id = b.id GROUP BY k",
        "SELECT DISTINCT k AS a FROM sums ORDER BY k",
        "SELECT DISTINCT sums.k AS k FROM sums ORDER BY sums.k",
        "SELECT DISTINCT upper(name) AS u FROM sums ORDER BY upper(name)",
        "SELECT k, count(*) FROM sums GROUP BY CAST(k AS int)",
        "SELECT price = 0 AS q FROM sums GROUP BY price = 0.0",
        "SELECT k BETWEEN 1 AND 2 AS q FROM sums GROUP BY k >= 1 AND k <= 2",
        "SELECT /*+ REPARTITION('x') */ id FROM sums",
        "SELECT id AS é FROM sums",
        "SELECT id AS `` FROM sums",
        "SELECT id\x1cFROM sums",
    ],
)
def test_other_queries_are_left_to_spark(sql: str, alone: Here) -> None:
    assert alone.here(sql) is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 / 0 AS q FROM sums WHERE id < 0",
        "SELECT id FROM edges WHERE id < 0 AND at > 'nonsense'",
        "SELECT id FROM edges WHERE id < 0 AND at > TIMESTAMP '2021-13-01 00:00:00'",
        "SELECT max(CAST('x' AS int)) AS q FROM sums WHERE id < 0",
        "SELECT k FROM sums GROUP BY k HAVING count(*) > 1000 AND 10 / k > 1",  # Spark tests it before it groups
        "SELECT a.id FROM edges a LEFT JOIN sums b ON a.l = b.n WHERE 10 / b.k > 1",  # or joins
        "SELECT sum(l) AS total FROM edges WHERE id IN (1, 3, 4)",  # the sum of two is too large
    ],
)
def test_errors_of_values_that_no_row_needs_are_left_to_spark(sql: str, alone: Here) -> None:
    assert alone.here(sql) is None


def test_no_decimal_constant_is_a_negative_zero(alone: Here) -> None:
    """As in Spark, whose decimals have one zero."""
    rows = alone.here("SELECT coalesce(x, -0.0) AS p, 1 * CAST(-0.0 AS double) AS q FROM edges WHERE x IS NULL LIMIT 1")
    assert rows is not None
    assert repr(rows.to_pylist()) == "[{'p': 0.0, 'q': 0.0}]"


def test_values_that_raise_are_left_to_spark_and_its_message(both: Both) -> None:
    for sql in (
        "SELECT sum(l) AS s FROM edges WHERE l > 0",  # overflow
        "SELECT i + j AS q FROM edges",
        "SELECT i / j AS q FROM edges",
        "SELECT avg(l) AS a FROM edges",  # Spark rounds each sum
        "SELECT id FROM edges WHERE 10 / i > 1 AND i <> 0",
    ):
        assert both.here(sql) is None, sql
    require_equal(both, "SELECT id FROM edges WHERE i <> 0 AND 10 / i > 1")


def test_many_rows_are_left_to_spark(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    assert both.here("SELECT count(*) FROM sums WHERE id > 1") is not None
    monkeypatch.setattr(plain_query, "MOST_BYTES", 1)
    assert both.here("SELECT count(*) FROM sums WHERE id > 1") is None
