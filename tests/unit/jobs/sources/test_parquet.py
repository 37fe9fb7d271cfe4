"""Parquet splits, compared with pyarrow's read of the whole file, and declared types, compared with Spark's reader."""

import datetime as dt
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sources import parquet as shared
from tests.support.jobs.sources.counted import calls_during
from tests.support.jobs.sources.parquet import TYPES
from tests.support.jobs.sources.pinned import pinned
from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.errors import ChangedFileError, SchemaMismatchError, TooFineTimeError, UnreadableFileError
from tussock.jobs.sources.parquet import Split, cut_splits, read_split
from tussock.jobs.sources.rejects import REJECT
from tussock.statestore.months import given_rows
from tussock.statestore.types import arrow_type

file = shared.file

FIELDS = (Field("id", "bigint"), Field("name", "string"), Field("price", "double"))


def test_splits_cover_every_row_once_and_number_it_by_file_and_position(file: Path) -> None:
    pin = pinned(file, number=3)
    parts = cut_splits(pin, FIELDS, pin.size // 4, {})
    assert 3 <= len(parts) <= 5
    read = pa.concat_tables([read_split(p, (0, 1), FIELDS, {}).rows for p in parts])
    assert read["id"].to_pylist() == list(range(1000))
    assert read["_row_id"].to_pylist() == [(3 << 40) + i for i in range(1000)]
    assert read_split(parts[1], (0,), FIELDS, {}).rows["_row_id"][0].as_py() == (3 << 40) + parts[1].first_row


def test_a_file_within_the_target_is_one_split_that_reads_like_pyarrow(file: Path) -> None:
    (split,) = cut_splits(pinned(file), FIELDS, 1 << 30, {})
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
    parts = cut_splits(pin, FIELDS, pin.size // 3, options)
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
        cut_splits(pin, FIELDS, 1, {})


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
        cut_splits(pinned(file), (*FIELDS, Field("city", "string")), 1, {})
    nulls = read_split(Split(pinned(file)), (3, 0), (*FIELDS, Field("city", "string")), {"missing": "null"}).rows
    assert nulls["city"].null_count == nulls.num_rows == pq.read_metadata(file).num_rows
    twice = tmp_path / "twice.parquet"
    pq.write_table(pa.table({"id": [1], "ID": [2]}), twice)
    with pytest.raises(SchemaMismatchError, match="several columns of this name"):
        read_split(Split(pinned(twice)), (0,), FIELDS, {})


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


def test_a_column_without_any_value_is_null_in_every_declared_type(tmp_path: Path) -> None:
    path = tmp_path / "null.parquet"
    pq.write_table(pa.table({"n": pa.nulls(2), "l": pa.array([[None], None], pa.list_(pa.null()))}), path)
    kinds = [*TYPES, "array<string>", "struct<a:int>"]
    for kind in kinds:
        read = read_split(Split(pinned(path)), (0, 1), (Field("n", kind), Field("l", f"array<{kind}>")), {}).rows
        assert read.schema.types[:2] == [arrow_type(kind), arrow_type(f"array<{kind}>")]
        assert read["n"].to_pylist() == [None, None]
        assert read["l"].to_pylist() == [[None], None]
