"""CSV and JSON chunks, compared with Spark's own read of the same files."""

import gzip
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.jobs.sources.pinned import pinned
from tussock.jobs.chunks.failure import first_failure
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import (
    BadOptionError,
    BadRowError,
    ChangedFileError,
    UnreadableFileError,
    UnsupportedFormatError,
)
from tussock.jobs.sources.file_documents import document_of
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.registry import READERS, reader_of
from tussock.jobs.sources.row_ids import ROW_ID_NAME
from tussock.statestore.errors import TussockError
from tussock.statestore.types import arrow_type

pytestmark = pytest.mark.spark
FIELDS = (
    Field("id", "int"),
    Field("name", "string"),
    Field("day", "date"),
    Field("at", "timestamp"),
    Field("price", "decimal(10,2)"),
)


def source(options: Mapping[str, str], fields: tuple[Field, ...] = FIELDS, format: str = "csv") -> CreateSource:
    return CreateSource("bids", format, fields, {"path": "/ignored", **options})


def read(spark: SparkSession, files: list[PinnedFile], made: CreateSource, columns: tuple[int, ...]) -> pa.Table:
    """The rows in order of `_row_id`, or the first failure raised."""
    cells = frame(spark, files, made, columns).toArrow()
    failures = [f for f in cells["failure"].to_pylist() if f is not None]
    if failures:
        raise first_failure(failures)
    tables = [pa.ipc.open_stream(c).read_all() for c in cells["chunk"].to_pylist()]
    chunk = pa.concat_tables(tables)
    assert set(chunk["w"].to_pylist()) <= {1}
    return (
        chunk.drop_columns("w")
        .rename_columns([*(made.fields[c].name for c in columns), ROW_ID_NAME])
        .sort_by(ROW_ID_NAME)
    )


def frame(spark: SparkSession, files: list[PinnedFile], made: CreateSource, columns: tuple[int, ...]) -> DataFrame:
    """The files as a DataFrame, as their reader gives it to the driver."""
    found = reader_of(made).frame(spark, made, document_of(files), columns)
    assert found is not None
    return found


def sparks_own(spark: SparkSession, path: Path, made: CreateSource) -> pa.Table:
    """One file, read by Spark with the same options, in file order, in the engine's types."""
    options = {k: v for k, v in made.options.items() if k != "path"}
    schema = ", ".join(f"{f.name} {f.type}" for f in made.fields)
    read = spark.read.format(made.format).options(**options).schema(schema).load(str(path)).coalesce(1).toArrow()
    return read.cast(pa.schema([(f.name, arrow_type(f.type)) for f in made.fields]))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"header": "true"}, "id,name,day,at,price\n1,a,2020-02-29,2020-01-01 10:00:00.123456,1.25\n2,,,,\n"),
        (
            {"header": "true", "nullValue": "NA", "dateFormat": "dd/MM/yyyy"},
            "i,n,d,a,p\n1,NA,29/02/2020,NA,-0.10\nNA,b,NA,1969-12-31T23:59:59Z,NA\n",
        ),
        (
            {"multiLine": "true", "sep": ";"},
            '1;"two\nlines; one row";2020-01-01;2020-01-01 00:00:00;1\n2;"a ""quote""";;;2\n',
        ),
        (
            {"comment": "#", "ignoreLeadingWhiteSpace": "true"},
            "# no row\n1,  a,2020-01-01,2020-01-01 00:00:00+05:00,1\n\n3,c,,,\n",
        ),
        ({"quote": "'", "escape": "\\", "encoding": "ISO-8859-1"}, "1,'it\\'s \xdf',2020-01-01,,1\n"),
    ],
)
def test_csv_is_read_like_in_spark(spark: SparkSession, tmp_path: Path, options: dict[str, str], text: str) -> None:
    path = tmp_path / "one, two%20[3].csv"
    path.write_bytes(text.encode(options.get("encoding", "utf-8")))
    escaped = Path(str(path).replace("[", "\\[").replace("]", "\\]"))
    made = source(options)
    ours, theirs = read(spark, [pinned(path, 4)], made, tuple(range(5))), sparks_own(spark, escaped, made)
    assert ours.drop_columns("_row_id").equals(theirs)
    assert ours["_row_id"].to_pylist() == [(4 << 40) + i for i in range(theirs.num_rows)] != []


def test_json_is_read_like_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(
        '{"id": 1, "name": "a", "day": "2020-01-01", "price": 1.5}\n{"name": {"x": 1}, "at": '
        '"2020-01-01T00:00:00Z", "more": 1}\n'
    )
    made = source({}, format="json")
    ours = read(spark, [pinned(path)], made, tuple(range(5)))
    assert ours.drop_columns("_row_id").equals(sparks_own(spark, path, made))


