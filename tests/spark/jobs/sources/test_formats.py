"""Views over sources of every format in Spark's jars, through two epochs, compared with Spark's own read of the same
files.
"""

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.catalog.definition import find_relation
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark

OF_EVERY_TYPE = (
    "id bigint, b boolean, t tinyint, s smallint, i int, f float, d double, m decimal(10,2), "
    "wide decimal(38,18), text string, "
    "bytes binary, day date, at timestamp, wall timestamp_ntz"
)
ROWS = (
    """1, true, 1, 2, 3, 0.1, 0.1, 1.25, '0.000000000000000001', 'é 😀', X'00FF',
         '0001-01-01', '1500-01-01 00:00:00.000001',
       '9999-12-31 23:59:59.999999'""",
    "2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
    """3, false, -128, -32768, -2147483648, '-Infinity', 'NaN', -99999999.99, '-99999999999999999999', '', X'',
        '9999-12-31',
       '2013-01-01 05:00:00', '2013-01-01 05:00:00'""",
    "4, true, 127, 32767, 2147483647, '-0.0', '-0.0', 0, '0', 'a\nb', X'61', '1969-12-31', NULL, NULL",
)
ODD = "in [2024] {x}"  # a folder's name that must not be read as a glob
TEXTS = "id int, name string, price decimal(10,2), day date, at timestamp"


@dataclass(frozen=True)
class Files:
    """A source's files, by epoch."""

    format: str
    first: Mapping[str, bytes]
    second: Mapping[str, bytes]
    columns: str | None = TEXTS  # None: the files define them
    options: Mapping[str, str] = field(default_factory=dict)


CASES: dict[str, Files] = {
    "csv": Files("csv", {"a.csv": b"1,one,1.5,2013-01-01,2013-01-01 05:00:00\n2,,,,\n"}, {"b.csv": b"3,three,,,\n"}),
    "csv_header": Files(
        "csv",
        {
            "a.csv": b"id;name;price;day;at\n1;one;-0.10;01/02/2013;NA\n",
            "c.csv": b"id;name;price;day;at\nNA;'x;y';NA;NA;NA\n",
        },
        {"b.csv": b"id;name;price;day;at\n3;NA;2;29/02/2020;2013-01-01T05:00:00.000001Z\n"},
        options={"header": "true", "sep": ";", "quote": "'", "nullValue": "NA", "dateFormat": "dd/MM/yyyy"},
    ),
    "csv_gz": Files(
        "csv",
        {"a.csv.gz": gzip.compress(b"1,one,1,,\n2,two,2,,\n" * 1000)},
        {"b.csv.gz": gzip.compress(b"3,three,3,,\n")},
    ),
    "csv_multi_line": Files(
        "csv",
        {"a.csv": b'1,"two\nlines",1,,\n2,"a ""quote""",,,\n'},
        {"b.csv": b'3,"\n\n",,,\n'},
        options={"multiLine": "true"},
    ),
    "json": Files(
        "json",
        {"a.json": b'{"id": 1, "name": "one", "price": 1.5, "day": "2013-01-01", "more": [1]}\n{"name": {"x": 1}}\n'},
        {"b.json": b'{"id": null, "at": "2013-01-01T05:00:00+05:00"}\n\n{"id": 4, "name": "\\u00e9"}\n'},
    ),
    "json_gz": Files(
        "json", {"a.json.gz": gzip.compress(b'{"id": 1}\n' * 1000)}, {"b.json.gz": gzip.compress(b'{"id": 2}')}
    ),
    "json_multi_line": Files(
        "json",
        {"a.json": b"[{'id': 1, /* one */ 'day': '01/02/2013'},\n {'id': 2,\n  'name': null}]\n"},
        {"b.json": b"{'id': 3,\n 'price': 2.25}\n"},
        options={"multiLine": "true", "allowComments": "true", "dateFormat": "dd/MM/yyyy"},
    ),
    "text": Files(
        "text", {"a.txt": "one\n\n  zwei ß \r\nno end".encode()}, {"b.log": b"\n", "c": b"\x00,tab\there\n"}, None
    ),
    "text_declared": Files("text", {"a.txt": b"a;b\nc;;d;"}, {"b.txt": b";;"}, "line string", {"lineSep": ";"}),
    "text_whole": Files("text", {"a.txt": b"two\nlines\n"}, {"b.txt": b"\r\n"}, None, {"wholetext": "true"}),
    "text_gz": Files("text", {"a.txt.gz": gzip.compress(b"1\n" * 1000)}, {"b.txt.gz": gzip.compress(b"\n2")}, None),
    "xml": Files(
        "xml",
        {
            "a.xml": b"""<?xml version="1.0"?><all><!-- one -->\
<row n="1"><id>1</id><name> x &amp; <![CDATA[<y>]]></name></row>
<row><id/><day>2013-01-01</day><more>not wanted</more><tag>a</tag><tag>b</tag></row><other><id>7</id></other></all>""",
            "empty_root.xml": b"<all></all>",
        },
        {
            "b.xml": (
                "<r><row n='3'><id>3</id><name>größer</name><price>1.5</price><at>2013-01-01T05:00:00Z</at></row></r>"
            ).encode()
        },
        f"_n int, {TEXTS}, tag array<string>",
        {"rowTag": "row", "ignoreSurroundingSpaces": "true"},
    ),
    "xml_gz": Files(
        "xml",
        {"a.xml.gz": gzip.compress(b"<r>" + b"<row><id>1</id></row>" * 1000 + b"</r>")},
        {"b.xml.gz": gzip.compress(b"<row><id>2</id><day>01/02/2013</day></row>")},
        options={"rowTag": "row", "dateFormat": "dd/MM/yyyy"},
    ),
}
NAMES = (*CASES, "orc", "orc_declared", "parquet")


