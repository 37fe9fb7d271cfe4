"""Parquet splits, compared with pyarrow's read of the whole file, and declared types, compared with Spark's reader."""

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.support.jobs.kernels.spark_truth import name_of
from tests.support.jobs.sources import parquet as shared
from tests.support.jobs.sources.parquet import TYPES
from tests.support.jobs.sources.pinned import pinned
from tests.support.jobs.sources.plain_texts import as_decided
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import SchemaMismatchError
from tussock.jobs.sources.pairing import reads_as
from tussock.jobs.sources.parquet import Split, read_split
from tussock.jobs.sources.parquet_schema import parquet_fields
from tussock.statestore.types import arrow_type

file = shared.file
BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
WRITTEN = {
    "int8": pa.array([-128, None], pa.int8()),
    "int16": pa.array([-(2**15), None], pa.int16()),
    "int32": pa.array([2**31 - 1, None], pa.int32()),
    "int64": pa.array([-(2**63), None], pa.int64()),
    "uint8": pa.array([255, None], pa.uint8()),
    "uint16": pa.array([65535, None], pa.uint16()),
    "uint32": pa.array([2**32 - 1, None], pa.uint32()),
    "uint64": pa.array([2**64 - 1, None], pa.uint64()),
    "float": pa.array([0.1, None], pa.float32()),
    "double": pa.array([-0.0, None], pa.float64()),
    "string": pa.array(["ß", None]),
    "large_string": pa.array(["ß", None], pa.large_string()),
    "binary": pa.array([b"\x00a", None]),
    "date": pa.array([dt.date(1900, 1, 1), None]),
    "decimal": pa.array([Decimal("-1.25"), None], pa.decimal128(10, 2)),
    "local_us": pa.array([BEFORE_1970, None], pa.timestamp("us")),
    "instant_us": pa.array([BEFORE_1970, None], pa.timestamp("us", "UTC")),
    "instant_ms": pa.array([-1, None], pa.timestamp("ms", "Europe/Berlin")),
    "int96": pa.array([-1, None], pa.timestamp("ns")),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "boolean": pa.array([True, None]),
}
#: Pairs that Spark reads and this reader refuses, because a value changes its meaning or may not fit.
REFUSED = {
    "int8": {"date"},
    "int16": {"tinyint", "date"},
    "int32": {"tinyint", "smallint", "date"},
    "uint8": {"tinyint", "date"},
    "uint16": {"tinyint", "smallint", "date"},
    "date": {"tinyint", "smallint", "int", "bigint", "double"},
    "local_us": {"bigint"},
    "instant_us": {"bigint", "timestamp_ntz"},
    "instant_ms": {"bigint", "timestamp_ntz"},
}


