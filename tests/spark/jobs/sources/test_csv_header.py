"""The header of CSV files, compared with Spark's check (`enforceSchema 'false'`), which is stricter in some cases."""

import gzip
import random
import re
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.jobs.sources.test_spark_files import frame, read
from tests.support.jobs.sources.pinned import pinned
from tests.support.runners import here
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource, Narrower
from tussock.jobs.session import Session
from tussock.jobs.sources.csv_header import CsvHeaderError
from tussock.jobs.sources.describe import place_source
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.registry import reader_of

pytestmark = pytest.mark.spark
AB = (Field("a", "string"), Field("b", "string"))
CHECKED = {"header": "true", "enforceSchema": "false"}
#: The text of a file, further options, and whether it is taken. Without a remark, Spark decides the same.
CASES: dict[str, tuple[str, dict[str, str], bool]] = {
    "same": ("a,b\n1,2\n", {}, True),
    "swapped": ("b,a\n1,2\n", {}, False),
    "case": ("A,B\n1,2\n", {}, True),
    "quoted": ('"a","b"\n1,2\n', {}, True),
    "other quote": ("'a','b'\n1,2\n", {"quote": "'"}, True),
    "quoted swap": ('"b","a"\n1,2\n', {}, False),
    "separator": ("a;b\n1;2\n", {"sep": ";"}, True),
    "separator of two": ("a||b\n1||2\n", {"sep": "||"}, True),
    "swapped separator of two": ("b||a\n1||2\n", {"sep": "||"}, False),
    "delimiter": ("b;a\n1;2\n", {"delimiter": ";"}, False),
    "mark of byte order": ("\ufeffa,b\n1,2\n", {}, True),
    "mark of byte order, several lines": ("\ufeffa,b\n1,2\n", {"multiLine": "true"}, True),
    "comment": ("#x\na,b\n1,2\n", {"comment": "#"}, True),
    "swap after a comment": ("#a,b\nb,a\n1,2\n", {"comment": "#"}, False),
    "blank lines first": ("\n\na,b\n1,2\n", {}, True),
    "returns": ("a,b\r\n1,2\r\n", {}, True),
    "own line separator": ("a,b;1,2;", {"lineSep": ";"}, True),
    "swap with its own line separator": ("b,a;1,2;", {"lineSep": ";"}, False),
    "one more": ("a,b,c\n1,2,3\n", {}, False),
    "one fewer": ("a\n1\n", {}, False),
    "no line end": ("a,b", {}, True),
    "leading blanks": ("a, b\n1,2\n", {"ignoreLeadingWhiteSpace": "true"}, True),
    "swap with blanks": (" b, a\n1,2\n", {"ignoreLeadingWhiteSpace": "true"}, False),
    "line within quotes": ('"a","b"\n"1\n2",3\n', {"multiLine": "true"}, True),
}


def sparks_answer(spark: SparkSession, path: Path, options: dict[str, str]) -> bool:
    try:
        spark.read.options(**options).schema("a string, b string").csv(
            re.sub(r"([][{}])", r"\\\1", str(path))
        ).collect()
    except (PySparkException, Py4JJavaError):
        return False
    return True


def taken(
    spark: SparkSession, path: Path, options: dict[str, str], fields: tuple[Field, ...] = AB, weight: int = 1
) -> bool:
    made = CreateSource("s", "csv", fields, {"path": "/ignored", **options})
    try:
        frame(spark, [msgspec.structs.replace(pinned(path), weight=weight)], made, (0,))
    except CsvHeaderError as err:
        return err.path != str(path)
    return True


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(3)
def test_a_header_is_taken_or_held_as_spark_takes_or_refuses_it(name: str, spark: SparkSession, tmp_path: Path) -> None:
    text, options, expected = CASES[name]
    path = tmp_path / "a [b]" / "c{d}.csv"  # a name that must not be read as a pattern
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8", newline="")
    assert taken(spark, path, CHECKED | options) is expected
    if "lineSep" not in options:
        assert taken(spark, path, {**CHECKED, "multiLine": "true", **options}) is expected
    assert sparks_answer(spark, path, CHECKED | options) is expected
    assert taken(spark, path, {**CHECKED, **options, "enforceSchema": "true"})
    assert taken(spark, path, CHECKED | options, weight=-1)  # removed rows were taken by position


def test_compressed_and_encoded_headers_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    for name, data, options in (
        ("a.csv.gz", lambda t: gzip.compress(t.encode()), {}),
        ("a.csv", lambda t: t.encode("utf-16"), {"encoding": "UTF-16", "multiLine": "true"}),
    ):
        for text, expected in (("a,b\n1,2\n", True), ("b,a\n1,2\n", False)):
            (tmp_path / name).write_bytes(data(text))
            assert taken(spark, tmp_path / name, CHECKED | options) is expected


