"""Intervals of years and months, which pyspark cannot convert to Arrow.

Views through epochs are compared with the same SELECT in Spark.
"""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.chunks.failure import ViewFailedError
from tussock.jobs.reading.written_rows import NoFormError, write_csv, write_json, write_parquet
from tussock.jobs.session import Session
from tussock.jobs.spark.collected import collect_rows
from tussock.jobs.statements.insert import UnfitRowsError
from tussock.jobs.texts.table import text_table
from tussock.jobs.trouble.row_names import ViewRowError
from tussock.statestore.months import given_rows
from tussock.statestore.types import GIVEN_MONTHS

pytestmark = pytest.mark.spark

VIEWS = {
    "whole": "SELECT id, x, y, z, a, s, m FROM t",
    "groups": "SELECT x, count(*) AS n, min(y) AS low, max(z) AS high, sum(y) AS s, avg(y) AS mean, "
    "sum(z) AS months FROM t GROUP BY x",
    "total": "SELECT sum(x) AS s, avg(x) AS a, sum(y) AS sy, avg(y) AS ay, min(x) AS low, max(x) AS high, "
    "count(DISTINCT x) AS n, "
    "sum(DISTINCT z) AS d, approx_count_distinct(x) AS k, mode(y, true) AS often, "
    "median(z) AS half, max_by(x, id) AS last FROM t",
    "of_distinct": "SELECT DISTINCT x, a, s FROM t",
    "longer": "SELECT id FROM t WHERE x > INTERVAL '1' YEAR AND y <= INTERVAL '10' YEAR",
    "across": "SELECT id, x = z AS same, x < y AS less, x <=> y AS alike, greatest(x, z) AS g, "
    "CAST(x AS string) AS tx, "
    "CAST(y AS string) AS ty, CAST(z AS string) AS tz, xxhash64(x, y) AS h FROM t",
    "arithmetic": "SELECT id, d + x AS dx, at + x AS atx, there - z AS tz, d - y AS dy, x * 2 AS x2, x / 3 AS x3, "
    "x + z AS xz, -y AS ny, "
    "abs(x) AS ax, extract(YEAR FROM x) AS years, extract(MONTH FROM x) AS months, make_ym_interval(id, 3) AS made, "
    "CAST(w AS INTERVAL YEAR TO MONTH) AS w, CAST(z AS int) AS n, CAST(id AS INTERVAL MONTH) AS i FROM t",
    "pairs": "SELECT t.id, u.id AS v FROM t JOIN t u ON t.x = u.x",
    "of_kinds": "SELECT t.id, u.id AS v, u.y FROM t LEFT JOIN t u ON t.x = u.y",
    "over": "SELECT id, lag(x) OVER (ORDER BY x, id) AS l, sum(z) OVER (PARTITION BY y ORDER BY id) AS s, "
    "max(y) OVER (ORDER BY id "
    "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS m, avg(x) OVER (PARTITION BY y) AS mean, "
    "rank() OVER (ORDER BY z DESC) AS r FROM t",
    "nested": "SELECT id, array(x, z) AS xs, named_struct('i', y, 'n', array(z)) AS n, map(y, x) AS m, "
    "a[0] AS first, s.i AS si FROM t "
    "WHERE y IS NOT NULL",
    "of_nested": "SELECT a, s, count(*) AS n FROM t GROUP BY a, s",
    "gathered": "SELECT y, sort_array(collect_list(x)) AS xs, array_sort(collect_set(z)) AS zs FROM t GROUP BY y",
    "top": "SELECT x FROM t ORDER BY x DESC NULLS LAST, id LIMIT 2",
    "conditions": "SELECT id, coalesce(x, INTERVAL '7' MONTH) AS c, CASE WHEN id > 1 THEN z END AS k, "
    "INTERVAL '1-3' YEAR TO MONTH AS l, "
    "CAST(NULL AS INTERVAL YEAR) AS nothing, array(INTERVAL '2' YEAR) AS ls FROM t",
    "exploded": "SELECT id, e FROM t LATERAL VIEW explode(a) AS e",
    "either": "SELECT x AS v FROM t UNION ALL SELECT y FROM t UNION SELECT z FROM t",
}
COLUMNS = """id int, x INTERVAL YEAR TO MONTH, y INTERVAL YEAR, z INTERVAL MONTH,
    d date, at timestamp, there timestamp_ntz, w string,
    a array<interval year to month>, s struct<i: interval month, n: int>, m map<int, interval year>"""
