"""Columns with the engine's internal names: numbered columns, weights, keys, row ids, a file's path."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark

NAMES = (
    *(
        "key",
        "op",
        "epoch",
        "c0",
        "c1",
        "c2",
        "w",
        "p0",
        "p0_c0",
        "unit",
        "row",
        "slot",
        "fragment",
        "input",
        "chunk",
        "failure",
        "part",
    ),
    *("raised", "x0", "_row_id", "vnode", "c22"),  # the hidden column after 22 columns is called c22
)
COLUMNS = ", ".join(f"`{name}` string" for name in NAMES)
VIEWS = {
    "grouped": "SELECT key, w, count(*) AS n, max(c0) AS c0, collect_list(op) AS op FROM {t} GROUP BY key, w",
    "joined": "SELECT a.key, b.w, a.c0 AS c1, b.c1 AS c0 FROM {t} a LEFT JOIN {t} b ON a.c0 = b.c0 AND a.w < b.slot",
    "numbered": "SELECT key, row_number() OVER (PARTITION BY w ORDER BY c0, op) AS w, "
    "ntile(2) OVER (ORDER BY row) AS row FROM {t}",
    "by_spark": "SELECT soundex(c0) AS c0, soundex(w) AS w, unit, row, raised, x0, p0, "
    "soundex(p0_c0) AS p0_c0 FROM {t}",
}
CHANGES = [
    "UPDATE {t} SET op = 'x' WHERE w = 'w1'",
    "UPDATE {t} SET c2 = soundex(c1)",
    "UPDATE {t} SET c0 = (SELECT max(c1) FROM {t}) WHERE w = 'w2'",
    "MERGE INTO {t} USING (SELECT 'w9' AS w, 'k' AS key, 'c' AS c0) q ON {t}.w = q.w"
    " WHEN MATCHED THEN UPDATE SET op = q.w WHEN NOT MATCHED THEN INSERT (key, w, c0) VALUES (q.key, q.w, q.c0)",
    "DELETE FROM {t} WHERE w = (SELECT min(w) FROM {t})",
]


@pytest.fixture
def rows() -> pa.Table:
    return pa.table({name: [f"{name}{i}" for i in range(4)] for name in NAMES})


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (key, w)"], ids=["no key", "key, w"])
@pytest.mark.sampled(2)
def test_columns_of_a_table_may_have_names_that_the_engine_uses(
    key: str, rows: pa.Table, spark: SparkSession, tmp_path: Path
) -> None:
    judge = spark.newSession()
    judge.conf.set("spark.sql.ansi.enabled", "true")
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(f"CREATE TABLE t ({COLUMNS}{key})")
        session.insert("t", rows)
        for name, sql in VIEWS.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql.format(t='t')}")
        session.flush()
        for change in CHANGES:
            session.execute(change.format(t="t"))
            session.flush()
        now = session.read("t")
        assert (now.num_rows, sorted(now["w"].to_pylist())) == (4, ["w1", "w2", "w3", "w9"])
        judge.createDataFrame(now).createOrReplaceTempView("now")
        for name, sql in VIEWS.items():
            assert_same_answer(session.read(name), judge.sql(sql.format(t="now")).toArrow(), name)


@pytest.mark.parametrize("kind", ["parquet", "orc", "json"])
def test_columns_of_a_source_may_have_names_that_the_engine_uses(
    kind: str, rows: pa.Table, spark: SparkSession, tmp_path: Path
) -> None:
    folder: Any = tmp_path / "files"
    spark.createDataFrame(rows).write.format(kind).save(str(folder))
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(f"CREATE SOURCE s ({COLUMNS}) USING {kind} OPTIONS (path '{folder}')")
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM s")
        session.flush()
        assert_same_answer(session.read("v"), rows, kind)
