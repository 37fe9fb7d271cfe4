"""Variants in tables, sources and views, through epochs, compared with the same SELECT in Spark over the same texts."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import VariantVal

from tests.support.runners import here
from tussock.jobs.session import Session
from tussock.jobs.texts.table import text_table
from tussock.statestore.errors import InputError

pytestmark = pytest.mark.spark

TEXTS = [
    '{"a": 1, "b": {"c": "x"}, "l": [1, 2.5, null]}',
    None,
    "7",
    "null",
    '{"b": {"c": "y"}, "a": 2}',
    '"text"',
    "[]",
    '{"a": 1.50}',
]

#: Over docs (id, p). Answers that are variants are compared as JSON.
VIEWS = {
    "whole": "SELECT id, p FROM docs",
    "parts": "SELECT id, p:a::int AS a, p:b.c::string AS c, p:l AS l, p:b AS b FROM docs WHERE NOT is_variant_null(p)",
    "conditions": "SELECT coalesce(p, parse_json('0')) AS p, CASE WHEN id > 2 THEN p END AS q, to_json(p) AS j, "
    "schema_of_variant(p) AS s "
    "FROM docs",
    "groups": "SELECT p:b.c::string AS c, count(p) AS n, max_by(p, id) AS last, min_by(p, "
    "id) AS first FROM docs GROUP BY 1",
    "pairs": "SELECT d.id, d.p, e.p AS q FROM docs d LEFT JOIN docs e ON d.id = e.id + 1",
    "both": "SELECT p FROM docs UNION ALL SELECT p:b FROM docs",
    "before": "SELECT id, lag(p) OVER (ORDER BY id) AS b FROM docs",
    "nested": "SELECT id, array(p, p:a) AS ps, named_struct('v', p) AS s FROM docs",
    "semi": "SELECT p FROM docs WHERE p:a::string IN (SELECT p:a::string FROM docs WHERE id > 2)",
}


def answer(rows: pa.Table) -> Counter[str]:
    return Counter(repr(_plain(row)) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return (
            VariantVal(**value).toJson()
            if value.keys() == {"value", "metadata"}
            else [_plain(v) for v in value.values()]
        )
    return [_plain(v) for v in value] if isinstance(value, list) else value


def test_views_of_variants_are_equal_to_spark_through_epochs(spark: SparkSession, tmp_path: Path) -> None:
    rows: dict[int, str | None] = {}

    def assert_equal(session: Session) -> None:
        session.flush()
        told = spark.createDataFrame(list(rows.items()), "id int, t string")
        told.selectExpr("id", "parse_json(t) AS p").createOrReplaceTempView("docs")
        for name, query in VIEWS.items():
            assert answer(session.read(name)) == answer(_collected(spark, query)), name

    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE docs (id int, p variant, PRIMARY KEY (id))")
        for name, query in VIEWS.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        for i, text in enumerate(TEXTS):
            rows[i] = text
            session.execute(f"INSERT INTO docs SELECT {i}, parse_json({'NULL' if text is None else repr(text)})")
        assert_equal(session)
        rows[1], rows[4] = '{"a": "1"}', None
        session.execute('INSERT INTO docs VALUES (1, parse_json(\'{"a": "1"}\')), (4, NULL)')
        session.flush()
        rows[0], rows[2] = '{"c": "x"}', None
        session.execute('UPDATE docs SET p = CASE id WHEN 0 THEN parse_json(\'{"c": "x"}\') END WHERE id IN (0, 2)')
        assert_equal(session)
        del rows[1], rows[7]
        session.execute("DELETE FROM docs WHERE id IN (1, 7)")
        assert_equal(session)
        assert '{"c":"x"}' in text_table(session.read("whole"))


def _collected(spark: SparkSession, query: str) -> pa.Table:
    """Spark's answer without its toArrow(), whose cast fails on a NULL variant."""
    return pa.Table.from_batches(
        spark.sql(query)._collect_as_arrow(empty_list_if_zero_records=False)  # type: ignore[operator]
    )


def test_a_table_without_a_key_keeps_variants_that_are_equal(spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (p variant)")
        session.execute("INSERT INTO t VALUES (parse_json('1')), (parse_json('1')), (NULL), (parse_json('2'))")
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT p FROM t")
        session.flush()
        session.execute("DELETE FROM t WHERE p::int = 2")
        session.flush()
        assert answer(session.read("v")) == Counter({"['1']": 2, "[None]": 1})


def test_variants_are_read_from_json_and_from_parquet_whole_or_shredded(spark: SparkSession, tmp_path: Path) -> None:
    lines = [{"id": i, **({} if t is None else {"p": json.loads(t)})} for i, t in enumerate(TEXTS)]
    (tmp_path / "json").mkdir()
    (tmp_path / "json/a.json").write_text("\n".join(map(json.dumps, lines)))
    shredding = "spark.sql.variant.writeShredding.enabled"
    for name, on in (("whole", "false"), ("shredded", "true")):
        spark.conf.set(shredding, on)
        like = TEXTS if name == "whole" else ['{"a": 1}'] * 9  # Spark shreds variants of equal shape
        texts = (
            spark.createDataFrame(list(enumerate(like)), "id int, t string")
            .selectExpr("id", "parse_json(t) AS p")
            .coalesce(1)
        )
        texts.write.parquet(str(tmp_path / name))
    spark.conf.unset(shredding)
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(f"CREATE SOURCE j (id int, p variant) USING json OPTIONS (path '{tmp_path}/json')")
        session.execute(f"CREATE SOURCE w USING parquet OPTIONS (path '{tmp_path}/whole')")
        session.execute(f"CREATE SOURCE s USING parquet OPTIONS (path '{tmp_path}/shredded')")
        for source in "jws":
            session.execute(f"CREATE MATERIALIZED VIEW of_{source} AS SELECT id, p FROM {source}")
        assert not session.flush().held
        spark.read.schema("id int, p variant").json(str(tmp_path / "json")).createOrReplaceTempView("told")
        for source, relation in (
            ("j", "told"),
            ("w", f"parquet.`{tmp_path}/whole`"),
            ("s", f"parquet.`{tmp_path}/shredded`"),
        ):
            assert answer(session.read(f"of_{source}")) == answer(_collected(spark, f"SELECT id, p FROM {relation}")), (
                source
            )


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT DISTINCT p FROM t", "SET_OPERATION_ON_VARIANT_TYPE"),
        ("SELECT p, count(*) AS n FROM t GROUP BY p", "GROUP_EXPRESSION_TYPE_IS_NOT_ORDERABLE"),
        ("SELECT t.p FROM t JOIN t u ON t.p = u.p", "INVALID_ORDERING_TYPE"),
    ],
)
def test_spark_refuses_comparisons_of_variants(query: str, reason: str, spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (p variant)")
        with pytest.raises(InputError, match=reason):
            session.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