ROW = (
    "({0}, {1}, {2}, {3}, DATE'2024-01-31', TIMESTAMP'2024-02-29 10:00:00', "
    "TIMESTAMP_NTZ'2024-03-31 01:30:00', '{0}-{0}', {4}, {5}, {6})"
)
VALUES = [
    ("INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '3' YEAR", "INTERVAL '14' MONTH"),
    ("INTERVAL '-1-2' YEAR TO MONTH", "INTERVAL '-3' YEAR", "INTERVAL '0' MONTH"),
    ("NULL", "INTERVAL '3' YEAR", "NULL"),
    ("INTERVAL '3-0' YEAR TO MONTH", "NULL", "INTERVAL '-5' MONTH"),
    ("INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '10' YEAR", "INTERVAL '14' MONTH"),
]
CHANGES = (
    "",
    "UPDATE t SET x = INTERVAL '0-11' YEAR TO MONTH, y = NULL WHERE id < 2",
    "UPDATE t SET z = z + INTERVAL '1' MONTH WHERE x = INTERVAL '14' MONTH",
    "DELETE FROM t WHERE y > INTERVAL '9' YEAR OR z IS NULL",
)


def _row(number: int, x: str, y: str, z: str) -> str:
    nested = f"array({x}, NULL)", f"named_struct('i', {z}, 'n', {number})", f"map({number}, {y})"
    return ROW.format(number, x, y, z, *(nested if number else ["NULL"] * 3))


def _spark_gives(spark: SparkSession, query: str) -> pa.Table:
    """Spark's answer, in the form that users receive."""
    return given_rows(collect_rows(spark.sql(query)))


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("", id="without a key", marks=pytest.mark.deep),
        pytest.param(", PRIMARY KEY (x, id)", id="with such a key"),
    ],
)
@pytest.mark.sampled(2)
def test_views_of_months_are_equal_to_spark_through_epochs(spark: SparkSession, tmp_path: Path, key: str) -> None:
    values = [(x if key == "" or x != "NULL" else "INTERVAL '0' YEAR", y, z) for x, y, z in VALUES]
    with Session(str(tmp_path), spark, runner=here(spark)) as session:
        session.execute(f"CREATE TABLE t ({COLUMNS}{key})")
        for name, query in VIEWS.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        session.execute("INSERT INTO t VALUES " + ", ".join(_row(i, *row) for i, row in enumerate(values)))
        for change in CHANGES:
            if change:
                session.execute(change)
            session.flush()
            rows = session.table("t")
            assert rows.select("x", "y", "z").dtypes == [
                ("x", "interval year to month"),
                ("y", "interval year"),
                ("z", "interval month"),
            ]
            rows.createOrReplaceTempView("t")
            for name, query in VIEWS.items():
                assert_same_answer(session.read(name), _spark_gives(rows.sparkSession, query), f"{name} after {change}")


def test_statements_take_and_give_months(spark: SparkSession, tmp_path: Path) -> None:
    year, months = "INTERVAL YEAR DEFAULT INTERVAL '2' YEAR", "INTERVAL MONTH"
    with Session(str(tmp_path), spark, runner=here(spark)) as session:
        session.execute(
            f"CREATE TABLE t (id int, y {year}, z {months}, PRIMARY KEY (id)); CREATE TABLE u (id int, z {months})"
        )
        session.execute("INSERT INTO t (id, z) VALUES (1, INTERVAL '5' MONTH), (2, NULL)")
        session.execute("INSERT INTO t VALUES (3, NULL, INTERVAL '12' MONTH)")
        session.flush()
        session.execute(
            "INSERT INTO u SELECT id, CAST(z * 2 AS INTERVAL MONTH) FROM t; CREATE TABLE made AS SELECT id, "
            "array(y, z) AS both FROM t"
        )
        session.execute("ALTER TABLE t ADD COLUMN w INTERVAL YEAR TO MONTH DEFAULT INTERVAL '1-1' YEAR TO MONTH")
        session.flush()
        session.execute(
            "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED AND u.z > INTERVAL '1' YEAR THEN "
            "UPDATE SET z = u.z, w = NULL "
            "WHEN MATCHED THEN UPDATE SET y = y + INTERVAL '1' YEAR"
        )
        session.flush()
        found = {name: session.query(f"SELECT * FROM {name} ORDER BY id") for name in ("t", "u", "made")}
        shown = session.query(
            "SELECT CAST(y AS string) AS y, CAST(z AS string) AS z, typeof(w) AS w FROM t ORDER BY id"
        )
    of = {name: [[_months(v) for v in row.values()] for row in rows.to_pylist()] for name, rows in found.items()}
    assert of["t"] == [[1, 36, 5, 13], [2, 36, None, 13], [3, None, 24, None]]
    assert of["u"] == [[1, 10], [2, None], [3, 24]]
    assert of["made"] == [[1, [24, 5]], [2, [24, None]], [3, [None, 12]]]
    assert found["t"]["y"].type == GIVEN_MONTHS
    assert shown.to_pylist()[0] == {"y": "INTERVAL '3' YEAR", "z": "INTERVAL '5' MONTH", "w": "interval year to month"}
    assert "INTERVAL '2-0' YEAR TO MONTH" in text_table(found["t"])


