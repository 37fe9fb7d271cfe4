"""Translated SQL in Spark has the rows of the original in DuckDB."""

import math
from collections.abc import Iterator
from decimal import Decimal
from random import Random

import duckdb
import pytest
from pyspark.sql import SparkSession

from tussock.jobs.importing.dialect import translate_sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT x FROM generate_series(1, 3) AS t(x)",
        "SELECT generate_series FROM generate_series(1, 7, 3)",
        "SELECT * FROM range(4) AS t(i)",
        "SELECT * FROM range(1, 10, 2) AS t(i)",
        "SELECT * FROM range(1, 9, 2) AS t(i)",
        "SELECT unnest(range(1, 10, 3)) AS i",
        "SELECT a.n, t.x FROM (VALUES (1), (3)) AS a(n), LATERAL generate_series(1, a.n) AS t(x)",
        "SELECT CAST(d AS DATE) AS d FROM range(DATE '2025-01-30', DATE '2025-02-02', INTERVAL 1 DAY) AS t(d)",
    ],
)
def test_series_have_the_rows_of_duckdb(sql: str, spark: SparkSession) -> None:
    translated, refusal = translate_sql(sql, "duckdb")
    assert refusal == ""
    assert sorted(map(tuple, spark.sql(translated).collect())) == sorted(duckdb.sql(sql).fetchall())


ROWS = "(VALUES (1, 'a', 3), (1, 'b', 2), (2, 'c', 5)) AS t(k, v, n)"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT *, row_number() OVER (PARTITION BY k ORDER BY n) AS r FROM {ROWS} QUALIFY r = 1",
        f"SELECT * FROM {ROWS} QUALIFY row_number() OVER (PARTITION BY k ORDER BY n DESC) = 1",
        f"SELECT k, n + 1 AS m FROM {ROWS} WHERE v <> 'b' QUALIFY sum(n) OVER (PARTITION BY k) > 3",
        f"SELECT DISTINCT ON (k) * FROM {ROWS} ORDER BY k, n",
        f"SELECT DISTINCT ON (k) v FROM {ROWS} ORDER BY k, n DESC NULLS LAST",
        f"SELECT DISTINCT k FROM {ROWS}",
    ],
)
def test_first_rows_have_the_columns_and_rows_of_duckdb(sql: str, spark: SparkSession) -> None:
    translated, refusal = translate_sql(sql, "duckdb")
    assert refusal == ""
    rows, expected = spark.sql(translated), duckdb.sql(sql)
    assert expected is not None
    assert rows.columns == expected.columns
    assert sorted(map(tuple, rows.collect())) == sorted(expected.fetchall())


COLUMNS = "id bigint, n int, x double, s string, d date, ts timestamp_ntz, b boolean, g int"
#: SELECTs whose functions have other rows in Spark under the same name, or that sqlglot writes with another meaning.
SELECTS = [
    "SELECT id, n / 2 AS q, n // 2 AS r, n / g AS p FROM t",
    "SELECT id, x::int AS q, CAST(x * 2 AS bigint) AS r, try_cast(x AS int) AS p, x::decimal(4, 2)::int AS z FROM t",
    "SELECT id, b::int + g::int AS q, '7'::int AS r, sum(x::int) OVER (PARTITION BY g) AS p FROM t",
    "SELECT id, date_diff('day', ts, TIMESTAMP '2024-03-01 12:00:00') AS q, "
    "date_diff('month', d, DATE '2024-03-01') AS p, date_diff('year', d, DATE '2024-03-01') AS z FROM t",
    "SELECT id, datediff('hour', ts, TIMESTAMP '2024-03-01 00:00:00') AS q, datediff('quarter', ts, d) AS r FROM t",
    "SELECT id, d::date - DATE '2024-01-01' AS q, ts + INTERVAL (n) DAY AS r, ts + INTERVAL (n) WEEK AS p FROM t",
    "SELECT id, dayofweek(d) AS q, isodow(d) AS r, weekday(d) AS p, date_part('dow', d) AS z FROM t",
    "SELECT id, extract(dow FROM d) AS q, extract(isodow FROM ts) AS r, extract(week FROM d) AS p FROM t",
    "SELECT id, extract(epoch FROM ts) AS q, dayname(d) AS r, monthname(ts) AS p FROM t",
    "SELECT id, log(n + 10) AS q, ln(n + 10) AS r, log(2, n + 10) AS p FROM t",
    "SELECT id, a[1] AS q, a[-1] AS r, a[9] AS p, a[g] AS z, a[0] AS y FROM l",
    "SELECT id, list_contains(a, 3) AS q, list_contains(a, g) AS r, [z * 2 for z in a if z > 1] AS p FROM l",
    "SELECT id, [z::int + 1 for z in [id / 4, g]] AS q, list_sort(list_distinct(a)) AS r FROM l",
    "SELECT g, list_sort(list(n)) AS q, string_agg(s, ',' ORDER BY id) AS r FROM t GROUP BY g",
    "SELECT g, percentile_cont(0.3) WITHIN GROUP (ORDER BY x) AS q, quantile_cont(n, 0.7) AS r FROM t GROUP BY g",
    "SELECT id, regexp_replace(s, '(a)b', '\\1$', 'g') AS q, concat(s, 'z') AS r, s || n AS p FROM t",
    "SELECT id, isnan(x) AS q, '{\"a\": {\"b\": 2}}'::json->'a'->>'b' AS r FROM t",
    "SELECT g, s, count(*) AS c FROM t GROUP BY ALL",
    "SELECT * EXCLUDE (x, ts) FROM t QUALIFY row_number() OVER (PARTITION BY g ORDER BY n, id) = 1",
    "SELECT id, rank() OVER (ORDER BY n DESC) AS q, first_value(n) OVER (PARTITION BY g ORDER BY s, id) AS r FROM t",
    "SELECT DISTINCT ON (g) g, id FROM t ORDER BY g, n DESC, id",
    "SELECT id, greatest(n, g) AS q, n IS DISTINCT FROM 1 AS r, strftime(ts, '%d/%m/%y %H') AS p FROM t",
    "SELECT * FROM (SELECT g, b, n FROM t) PIVOT (sum(n) AS total FOR g IN (1, 2))",
]


