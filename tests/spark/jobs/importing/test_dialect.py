"""Translated SQL in Spark has the rows of the original in DuckDB."""

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
