"""Parquet splits, compared with pyarrow's read of the whole file, and declared types, compared with Spark's reader."""

import datetime as dt
import os
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.jobs.kernels.spark_truth import name_of
from tests.jobs.sources.counted import calls_during
from tests.jobs.sources.pinned import pinned
from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.errors import ChangedFileError, SchemaMismatchError, TooFineTimeError, UnreadableFileError
from tussock.jobs.sources.pairing import reads_as
from tussock.jobs.sources.parquet import Split, read_split, splits
from tussock.jobs.sources.parquet_schema import parquet_fields
from tussock.jobs.sources.rejects import REJECT
from tussock.statestore.months import given_rows
from tussock.statestore.types import arrow_type

FIELDS = (Field("id", "bigint"), Field("name", "string"), Field("price", "double"))
BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """1,000 rows in 10 row groups; the file's columns have another order than the declared ones."""
    path = tmp_path / "rows.parquet"
    some = range(1000)
    rows = pa.table({"price": [i / 4 for i in some], "id": list(some), "Name": [f"n{i % 7}" for i in some]})
    pq.write_table(rows, path, row_group_size=100)
    return path


def test_splits_cover_every_row_once_and_number_it_by_file_and_position(file: Path) -> None:
    pin = pinned(file, number=3)
    parts = splits(pin, FIELDS, pin.size // 4, {})
    assert 3 <= len(parts) <= 5
    read = pa.concat_tables([read_split(p, (0, 1), FIELDS, {}).rows for p in parts])
    assert read["id"].to_pylist() == list(range(1000))
    assert read["_row_id"].to_pylist() == [(3 << 40) + i for i in range(1000)]
    assert read_split(parts[1], (0,), FIELDS, {}).rows["_row_id"][0].as_py() == (3 << 40) + parts[1].first_row


def test_a_file_within_the_target_is_one_split_that_reads_like_pyarrow(file: Path) -> None:
    (split,) = splits(pinned(file), FIELDS, 1 << 30, {})
    assert split == Split(pinned(file))
    read = read_split(split, (2, 1), FIELDS, {}).rows
    whole = pq.read_table(file)
    assert read.column_names == ["price", "name", "_row_id"]
    assert read["price"].equals(whole["price"])
    assert read["name"].equals(whole["Name"])


def test_no_columns_still_give_a_row_id_per_row(file: Path) -> None:
    assert read_split(Split(pinned(file)), (), FIELDS, {}).rows.to_pydict() == {"_row_id": list(range(1000))}


def test_the_work_of_a_read_grows_with_the_columns_and_not_with_their_square(tmp_path: Path) -> None:
    def calls(columns: int) -> int:
        names = [f"c{i}" for i in range(columns)]
        pq.write_table(pa.table({name: [1] for name in names}), path := tmp_path / f"{columns}.parquet")
        pin, fields = pinned(path), [Field(name, "bigint") for name in names]
        return calls_during(lambda: read_split(Split(pin), range(columns), fields, {}).rows)

    calls(1)  # for imports and caches
    assert calls(400) < 3 * calls(200)


def test_s3_reads_like_a_local_file(file: Path, s3_bucket: tuple[str, Callable[[str, bytes], None]]) -> None:
    uri, put = s3_bucket
    put("parquet/rows.parquet", file.read_bytes())
    root, _, query = uri.partition("?")
    options = dict(pair.split("=", 1) for pair in query.split("&"))
    pin = pinned(f"{root}/parquet/rows.parquet", 5, options)
    parts = splits(pin, FIELDS, pin.size // 3, options)
    assert len(parts) > 1
    there = pa.concat_tables([read_split(p, (0, 1, 2), FIELDS, options).rows for p in parts])
    assert there.equals(read_split(Split(pinned(file, 5)), (0, 1, 2), FIELDS, {}).rows)


def test_a_file_written_again_is_a_changed_file(file: Path) -> None:
    pin = pinned(file)
    os.utime(file, ns=(1, 1))
    with pytest.raises(ChangedFileError, match=r"rows\.parquet has changed.*barrier abandon"):
        read_split(Split(pin), (0,), FIELDS, {})
    file.unlink()
    with pytest.raises(ChangedFileError, match="no such file"):
        splits(pin, FIELDS, 1, {})


@pytest.mark.parametrize("damage", ["cut", "text", "flipped"])
def test_a_damaged_file_is_named(file: Path, damage: str) -> None:
    data = bytearray(file.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    bad = {"cut": data[:-5], "text": bytearray(b"id,name\n1,a\n" * 20), "flipped": data}[damage]
    if damage == "flipped":
        bad[4 : len(data) - footer] = bytes(255 - b for b in data[4 : len(data) - footer])
    file.write_bytes(bad)
    with pytest.raises(UnreadableFileError, match=r"rows\.parquet cannot be read as parquet"):
        read_split(Split(pinned(file)), (0, 1, 2), FIELDS, {})


def test_a_missing_or_doubled_column_is_reported_with_the_files_columns(file: Path, tmp_path: Path) -> None:
    with pytest.raises(
        SchemaMismatchError,
        match=r"column 'city': found no such column \(the file has price, id, Name\), expected string",
    ):
        read_split(Split(pinned(file)), (0, 3), (*FIELDS, Field("city", "string")), {})
    with pytest.raises(SchemaMismatchError, match="city"):
        splits(pinned(file), (*FIELDS, Field("city", "string")), 1, {})
    nulls = read_split(Split(pinned(file)), (3, 0), (*FIELDS, Field("city", "string")), {"missing": "null"}).rows
    assert nulls["city"].null_count == nulls.num_rows == pq.read_metadata(file).num_rows
    twice = tmp_path / "twice.parquet"
    pq.write_table(pa.table({"id": [1], "ID": [2]}), twice)
    with pytest.raises(SchemaMismatchError, match="several columns of this name"):
        read_split(Split(pinned(twice)), (0,), FIELDS, {})


TYPES = [
    *(
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    ),
    *("decimal(10,2)", "decimal(12,2)", "decimal(12,3)", "decimal(22,2)", "decimal(20,0)"),
]
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


def test_numbers_are_read_as_the_intervals_that_they_are_declared_to_be(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    months = pa.array([14, None, -1], pa.int32())
    pq.write_table(pa.table({"a": [1, None, -3], "b": pa.array([4, None, 5], pa.duration("us")), "c": months}), path)
    fields = (Field("a", "interval day to second"), Field("b", "bigint"), Field("c", "interval year to month"))
    read = read_split(Split(pinned(path)), (0, 1, 2), fields, {}).rows
    assert given_rows(read)["c"].to_pylist() == [(14, 0, 0), None, (-1, 0, 0)]
    assert read["a"].to_pylist() == [dt.timedelta(microseconds=1), None, dt.timedelta(microseconds=-3)]
    assert read["b"].to_pylist() == [4, None, 5]


def test_nanoseconds_are_read_as_microseconds_only_if_no_digit_is_lost(tmp_path: Path) -> None:
    path, at = tmp_path / "ns.parquet", Field("x", "timestamp")
    whole, fine = (
        pa.array([-1000, None, 2000], pa.timestamp("ns", "UTC")),
        pa.array([2000, None, -1], pa.timestamp("ns", "UTC")),
    )
    pq.write_table(pa.table({"x": whole}), path)
    assert read_split(Split(pinned(path)), (0,), (at,), {}).rows["x"].cast(pa.int64()).to_pylist() == [-1, None, 2]
    pq.write_table(
        pa.table(
            {"x": fine, "l": [[None], [], [None, *fine[2:]]]},
            schema=pa.schema({"x": fine.type, "l": pa.list_(fine.type)}),
        ),
        path,
    )
    for field in (at, Field("l", "array<timestamp>")):
        with pytest.raises(
            TooFineTimeError, match=f"row 3, column '{field.name}': the time has digits below the microsecond"
        ):
            read_split(Split(pinned(path)), (0,), (field,), {})
    rows = read_split(Split(pinned(path)), (0,), (at,), {"on_error": "quarantine"}).rows
    assert [r and r["reason"] for r in rows[REJECT].to_pylist()] == [
        None,
        None,
        "column 'x': a time has digits below the microsecond",
    ]


@pytest.mark.spark
def test_nanoseconds_declared_as_bigint_are_sparks_number(spark: SparkSession, tmp_path: Path) -> None:
    path, field = tmp_path / "ns.parquet", Field("x", "bigint")
    pq.write_table(pa.table({"x": pa.array([-1, None, 1999], pa.timestamp("ns"))}), path)
    ours = read_split(Split(pinned(path)), (0,), (field,), {}).rows.drop_columns("_row_id")
    assert ours.equals(sparks_own(spark, path, [field]))
    with pytest.raises(Py4JJavaError):  # Spark cannot read them as times
        sparks_own(spark, path, [Field("x", "timestamp_ntz")])


def test_a_column_without_any_value_is_null_in_every_declared_type(tmp_path: Path) -> None:
    path = tmp_path / "null.parquet"
    pq.write_table(pa.table({"n": pa.nulls(2), "l": pa.array([[None], None], pa.list_(pa.null()))}), path)
    kinds = [*TYPES, "array<string>", "struct<a:int>"]
    for kind in kinds:
        read = read_split(Split(pinned(path)), (0, 1), (Field("n", kind), Field("l", f"array<{kind}>")), {}).rows
        assert read.schema.types[:2] == [arrow_type(kind), arrow_type(f"array<{kind}>")]
        assert read["n"].to_pylist() == [None, None]
        assert read["l"].to_pylist() == [[None], None]


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
    values = [v for v in values if not -22 * 10**17 < v < -21 * 10**17]  # see far_int96
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        frame = spark.createDataFrame(pa.table({"x": pa.array([*values, None], pa.int64())}))
        frame.selectExpr("timestamp_micros(x) AS x").coalesce(1).write.parquet(str(tmp_path / "written"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    (path,) = (tmp_path / "written").glob("*.parquet")
    theirs = spark.read.parquet(str(path)).selectExpr("unix_micros(x) AS x").toArrow()["x"].to_pylist()
    ours = read_split(Split(pinned(path)), (0,), (Field("x", "timestamp"),), {}).rows["x"].cast(pa.int64()).to_pylist()
    assert ours == theirs == [*values, None]