def rows_of_duckdb() -> list[tuple[object, ...]]:
    chance = Random(11)
    return [
        (
            i,
            chance.choice([None, -7, -3, 0, 1, 2, 5, 8]),
            chance.choice([None, -2.5, -0.5, 0.0, 0.5, 1.5, 2.5, 7.75]),
            chance.choice([None, "", "a", "B", "ab", "xabab", "x y", "Äb"]),
            chance.choice([None, "2024-01-31", "2024-02-29", "2023-12-31", "2025-03-02"]),
            chance.choice([None, "2024-01-31 23:59:59", "2024-02-29 12:30:00", "2023-12-31 00:00:01"]),
            chance.choice([None, True, False]),
            chance.choice([1, 2, 3]),
        )
        for i in range(1, 61)
    ]


@pytest.fixture(scope="module")
def both(spark: SparkSession) -> Iterator[tuple[SparkSession, duckdb.DuckDBPyConnection]]:
    """The same rows in Spark and in DuckDB: `t`, and `l` with lists."""
    session, rows = spark.newSession(), rows_of_duckdb()
    session.conf.set("spark.sql.ansi.enabled", "true")
    texts = COLUMNS.replace("d date", "d string").replace("ts timestamp_ntz", "ts string")
    names = [column.split() for column in COLUMNS.split(", ")]
    session.createDataFrame(rows, texts).selectExpr(
        *(f"CAST({name} AS {kind}) AS {name}" for name, kind in names)
    ).createOrReplaceTempView("t")
    lists = "SELECT id, g, CASE WHEN id % 5 > 0 THEN {} END AS a FROM t"
    session.sql(lists.format("array(n, n + 1, int(id))")).createOrReplaceTempView("l")
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t ({COLUMNS.replace('_ntz', '').replace('string', 'varchar')})")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        connection.execute(f"CREATE TABLE l AS {lists.format('[n, n + 1, id::int]')}")
        yield session, connection


def plain(value: object) -> object:
    """A value without the differences between types of numbers."""
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return "NaN" if math.isnan(value) else float(f"{float(value):.9g}")
    return value


@pytest.mark.parametrize("sql", SELECTS)
def test_a_translated_select_has_the_rows_of_duckdb(
    sql: str, both: tuple[SparkSession, duckdb.DuckDBPyConnection]
) -> None:
    session, connection = both
    translated, refusal = translate_sql(sql, "duckdb")
    assert refusal == ""
    expected = connection.execute(sql)
    frame = session.sql(translated)
    assert frame.columns == [column[0] for column in expected.description or ()]
    rows = [tuple(map(plain, row)) for row in frame.collect()]
    assert sorted(rows, key=repr) == sorted((tuple(map(plain, row)) for row in expected.fetchall()), key=repr)