@pytest.mark.spark
def test_every_type_reads_as_spark_reads_it_or_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Each written type under each declared type.

    The file has a copy of the values per declared type, so that Spark reads it once.
    """
    for name, values in WRITTEN.items():
        path = tmp_path / f"{name}.parquet"
        copies = pa.table({f"x{i}": values for i in range(len(TYPES))})
        pq.write_table(copies, path, use_deprecated_int96_timestamps=name == "int96")
        fields = tuple(Field(f"x{i}", t) for i, t in enumerate(TYPES))
        found = pa.timestamp("us") if name == "int96" else pq.read_schema(path).field(0).type
        accepted = [i for i, t in enumerate(TYPES) if reads_as(found, arrow_type(t))]
        ours = read_split(Split(pinned(path)), accepted, fields, {}).rows.drop_columns("_row_id")
        assert ours.equals(sparks_own(spark, path, [fields[i] for i in accepted])), name
        spark_alone = [f for i, f in enumerate(fields) if i not in accepted and f.type in REFUSED.get(name, ())]
        assert len(spark_alone) == len(REFUSED.get(name, ())), name
        if spark_alone:
            sparks_own(spark, path, spark_alone)  # does not raise


NESTED = {
    "lists": pa.array([[1, None], [], None]),
    "large": pa.array([["ß"], [None], None], pa.large_list(pa.large_string())),
    "fixed": pa.array([[1, 2], [3, None], None], pa.list_(pa.uint8(), 2)),
    "deep": pa.array([[[0.5], None], [], None]),
    "rows": pa.array(
        [{"a": 1, "B c": "x"}, {"a": None, "B c": None}, None], pa.struct([("a", pa.uint16()), ("B c", pa.string())])
    ),
    "pairs": pa.array([[("k", 1.5)], [], None], pa.map_(pa.string(), pa.float32())),
    "moments": pa.array([[BEFORE_1970], [None], None], pa.list_(pa.timestamp("us"))),
    "instants": pa.array(
        [{"at": [BEFORE_1970]}, {"at": None}, None], pa.struct([("at", pa.list_(pa.timestamp("ms", "Europe/Berlin")))])
    ),
    "sums": pa.array([[Decimal("1.25")], [None], None], pa.list_(pa.decimal128(10, 2))),
}


@pytest.mark.spark
def test_nested_columns_are_found_and_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "nested.parquet"
    pq.write_table(pa.table(NESTED), path)
    with path.open("rb") as file:
        fields = parquet_fields(file, str(path))
    assert [f.type for f in fields] == [name_of(f.dataType) for f in spark.read.parquet(str(path)).schema.fields]
    ours = read_split(Split(pinned(path)), range(len(fields)), fields, {}).rows.drop_columns("_row_id")
    ours.validate(full=True)
    assert ours.schema.types == [arrow_type(f.type) for f in fields]
    assert ours.equals(sparks_own(spark, path, fields))
    other = Field("rows", "struct<a:int,b:string>")
    with pytest.raises(SchemaMismatchError, match=r"'rows\.b': found no such field"):
        read_split(Split(pinned(path)), [0], [other], {})


def sparks_own(spark: SparkSession, path: Path, fields: Sequence[Field]) -> pa.Table:
    read = spark.read.schema(", ".join(f"{f.name} {f.type}" for f in fields)).parquet(str(path)).toArrow()
    return read.cast(pa.schema([(f.name, arrow_type(f.type)) for f in fields]))


@pytest.mark.spark
def test_nanoseconds_declared_as_bigint_are_sparks_number(spark: SparkSession, tmp_path: Path) -> None:
    path, field = tmp_path / "ns.parquet", Field("x", "bigint")
    pq.write_table(pa.table({"x": pa.array([-1, None, 1999], pa.timestamp("ns"))}), path)
    ours = read_split(Split(pinned(path)), (0,), (field,), {}).rows.drop_columns("_row_id")
    assert ours.equals(sparks_own(spark, path, [field]))
    with pytest.raises(Py4JJavaError):  # Spark cannot read them as times
        sparks_own(spark, path, [Field("x", "timestamp_ntz")])


@pytest.mark.spark
def test_int96_in_far_years_is_sparks_time(spark: SparkSession, tmp_path: Path) -> None:
    rng, day = random.Random(5), 86_400_000_000
    edges = [
        0,
        -1,
        2**63 - 1,
        -(2**63),
        253_402_300_799_999_999,
        -62_135_596_800_000_000,
        -2_440_587 * day,
        -2_440_589 * day,
    ]
    values = [
        *edges,
        *(n * day for n in range(-90_000_000, 90_000_000, 9_999_999)),
        *(rng.randrange(-(2**63), 2**63) for _ in range(200)),
    ]
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        frame = spark.createDataFrame(pa.table({"x": pa.array([*values, None], pa.int64())}))
        frame.selectExpr("timestamp_micros(x) AS x").coalesce(1).write.parquet(str(tmp_path / "written"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    (path,) = (tmp_path / "written").glob("*.parquet")
    theirs = spark.read.parquet(str(path)).selectExpr("unix_micros(x) AS x").toArrow()["x"].to_pylist()
    source = CreateSource("s", "parquet", (Field("x", "timestamp"),), {"path": str(path)})
    reason, ours = as_decided(spark, source, pinned(path))
    assert reason == "column 'x' has times of far years in INT96"
    assert isinstance(ours, pa.Table)
    assert ours.column(0).cast(pa.int64()).to_pylist() == theirs == [*values, None]