def test_a_column_without_a_name_and_blanks_are_no_difference(spark: SparkSession, tmp_path: Path) -> None:
    """Spark refuses these. They are accepted here, because no row can get a value of the wrong column."""
    path = tmp_path / "a.csv"
    for text, options in (
        (",b\n1,2\n", {}),
        ('"",b\n1,2\n', {}),
        ("a, b\n1,2\n", {}),
        ("\na,b\r\n1,2\r\n", {"multiLine": "true"}),
    ):
        path.write_text(text, newline="")
        assert taken(spark, path, CHECKED | options)
    path.write_text(",a\n1,2\n")
    assert not taken(spark, path, CHECKED)


def test_names_differ_by_case_if_spark_is_configured_so(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("A,b\n1,2\n")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert not taken(spark, tmp_path / "a.csv", CHECKED)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_sources_of_earlier_releases_hold_a_swap_and_keep_their_names(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for text, expected in (
        ("a,b\n1,2\n", True),
        ("b,a\n1,2\n", False),
        ("Order ID,Amount\n1,2\n", True),
        ("b,x\n1,2\n", False),
    ):
        path.write_text(text)
        assert taken(spark, path, {"header": "true"}) is expected


def test_columns_that_came_with_alter_source_are_no_part_of_older_files(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    made = CreateSource("s", "csv", (*AB, Field("c", "int")), {"path": "/x", **CHECKED}, widths=(Narrower(2, 1),))
    assert read(spark, [pinned(path)], made, (0, 2)).column("a").to_pylist() == ["1"]
    with pytest.raises(
        CsvHeaderError, match="its header has 2 columns, and the source declares 3; only the source has"
    ):
        frame(spark, [pinned(path, 1)], made, (0,))


def test_a_new_source_with_a_header_compares_names_by_default(tmp_path: Path) -> None:
    def options(**given: str) -> dict[str, str]:
        return dict(
            place_source(CreateSource("s", "csv", AB, {"path": "x", "retain": "none", **given}), tmp_path).options
        )

    assert options(header="true")["enforceSchema"] == options(Header="TRUE")["enforceSchema"] == "false"
    assert "enforceSchema" not in options()
    assert options(header="true", EnforceSchema="true")["EnforceSchema"] == "true"
    assert "enforceSchema" not in options(header="true", EnforceSchema="true")
    bad = CreateSource("s", "csv", AB, {"path": "/x", "enforceSchema": "yes"})
    with pytest.raises(BadOptionError, match="expected 'false'"):
        reader_of(bad).check(bad)


def test_a_swapped_file_holds_its_source_and_the_others_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("a,b\n1,2\n")
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(f"CREATE SOURCE s (a int, b int) USING csv OPTIONS (path '{tmp_path}/in', header 'true')")
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM s")
        session.flush()
        (tmp_path / "in/b.csv").write_text("b,a\n3,4\n")
        held = session.flush().held
        assert "column 1 of its header is 'b', and the source declares 'a' there" in held["s"][0].reason
        assert session.read("v").to_pylist() == [{"a": 1, "b": 2}]
        (tmp_path / "in/b.csv").write_text("a,b\n4,3\n")
        assert not session.flush().held
        assert sorted(session.read("v")["a"].to_pylist()) == [1, 4]


@pytest.mark.deep
def test_random_headers_are_judged_as_spark_judges_them(spark: SparkSession, tmp_path: Path) -> None:
    rng, path = random.Random(7), tmp_path / "a.csv"
    for _ in range(300):
        names = rng.choice([["a", "b"], ["b", "a"], ["a", "B"], ["a", "c"], ["a"], ["a", "b", "c"]])
        sep, quote, end = rng.choice(",;\t"), rng.choice(['"', "'"]), rng.choice(["\n", "\r\n"])
        shown = [f"{quote}{n}{quote}" if rng.random() < 0.5 else n for n in names]
        before = rng.choice(["", "", "\ufeff", f"#c{end}", end])
        path.write_text(
            f"{before}{sep.join(shown)}{end}{sep.join('12345'[: len(names)])}{end}", encoding="utf-8", newline=""
        )
        options = {**CHECKED, "sep": sep, "quote": quote, "multiLine": rng.choice(["true", "false"]), "comment": "#"}
        options |= {} if before.startswith("#") or rng.random() < 0.5 else {"ignoreLeadingWhiteSpace": "true"}
        assert taken(spark, path, options) is sparks_answer(spark, path, options), (path.read_text(), options)


def test_chunks_are_those_of_the_place_with_enforce_schema(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("b,a\n1,2\n")
    made = CreateSource("s", "csv", AB, {"path": "/ignored", "header": "true", "enforceSchema": "true"})
    assert read(spark, [pinned(path)], made, (0, 1)).select(["a", "b"]).equals(pa.table({"a": ["1"], "b": ["2"]}))