def _months(value: Any) -> Any:
    return (
        [_months(v) for v in value]
        if isinstance(value, list)
        else value.months
        if isinstance(value, pa.MonthDayNano)
        else value
    )


def test_rows_with_months_are_inserted_as_arrow_has_them_and_nothing_else_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Session(str(tmp_path), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (id int, x INTERVAL MONTH, a array<interval year>)")
        lists = pa.array([[(12, 0, 0)], None, [None]], pa.list_(GIVEN_MONTHS))
        given = pa.table({"id": [1, 2, 3], "x": pa.array([(14, 0, 0), None, (-1, 0, 0)], GIVEN_MONTHS), "a": lists})
        session.insert("t", given)
        session.flush()
        assert session.read("t").sort_by("id").to_pylist() == given.to_pylist()
        days = pa.table({"id": [1], "x": pa.array([(14, 1, 0)], GIVEN_MONTHS)})
        seconds = pa.table({"id": [1], "x": pa.array([14], pa.duration("s"))})
        with pytest.raises(UnfitRowsError, match="column 'x': found an interval with days or a time"):
            session.insert("t", days)
        with pytest.raises(UnfitRowsError, match=r"column 'x': found duration\[s\], expected month_day_nano_interval"):
            session.insert("t", seconds)


@pytest.mark.parametrize("format", ["parquet", "orc", "csv", "json"])
def test_files_with_months_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path, format: str) -> None:
    columns = "id int, x interval year to month, y interval year, z interval month"
    rows = spark.sql(
        "SELECT id, x, x * 12 AS y, CAST(CAST(x AS interval month) AS interval month) AS z FROM VALUES "
        "(1, INTERVAL '1-2' YEAR TO MONTH), (2, INTERVAL '-0-3' YEAR TO MONTH), (3, NULL) AS t(id, x)"
    ).selectExpr("id", "x", "CAST(y AS interval year) AS y", "z")
    rows.coalesce(1).write.format(format).save(str(tmp_path / "in"))
    declared = "" if format == "parquet" else f" ({columns})"
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(f"CREATE SOURCE s{declared} USING {format} OPTIONS (path '{tmp_path}/in/*.{format}')")
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT *, x + z AS more, CAST(y AS string) AS t FROM s")
        session.flush()
        spark.read.format(format).schema(columns).load(str(tmp_path / "in")).createOrReplaceTempView("months_read")
        expected = _spark_gives(spark, "SELECT *, x + z AS more, CAST(y AS string) AS t FROM months_read")
        assert expected.num_rows == 3
        assert_same_answer(session.read("v"), expected, format)


def test_a_sum_beyond_the_range_of_months_stops_the_epoch_and_try_sum_does_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    most = "INTERVAL '2147483647' MONTH"
    with Session(str(tmp_path), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (id int, x INTERVAL MONTH, PRIMARY KEY (id))")
        session.execute("CREATE MATERIALIZED VIEW tried AS SELECT try_sum(x) AS s, try_avg(x) AS a FROM t")
        session.execute(f"INSERT INTO t VALUES (1, {most}), (2, INTERVAL '1' MONTH)")
        session.flush()
        assert session.read("tried").to_pylist() == [{"s": None, "a": None}]
        session.execute("CREATE MATERIALIZED VIEW summed AS SELECT sum(x) AS s FROM t")
        with pytest.raises(ViewFailedError, match="Sum over all rows does not fit interval month"):
            session.flush()


def test_a_row_on_which_spark_raises_is_shown_with_its_months(spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (id int, x INTERVAL MONTH, PRIMARY KEY (id))")
        session.execute("CREATE MATERIALIZED VIEW more AS SELECT x + x AS d FROM t")
        session.execute("INSERT INTO t VALUES (1, INTERVAL '2147483647' MONTH)")
        with pytest.raises(
            ViewRowError, match=r"overflow while operating with intervals.* x=INTERVAL '178956970-7' YEAR TO MONTH"
        ):
            session.flush()


def test_months_that_parquet_cannot_store_are_refused_and_csv_and_json_show_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = pa.table({"x": pa.array([(14, 0, 0), None], GIVEN_MONTHS)})
    with pytest.raises(NoFormError, match="which Parquet cannot represent"):
        write_parquet(given.to_reader(), tmp_path / "x.parquet")
    out = io.BytesIO()
    write_json(given.to_reader(), out)
    assert out.getvalue().splitlines() == [b'{"x":"1 year 2 months"}', b'{"x":null}']
    out = io.BytesIO()
    write_csv(given.to_reader(), out)
    assert out.getvalue().splitlines() == [b'"x"', b"\"INTERVAL '1-2' YEAR TO MONTH\"", b""]
    (of_spark,) = spark.sql("SELECT CAST(INTERVAL '1-2' YEAR TO MONTH AS string) AS s").collect()
    assert of_spark.s == "INTERVAL '1-2' YEAR TO MONTH"
