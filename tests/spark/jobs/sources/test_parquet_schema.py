"""Columns of Parquet files, compared with Spark's reader of the same file."""

import io
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.parquet_schema import parquet_fields
from tussock.statestore.types import UnsupportedTypeError, arrow_type

_DAY = datetime(2020, 1, 2)
_COLUMNS = {
    "int8": pa.array([1], pa.int8()),
    "int64": pa.array([1], pa.int64()),
    "uint8": pa.array([1], pa.uint8()),
    "uint16": pa.array([1], pa.uint16()),
    "uint32": pa.array([1], pa.uint32()),
    "uint64": pa.array([1], pa.uint64()),
    "float": pa.array([1.5], pa.float32()),
    "local ms": pa.array([_DAY], pa.timestamp("ms")),
    "local us": pa.array([_DAY], pa.timestamp("us")),
    "local ns": pa.array([_DAY], pa.timestamp("ns")),
    "instant us": pa.array([_DAY], pa.timestamp("us", tz="UTC")),
    "instant of Berlin": pa.array([_DAY], pa.timestamp("ms", tz="Europe/Berlin")),
    "date": pa.array([date(2020, 1, 2)]),
    "decimal": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
    "fixed binary": pa.array([b"abc"], pa.binary(3)),
    "large string": pa.array(["x"], pa.large_string()),
    "categories": pa.array(["x"]).dictionary_encode(),
    "time": pa.array([1], pa.time32("ms")),
    "duration": pa.array([1], pa.duration("us")),
    "half": pa.array([1.0], pa.float16()),
    "null": pa.nulls(1),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16))),
    "time us": pa.array([1], pa.time64("us")),
    "time ns": pa.array([1], pa.time64("ns")),
    "enum": pa.array(["RED"]),
    "bson": pa.array(["x"]),
    "small decimal": pa.array([Decimal("1.5")], pa.decimal128(5, 1)),
    "wide decimal": pa.array([Decimal("1.5")], pa.decimal128(38, 1)),
    "wider decimal": pa.array([Decimal("1.5")], pa.decimal256(50, 1)),
}
#: Bytes of a footer that turn the logical type UTF8 into one that pyarrow does not write.
_FROM_UTF8 = {"enum": b"\x25\x08\x4c\x4c\x00\x00", "bson": b"\x25\x28\x4c\xdc\x00\x00"}
_WRAPPED = {
    "plain": lambda column: column,
    "list": lambda column: pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column),
    "struct": lambda column: pa.StructArray.from_arrays([pa.array([1]), column], names=["n", "e"]),
    "map": lambda column: pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([1]), column),
}


def _file(column: pa.Array, int96: bool = False, logical: bytes | None = None) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": column}), sink, use_deprecated_int96_timestamps=int96, store_schema=logical is None)
    data = sink.getvalue()
    if logical is None:
        return data
    assert data.count(_UTF8) == 1
    return data.replace(_UTF8, logical)


_UTF8 = b"\x25\x00\x4c\x1c\x00\x00"


@pytest.mark.spark
@pytest.mark.parametrize("name", _COLUMNS)
@pytest.mark.sampled(2)
def test_a_files_column_has_the_type_that_spark_reads(name: str, spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")  # as in Tussock's own sessions
    has_time = pa.types.is_timestamp(_COLUMNS[name].type)
    for wrapped, int96 in [(w, i) for w in _WRAPPED for i in ((False, True) if has_time else (False,))]:
        data = _file(_WRAPPED[wrapped](_COLUMNS[name]), int96, _FROM_UTF8.get(name))
        require_sparks_type(data, spark, tmp_path / f"{wrapped}{int96}.parquet")


def require_sparks_type(data: bytes, spark: SparkSession, path: Path) -> None:
    path.write_bytes(data)
    try:
        expected = spark.read.parquet(str(path)).schema[0].dataType.simpleString()
    except (PySparkException, Py4JJavaError):
        (field,) = parquet_fields(io.BytesIO(data), "x.parquet")
        with pytest.raises(UnsupportedTypeError):
            arrow_type(field.type)
        return
    assert parquet_fields(io.BytesIO(data), "x.parquet") == (Field("x", expected),)


@pytest.mark.spark
@pytest.mark.parametrize("shredded", ["false", "true"])
def test_a_variant_is_found_by_its_logical_type_without_sparks_note(
    shredded: str, spark: SparkSession, tmp_path: Path
) -> None:
    settings = {"writeShredding.enabled": shredded, "inferShreddingSchema": shredded}
    for setting, value in settings.items():
        spark.conf.set(f"spark.sql.variant.{setting}", value)
    try:
        one = """parse_json('{"a": 1}')"""
        frame = spark.sql(
            f"SELECT 1 AS before, {one} AS v, struct({one} AS x, 2 AS y) AS `a.b (c)`, array({one}) AS l, 'z' AS after"
        )
        frame.coalesce(1).write.parquet(str(tmp_path / "written"))
    finally:
        for setting in settings:
            spark.conf.unset(f"spark.sql.variant.{setting}")
    (file,) = (tmp_path / "written").glob("*.parquet")
    data = file.read_bytes().replace(
        b"org.apache.spark.sql.parquet.row.metadata", b"xrg.apache.spark.sql.parquet.row.metadata"
    )
    (tmp_path / "foreign.parquet").write_bytes(data)
    fields = parquet_fields(io.BytesIO(data), "x.parquet")
    assert [(f.name, f.type) for f in fields] == spark.read.parquet(str(tmp_path / "foreign.parquet")).dtypes
    assert fields[1].type == "variant"


@pytest.mark.spark
def test_intervals_in_a_file_that_spark_wrote_are_intervals(spark: SparkSession, tmp_path: Path) -> None:
    spans = "INTERVAL '1 02' DAY TO HOUR AS a, DATE '2024-01-02' - DATE '2024-01-01' AS b, INTERVAL '1' MONTH AS e"
    frame = spark.sql(f"SELECT {spans}, 1L AS c, array(1) AS d, 1 AS f")
    frame.coalesce(1).write.parquet(str(tmp_path / "written"))
    (file,) = (tmp_path / "written").glob("*.parquet")
    fields = parquet_fields(io.BytesIO(file.read_bytes()), "x.parquet")
    assert [(f.name, f.type) for f in fields] == spark.read.parquet(str(tmp_path / "written")).dtypes
