"""Shredded variants of Parquet files, which Spark writes with random schemas. Spark's read of them is compared byte
by byte.
"""

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.sources.delta_by_hand import add, added, commit, features, table_of
from tests.support.jobs.sources.pinned import pinned
from tests.support.jobs.sources.plain_texts import as_decided
from tests.support.jobs.sources.shredded_variants import NAMES, value
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.session import Session

SETTINGS = ("writeShredding.enabled", "inferShreddingSchema", "forceShreddingSchemaForTest")
LEAVES = (
    "int",
    "bigint",
    "tinyint",
    "double",
    "float",
    "string",
    "boolean",
    "decimal(9,2)",
    "decimal(30,5)",
    "date",
    "binary",
)


def shredding(draw: random.Random, depth: int = 3) -> str:
    kind = draw.random()
    if depth and kind < 0.6:
        fields = ", ".join(
            f"`{name}`: {shredding(draw, depth - 1)}"
            for name in draw.sample([n for n in NAMES if n], draw.randint(1, 4))
        )
        return f"struct<{fields}>"
    return f"array<{shredding(draw, depth - 1)}>" if depth and kind < 0.75 else draw.choice((*LEAVES, "variant"))


def written(spark: SparkSession, folder: Path, texts: list[str | None], schema: str) -> Path:
    """A file of variants that Spark has shredded with a schema. The first column has some of them in an array within
    a struct.
    """
    values = zip(SETTINGS, ("true", "false", schema), strict=True)
    for setting, chosen in values:
        spark.conf.set(f"spark.sql.variant.{setting}", chosen)
    try:
        frame = spark.createDataFrame([(text,) for text in texts], "t string").selectExpr("parse_json(t) AS v")
        special = "to_variant_object(named_struct('a', DATE'2020-02-03', 'b', X'00ff', 'é', CAST(1.5 AS float)))"
        frame = frame.unionAll(spark.sql(f"SELECT CAST({special} AS variant)"))
        frame.selectExpr("struct(array(v, NULL) AS l) AS s", "v").coalesce(1).write.parquet(str(folder))
    finally:
        for setting in SETTINGS:
            spark.conf.unset(f"spark.sql.variant.{setting}")
    (path,) = folder.glob("*.parquet")
    return path


def require_equal(spark: SparkSession, folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    texts = [None if draw.random() < 0.1 else json.dumps(value(draw)) for _ in range(60)]
    schema = shredding(draw)
    path = written(spark, folder, texts, schema)
    assert "typed_value" in str(pq.read_schema(path)) or schema == "variant", schema
    fields = (Field("s", "struct<l:array<variant>>"), Field("v", "variant"))
    reason, ours = as_decided(spark, CreateSource("s", "parquet", fields, {"path": str(path)}), pinned(path))
    assert (reason == "its variants are shredded") == (schema != "variant")
    assert isinstance(ours, pa.Table), ours
    ours = ours.select(range(2)).rename_columns(["s", "v"])
    ours.validate(full=True)
    theirs = pa.Table.from_batches(
        spark.read.parquet(str(path))._collect_as_arrow(empty_list_if_zero_records=False)  # type: ignore[operator]
    )
    assert ours.to_pylist() == theirs.to_pylist(), (seed, schema)


@pytest.mark.spark
def test_shredded_variants_are_put_together_as_spark_puts_them(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(3):
        require_equal(spark, tmp_path / str(seed), seed)


@pytest.mark.spark
@pytest.mark.deep
def test_many_shredded_variants(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(100, 160):
        require_equal(spark, tmp_path / str(seed), seed)


@pytest.mark.spark
def test_rows_with_variants_come_and_go_in_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    """The change feed has the row in other bytes: shredded, with its names in another order."""
    texts, place = ['{"a": 1, "b": {"c": "x"}}', '{"b": 2}', None], tmp_path / "t"
    place.mkdir()
    whole = written(spark, tmp_path / "whole", texts, "variant")
    gone = written(spark, tmp_path / "gone", texts[:1], "struct<b: struct<c: string>, a: string>")
    rows = pq.read_table(gone).slice(0, 1)
    rows = rows.append_column("_change_type", pa.array(["delete"]))
    whole.rename(place / "whole.parquet")
    declared = table_of(
        [("s", "struct<l:array<variant>>"), ("v", "variant")], features("variantType", "variantShredding")
    )
    commit(place, 0, *declared, added(place, "whole.parquet"))
    with Session(str(tmp_path / "store"), spark, runner="auto") as session:
        session.execute(
            f"CREATE SOURCE s USING delta OPTIONS (path '{place}'); CREATE MATERIALIZED VIEW v AS SELECT * FROM s"
        )
        assert not session.flush().held
        before = session.read("v").num_rows
        (file,) = add(place, {"feed.parquet": rows})
        feed = {"path": "feed.parquet", "partitionValues": {}, "size": file["add"]["size"], "dataChange": False}
        commit(place, 1, {"cdc": feed})
        assert not session.flush().held
        assert session.read("v").num_rows == before - 1
        left = session.query("SELECT to_json(v) AS v FROM v")["v"].to_pylist()
        assert sorted(map(str, left)) == sorted(
            ['{"b":2}', "None", left[-1] if left[-1] and "2020" in left[-1] else max(left, key=str)]
        )