@pytest.mark.parametrize("format", ["csv", "json", "xml"])
def test_a_column_may_have_any_name_that_spark_reads(format: str, spark: SparkSession, tmp_path: Path) -> None:
    more = {"xml": ("a.b-c",)}
    names = ("Sepal.Length", *more.get(format, ("c0", "No. 1", "a`b.c", "`")))
    fields = tuple(Field(name, "bigint") for name in names)
    rows = spark.range(5).selectExpr(*(f"id + {n} AS {quote_name(name)}" for n, name in enumerate(names))).coalesce(1)
    options = {"header": "true"} if format == "csv" else {"rowTag": "row"} if format == "xml" else {}
    rows.write.format(format).options(**options).save(str(tmp_path / "made"))
    (path,) = (p for p in (tmp_path / "made").iterdir() if p.name.startswith("part-"))
    made = CreateSource("s", format, fields, {"path": "/ignored", **options})
    found = read(spark, [pinned(path)], made, tuple(range(len(names))))
    assert found.drop_columns(ROW_ID_NAME).to_pylist() == rows.toArrow().to_pylist()


def test_positions_follow_the_file_however_large_and_however_many(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would split the large file and combine the small ones. Empty files have no rows. Each row keeps its
    position.
    """
    sizes = [400_000, 3, 0, 5, 1]
    pins = []
    for n, rows in enumerate(sizes):
        path = tmp_path / f"{n}.csv"
        path.write_text("i,s\n" + "".join(f"{i},some text to make the file large\n" for i in range(rows)))
        pins.append(pinned(path, n))
    made = source({"header": "true"}, (Field("i", "int"), Field("s", "string")))
    assert spark.read.csv(pins[0].path).rdd.getNumPartitions() > 1
    ours = read(spark, pins, made, (0,))
    assert ours.num_rows == sum(sizes)
    positions = [(n << 40) + i for n, rows in enumerate(sizes) for i in range(rows)]
    assert ours["_row_id"].to_pylist() == positions
    assert ours["i"].to_pylist() == [p & ((1 << 40) - 1) for p in positions]


def test_two_attempts_give_the_same_bytes(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{i},x\n" for i in range(150_000)))
    made = source({}, (Field("i", "int"), Field("s", "string")))
    first, second = (frame(spark, [pinned(path)], made, (0, 1)).collect() for _ in range(2))
    assert first == second
    assert len(first) > 1


def test_timestamps_are_read_in_the_pipelines_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("2020-07-01 12:00:00\n")
    made = source({}, (Field("at", "timestamp"),))
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        ours, theirs = read(spark, [pinned(path)], made, (0,)), sparks_own(spark, path, made)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert ours["at"].equals(theirs["at"])
    assert ours["at"][0].as_py().hour == 10


@pytest.mark.parametrize(("columns"), [(0,), (1,), ()])
@pytest.mark.parametrize("bad", ["x,b", "7", "1,b,c"])
def test_a_record_that_does_not_parse_stops_every_reader_with_its_place(
    spark: SparkSession, tmp_path: Path, bad: str, columns: tuple[int, ...]
) -> None:
    path = tmp_path / "bids.csv"
    path.write_text(f"i,s\n1,a\n2,b\n{bad}\n3,c\n")
    made = source({"header": "true"}, (Field("i", "int"), Field("s", "string")))
    with pytest.raises(Exception, match="MALFORMED"):
        spark.read.csv(str(path), schema="i int, s string", header=True, mode="FAILFAST").collect()
    with pytest.raises(BadRowError, match="barrier abandon") as raised:
        read(spark, [pinned(path)], made, columns)
    assert (raised.value.path, raised.value.record, raised.value.text) == (str(path), 3, bad)


def test_a_file_changed_before_or_during_the_read_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1\n")
    made, pin = source({}, (Field("i", "int"),)), pinned(path)
    planned = frame(spark, [pin], made, (0,))
    path.write_text("1\n2\n")
    with pytest.raises(ChangedFileError, match="found 4 bytes"):
        frame(spark, [pin], made, (0,))
    (row,) = planned.collect()
    assert isinstance(first_failure([bytes(row.failure)]), ChangedFileError)


def test_a_damaged_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"1\n" * 100_000)[:-40])
    made, pin = source({}, (Field("i", "int"),)), pinned(path)
    with pytest.raises(Exception, match=r"a\.csv\.gz") as raised:
        frame(spark, [pin], made, (0,)).collect()
    document = document_of([pin])
    error = reader_of(made).translate(raised.value, made, document)
    assert isinstance(error, UnreadableFileError)
    assert error.path == str(path)
    assert reader_of(made).translate(ValueError("a.csv.gz"), made, document) is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "PERMISSIVE"}, BadOptionError),
        ({"ignoreCorruptFiles": "true"}, BadOptionError),
        ({"mode": "failfast"}, None),
    ],
)
def test_options_that_would_lose_rows_are_refused(options: dict[str, str], error: type[TussockError] | None) -> None:
    if error is None:
        reader_of(source(options)).check(source(options))
    else:
        with pytest.raises(error, match="Omit it"):
            reader_of(source(options)).check(source(options))


def test_an_unknown_format_is_refused_with_the_list_of_formats() -> None:
    with pytest.raises(
        UnsupportedFormatError, match=r"'bids': format 'excel' is not supported; expected USING parquet \| csv"
    ) as raised:
        reader_of(source({}, format="excel"))
    assert raised.value.supported == tuple(READERS)