def _written(spark: SparkSession, format: str, rows: Sequence[str], columns: str, folder: Path) -> bytes:
    """Rows as one file of a format that Spark writes."""
    cast = ", ".join(
        "CAST({} AS {}) AS {}".format(f"col{n}", *reversed(c.split(" ")))
        for n, c in enumerate(columns.split(", "), start=1)
    )
    spark.sql(f"SELECT {cast} FROM VALUES {', '.join(f'({row})' for row in rows)}").coalesce(1).write.format(
        format
    ).save(str(folder))
    (file,) = folder.glob(f"part-*.{format}")
    return file.read_bytes()


def _typed(spark: SparkSession, format: str, columns: str | None, folder: Path) -> Files:
    a = _written(spark, format, ROWS[:2], OF_EVERY_TYPE, folder / "a")
    b = _written(spark, format, ROWS[1:], OF_EVERY_TYPE, folder / "b")
    second = {f"b.{format}": b}
    if format == "orc":  # NULL for a column that a file lacks; an error in Parquet
        second["c.orc"] = _written(spark, format, ["'few columns', 5"], "text string, id bigint", folder / "c")
    return Files(format, {f"a.{format}": a}, second, columns)


@pytest.fixture(scope="module")
def reads(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, int], tuple[pa.Table, pa.Table]]:
    """By source and epoch: the rows of a view over the source, and Spark's read at that time.

    The first epoch also has an empty file, which is filled for the second.
    """
    root = tmp_path_factory.mktemp("formats")
    cases = {
        **CASES,
        "orc": _typed(spark, "orc", None, root / "orc"),
        "orc_declared": _typed(spark, "orc", OF_EVERY_TYPE, root / "orc_declared"),
        "parquet": _typed(spark, "parquet", None, root / "parquet"),
    }
    found = {}
    with Session(str(root / "store"), spark, runner=here(spark)) as session:
        for epoch in (1, 2):
            for name, case in cases.items():
                folder = root / ODD / name
                folder.mkdir(parents=True, exist_ok=True)
                now = {**dict.fromkeys(case.second, b""), **case.first} if epoch == 1 else case.second
                for file, content in now.items():
                    (folder / file).write_bytes(content)
                if epoch == 1:
                    columns = f"({case.columns})" if case.columns is not None else ""
                    options = "".join(f""", {key} "{value}" """ for key, value in case.options.items())
                    session.execute(
                        f"CREATE SOURCE {name} {columns} USING {case.format} OPTIONS (path '{folder}'{options})"
                    )
                    session.execute(f"CREATE MATERIALIZED VIEW v_{name} AS SELECT * FROM {name}")
            session.flush()
            for name, case in cases.items():
                declared = ", ".join(
                    f"{f.name} {f.type}"
                    for f in find_relation(session.meta.read_latest().catalog, name, "source").columns
                )
                theirs = (
                    spark.read.format(case.format)
                    .options(**case.options)
                    .schema(declared)
                    .load(re.sub(r"([\[\]{}])", r"\\\1", str(root / ODD / name)))
                )
                found[name, epoch] = session.query(f"SELECT * FROM v_{name}"), theirs.toArrow()
    return found


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_a_view_over_files_is_sparks_own_read_of_them(
    name: str, epoch: int, reads: dict[tuple[str, int], tuple[pa.Table, pa.Table]]
) -> None:
    ours, theirs = reads[name, epoch]
    assert [(f.name, f.type) for f in ours.schema] == [(f.name, f.type) for f in theirs.schema]
    assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, theirs.to_pylist())) != []


def test_orc_files_have_the_columns_that_spark_would_infer(
    reads: dict[tuple[str, int], tuple[pa.Table, pa.Table]],
) -> None:
    inferred, declared = reads["orc", 1][0].schema, reads["orc_declared", 1][0].schema
    assert [(f.name, f.type) for f in inferred] == [(f.name, f.type) for f in declared]
