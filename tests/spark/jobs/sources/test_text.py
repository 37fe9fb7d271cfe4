"""Bytes that are not UTF-8, for each kind of input: the message names the file and the row, and the store is
unharmed.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sources.text import _bad
from tests.support.runners import here
from tests.support.spark_types import SparkSession
from tussock.jobs.barriers.source_holds import HeldSourceWarning
from tussock.jobs.session import Session
from tussock.jobs.sources.errors import BadInsertTextError


@pytest.mark.parametrize(
    "column",
    [
        _bad(b"ok", b"\xff\xfe", b"x"),
        pa.array([b"ok", b"\xff\xfe", b"x"]),
        pa.array([b"ok", b"\xff\xfe", b"x"], pa.large_binary()),
        pa.array([b"ok", b"\xff\xfe", b"x"]).dictionary_encode(),
    ],
    ids=["string", "binary", "large", "dictionary"],
)
@pytest.mark.spark
def test_a_parquet_string_that_is_no_text_is_named(spark: SparkSession, tmp_path: Path, column: pa.Array) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"s": column}), tmp_path / "in" / "bad.parquet")
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(f"CREATE SOURCE x (s string) USING parquet OPTIONS (path '{tmp_path}/in')")
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT upper(s) AS u FROM x")
        with pytest.warns(HeldSourceWarning, match=r"bad\.parquet, row 2, column 's': the bytes b'\\xff\\xfe'"):
            session.flush()


def _orc(spark: SparkSession, folder: Path) -> None:
    spark.sql("SELECT CAST(X'FFFE' AS string) AS s").coalesce(1).write.orc(str(folder))


def _json(spark: SparkSession, folder: Path) -> None:
    folder.mkdir()
    (folder / "a.json").write_bytes(json.dumps({"s": "é"}).encode() + b'\n{"s": "\xff\xfe"}\n')


@pytest.mark.spark
@pytest.mark.parametrize(("format", "write"), [("orc", _orc), ("json", _json)])
def test_rows_of_sparks_reader_are_checked_too(
    spark: SparkSession, tmp_path: Path, format: str, write: Callable[[SparkSession, Path], None]
) -> None:
    write(spark, tmp_path / "in")
    theirs = spark.read.schema("s string").format(format).load(str(tmp_path / "in")).count()
    assert theirs == (1 if format == "orc" else 2)
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(f"CREATE SOURCE x (s string) USING {format} OPTIONS (path '{tmp_path}/in')")
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT s FROM x")
        with pytest.warns(HeldSourceWarning, match=rf"(row|record) {theirs}\b"):
            session.flush()


@pytest.mark.spark
def test_an_insert_of_invalid_utf8_is_refused_before_the_log(spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (k int, s string, PRIMARY KEY (k))")
        before = session.meta.log_end()
        for statement in (
            "INSERT INTO t VALUES (1, 'é'), (2, CAST(X'FF' AS string))",
            "INSERT INTO t SELECT 2, CAST(X'FF' AS string)",
        ):
            with pytest.raises(BadInsertTextError, match=r"INSERT INTO t, row \d, column 's': the bytes b'\\xff'"):
                session.execute(statement)
        assert session.meta.log_end() == before
