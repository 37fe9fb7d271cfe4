"""Shredded variants of Parquet files, which Spark writes with random schemas. Spark's read of them is compared byte
by byte.
"""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.jobs.sources.delta_by_hand import add, added, commit, features, table_of
from tests.jobs.sources.pinned import pinned
from tussock.jobs.logical.nodes import Field
from tussock.jobs.session import Session
from tussock.jobs.sources.errors import UnreadableFileError
from tussock.jobs.sources.parquet import Split, read_split
from tussock.jobs.sources.variants import canonical_variants, whole_variants
from tussock.statestore.types import VARIANT

SETTINGS = ("writeShredding.enabled", "inferShreddingSchema", "forceShreddingSchemaForTest")
NAMES = ("a", "b", "é", "\uffff", "\U00010000", "long name", "z" * 40, "")
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


def value(draw: random.Random, depth: int = 3) -> Any:
    kind = draw.random()
    if depth and kind < 0.45:
        return {name: value(draw, depth - 1) for name in draw.sample(NAMES, draw.randint(0, 5))}
    if depth and kind < 0.6:
        return [value(draw, depth - 1) for _ in range(draw.choice((0, 1, 2, 3, 300 if depth == 1 else 2)))]
    numbers = (0, 1, -129, 2**15, 2**31, -(2**63), 1.5, -0.25, 1e300, 12345678.25)
    return draw.choice((None, True, False, "", "x", "ß" * 40, "2020-01-01", *numbers))


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
    ours = read_split(Split(pinned(path)), (0, 1), fields, {}).rows.drop_columns("_row_id")
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


def group(**columns: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


NOTHING = pa.array([b"\x01\x00\x00"])


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (
            group(metadata=NOTHING, value=pa.array([None], pa.binary()), typed_value=pa.array([None], pa.int32())),
            "has no value",
        ),
        (group(metadata=NOTHING, value=pa.array([None], pa.binary())), "has no value"),
        (group(metadata=NOTHING, typed_value=pa.array([1], pa.time64("us"))), "which Spark does not read"),
        (group(metadata=pa.array([b"\x02\x00\x00"]), typed_value=pa.array([1])), "metadata of version 2"),
        (group(metadata=pa.array([b"\x01"]), typed_value=pa.array([1])), "is damaged"),
        (
            group(metadata=NOTHING, value=pa.array([b"\x18\x00"]), typed_value=pa.array([None], pa.int64())),
            "is damaged",
        ),
        (
            group(metadata=NOTHING, value=pa.array([b"\x00"]), typed_value=group(a=group(value=pa.array([b"\x00"])))),
            "a `value` that is not an object",
        ),
        (
            group(
                metadata=pa.array([b"\x01\x01\x00\x01a"]),
                value=pa.array([b"\x02\x01\x00\x00\x01\x00"]),
                typed_value=group(a=group(value=pa.array([b"\x00"]))),
            ),
            "the field 'a' twice",
        ),
    ],
)
def test_parts_that_make_no_variant_are_an_error(array: pa.StructArray, reason: str, tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowInvalid, match=reason):
        whole_variants(array)
    pq.write_table(pa.table({"v": array}), tmp_path / "x.parquet")
    with pytest.raises(UnreadableFileError, match=reason):
        read_split(Split(pinned(tmp_path / "x.parquet")), (0,), [Field("v", "variant")], {})


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
    with Session(str(tmp_path / "store"), spark, runner="local") as session:
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


def test_equal_variants_are_equal_bytes() -> None:
    one = {"metadata": b"\x01\x03\x00\x01\x02\x03bax", "value": b"\x02\x02\x01\x00\x02\x00\x04\x0c\x01\x0c\x02"}
    other = {"metadata": b"\x01\x02\x00\x01\x02ab", "value": b"\x02\x02\x00\x01\x00\x02\x04\x0c\x02\x0c\x01"}
    found = canonical_variants(pa.array([one, None, other], VARIANT)).to_pylist()
    assert found[1] is None
    assert found[0] == found[2]
    assert canonical_variants(pa.array([found[0]], VARIANT)).to_pylist() == [found[0]]
