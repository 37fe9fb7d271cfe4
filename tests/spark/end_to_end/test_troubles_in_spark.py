"""Failures of sources that Spark reads.

The message names the file, even if Spark does not, and the other sources continue.
"""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tussock.jobs.barriers.source_holds import HeldSourceWarning
from tussock.jobs.session import Session
from tussock.jobs.sources.errors import BadOptionError


@pytest.mark.spark
def test_each_failing_source_is_held_with_its_file_and_column_and_the_healthy_one_continues(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("xml", "csv", "json", "header", "fine"):
        (tmp_path / name).mkdir()
    data = gzip.compress(("<r>" + "".join(f"<row><a>{i}</a></row>" for i in range(500)) + "</r>").encode(), mtime=0)
    for number in range(3):
        (tmp_path / "xml" / f"{number}.xml.gz").write_bytes(data)
    damaged = bytearray(data)
    damaged[-6] ^= 0x20  # a byte of the checksum
    (tmp_path / "xml" / "3.xml.gz").write_bytes(damaged)
    lines = gzip.compress(b"a\n" + b"1\n" * 50, mtime=0)
    (tmp_path / "header" / "1.csv.gz").write_bytes(lines)
    (tmp_path / "header" / "2.csv.gz").write_bytes(lines[:12])
    (tmp_path / "csv" / "1.csv").write_text("1,x\n2.5,y\n")
    (tmp_path / "json" / "1.json").write_text('{"a": 1}\n{"a": "one"}\n')
    pq.write_table(pa.table({"a": [1]}), tmp_path / "fine" / "1.parquet")
    with Session(str(tmp_path / "store"), spark) as session:
        session.execute(f"CREATE SOURCE x (a int) USING xml OPTIONS (path '{tmp_path}/xml', rowTag 'row')")
        session.execute(f"CREATE SOURCE c (a int, s string) USING csv OPTIONS (path '{tmp_path}/csv')")
        session.execute(f"CREATE SOURCE j (a int) USING json OPTIONS (path '{tmp_path}/json')")
        session.execute(
            f"CREATE SOURCE h (a int) USING csv OPTIONS (path '{tmp_path}/header', header 'true', multiLine 'true')"
        )
        session.execute(f"CREATE SOURCE f USING parquet OPTIONS (path '{tmp_path}/fine')")
        for name in "xcjhf":
            session.execute(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT * FROM {name}")
        with pytest.warns(HeldSourceWarning):
            held = {name: holds[0].reason for name, holds in session.flush().held.items()}
        assert session.read("of_f").to_pylist() == [{"a": 1}]
    assert set(held) == {"x", "c", "j", "h"}
    assert f"file {tmp_path}/xml/3.xml.gz cannot be read as xml: " in held["x"]
    assert "record 2: '2.5,y' does not parse: column 'a' contains '2.5', expected int" in held["c"]
    assert "column 'a' contains 'one', expected int" in held["j"]
    assert f"file {tmp_path}/header/2.csv.gz cannot be read as csv: " in held["h"]
    assert not any(".." in reason for reason in held.values())
    assert not any("\n" in reason or "java.base" in reason for reason in held.values())


REFUSED = [
    ("csv", "sep ''", "sep"),
    ("csv", "delimiter ''", "delimiter"),
    ("csv", "header 'true', encoding 'windows-1252'", "encoding"),
    ("csv", "lineSep ''", "lineSep"),
    ("csv", "quote 'ab', sep ';'", "quote"),
    ("csv", "maxColumns 'many'", "maxColumns"),
    ("csv", "header 'maybe'", "header"),
    ("csv", "locale 'x', timeZone 'Mars/Base'", "timeZone"),
    ("csv", "unescapedQuoteHandling 'x'", "unescapedQuoteHandling"),
    ("json", "encoding 'nope'", "encoding"),
    ("json", "multiLine 'maybe'", "multiLine"),
    ("json", "maxNestingDepth 'deep'", "maxNestingDepth"),
    ("xml", "rowTag '<r>'", "rowTag"),
    ("xml", "rowTag 'r', valueTag ''", "valueTag"),
]


@pytest.mark.spark
def test_an_option_value_that_spark_refuses_is_refused_by_name_before_a_file_exists(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = "a int, t timestamp, d date, `odd name` string, s struct<x: int>, e interval month"
    with Session(str(tmp_path / "store"), spark) as session:
        for format, options, guilty in REFUSED:
            with pytest.raises(BadOptionError, match="Spark rejects it: ") as raised:
                session.execute(
                    f"CREATE SOURCE s ({columns}) USING {format} OPTIONS (path '{tmp_path}/f', "
                    f"may_be_missing 'true', {options})"
                )
            assert raised.value.option == guilty
            assert "\n" not in str(raised.value)
        for n, (format, options) in enumerate(
            [
                (
                    "csv",
                    "sep '||', quote '', header 'true', dateFormat 'dd.MM.yyyy', "
                    "timestampFormat 'yyyy-MM-dd HH:mm', nullValue 'NA'",
                ),
                (
                    "csv",
                    "encoding 'UTF-16', multiLine 'true', timeZone 'Europe/Berlin', locale 'de-DE', "
                    "comment '#', escape ''",
                ),
                (
                    "json",
                    "encoding 'UTF-16', lineSep ';', allowComments 'true', dateFormat 'yyyy', timestampFormat 'yyyy'",
                ),
                ("xml", "rowTag 'r', attributePrefix '@', nullValue '-', dateFormat 'yyyy'"),
            ]
        ):
            given = f"path '{tmp_path}/f', may_be_missing 'true', {options}"
            session.execute(f"CREATE SOURCE good{n} ({columns}) USING {format} OPTIONS ({given})")
