"""Times of day, which Spark supports only with a setting.

Views through epochs are compared with the same SELECT in Spark.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark

VIEWS = {
    "whole": "SELECT id, x, y FROM t",
    "groups": "SELECT x, count(*) AS n, min(y) AS low, max(y) AS high FROM t GROUP BY x",
    "distinct_times": "SELECT DISTINCT x FROM t",
    "later": "SELECT id FROM t WHERE x > TIME'10:00:00' AND y IS NOT NULL",
    "parts": "SELECT id, hour(x) AS h, CAST(x AS string) AS s, CAST(y AS string) AS t, "
    "y + INTERVAL '1' SECOND AS p FROM t "
    "WHERE x < TIME'20:00:00'",
    "pairs": "SELECT t.id, u.id AS v FROM t JOIN t u ON t.x = u.x",
    "before": "SELECT id, lag(x) OVER (ORDER BY x, id) AS l, y - x AS d FROM t",
    "nested": "SELECT id, array(x, CAST(y AS time(6))) AS a, named_struct('t', y) AS s FROM t",
    "top": "SELECT x FROM t ORDER BY x DESC NULLS LAST, id LIMIT 2",
    "conditions": "SELECT id, coalesce(x, TIME'01:00:00') AS c, CASE WHEN x > TIME'11:00:00' THEN x END AS k FROM t",
}
TIMES = ["10:00:00.123456", "23:59:59.999999", None, "10:00:00.123456", "00:00:00"]


@pytest.fixture
def judge(spark: SparkSession) -> SparkSession:
    """The Spark session for expected answers; it needs a setting for the type."""
    session = spark.newSession()
    session.conf.set("spark.sql.timeType.enabled", "true")
    return session


def test_views_of_times_are_equal_to_spark_through_epochs(
    spark: SparkSession, judge: SparkSession, tmp_path: Path
) -> None:
    with Session(str(tmp_path), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (id int, x time(6), y time(3), PRIMARY KEY (id))")
        for name, query in VIEWS.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        rows = ((i, "NULL" if text is None else f"TIME'{text}'") for i, text in enumerate(TIMES))
        session.execute("INSERT INTO t VALUES " + ", ".join(f"({i}, {x}, TIME'1{i}:30:15.12')" for i, x in rows))
        for change in ("", "UPDATE t SET x = TIME'11:11:11', y = NULL WHERE id < 2", "DELETE FROM t WHERE id = 4"):
            if change:
                session.execute(change)
            session.flush()
            now = judge.createDataFrame(session.read("t"))
            now.selectExpr("id", "x", "CAST(y AS time(3)) AS y").createOrReplaceTempView("t")
            for name, query in VIEWS.items():
                assert_same_answer(session.read(name), judge.sql(query).toArrow(), f"{name} after {change}", scale=1.0)


def test_times_of_parquet_are_read_if_they_are_declared(
    spark: SparkSession, judge: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(
        pa.table({"id": [1, 2, 3], "x": pa.array([1, None, 86_399_999_999], pa.time64("us"))}),
        tmp_path / "in/a.parquet",
    )
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(f"CREATE SOURCE s (id bigint, x time(6)) USING parquet OPTIONS (path '{tmp_path}/in')")
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM s")
        session.flush()
        told = judge.read.parquet(str(tmp_path / "in")).toArrow()
        assert_same_answer(session.read("v"), told, "times of a file", scale=1.0)


def test_times_with_nanoseconds_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([1], pa.time64("ns"))}), tmp_path / "a.parquet")
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(f"CREATE SOURCE s (x time(6)) USING parquet OPTIONS (path '{tmp_path}/a.parquet')")
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT x FROM s")
        with pytest.warns(UserWarning, match="found time64.ns., expected time"):
            session.flush()


def test_a_table_of_times_is_read_although_the_application_lacks_the_type(spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (id int, x time)")
        session.execute("INSERT INTO t VALUES (1, '12:30:00')")
        session.flush()
        assert session.query("SELECT id FROM t WHERE x > TIME'12:00:00'").to_pylist() == [{"id": 1}]
        assert session.table("t").where("hour(x) = 12").count() == 1
