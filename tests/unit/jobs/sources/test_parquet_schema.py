"""Columns of Parquet files, compared with Spark's reader of the same file."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.describe import LeftOutColumnWarning, describe_source
from tussock.jobs.sources.parquet_schema import UnreadableSchemaError, UnsupportedFileTypeError, parquet_fields


def test_a_column_of_an_unsupported_type_is_omitted_and_reported(tmp_path: Path) -> None:
    halves = pa.array([[1.0]], pa.list_(pa.float16()))
    pq.write_table(pa.table({"id": [1], "x": halves}), tmp_path / "some.parquet")
    made = CreateSource("s", "parquet", (), {"path": str(tmp_path / "some.parquet")})
    with pytest.warns(
        LeftOutColumnWarning,
        match=r"source 's' leaves out column 'x': its type list<element: halffloat> is not supported",
    ):
        assert describe_source(made, no_spark).fields == (Field("id", "bigint"),)


def test_files_without_a_column_that_can_be_kept_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([1], pa.time32("s"))}), tmp_path / "none.parquet")
    made = CreateSource("s", "parquet", (), {"path": str(tmp_path / "none.parquet")})
    with pytest.raises(
        UnsupportedFileTypeError, match=r"source 's' has no column of a supported type: found x time32.*; docs"
    ):
        describe_source(made, no_spark)


def no_spark() -> SparkSession:
    raise AssertionError("Parquet needs no Spark")


def test_a_file_that_is_no_parquet_is_named() -> None:
    with pytest.raises(
        UnreadableSchemaError,
        match=r"the columns of data/x.parquet cannot be read: .*Expected a file of format parquet",
    ):
        parquet_fields(io.BytesIO(b"id,name\n1,x\n"), "data/x.parquet")
