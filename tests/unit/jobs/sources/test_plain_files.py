"""Plain files without a JVM: rows written by hand, each rule broken once, and epochs that read plain files."""

import gzip
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import append
from tests.support.jobs.sources.pinned import pinned
from tests.support.jobs.sources.plain_texts import as_plain, engine_of, source_of, written
from tests.support.zone_rules import ruled_by_python
from tussock.jobs.driver.runner import NeedsSparkError
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, EarlierOptions
from tussock.jobs.schedule.explain import explain_relation
from tussock.jobs.session import Session
from tussock.jobs.sources import csv_header, plain
from tussock.jobs.sources.base import Division, TimeZones
from tussock.jobs.sources.errors import ChangedFileError
from tussock.jobs.sources.file_documents import document_of

COLUMNS = [("i", "int"), ("d", "double"), ("m", "decimal(6,2)"), ("b", "boolean"), ("y", "date"), ("t", "timestamp")]
COLUMNS += [("s", "string")]
ROWS = [
    (1, 1.5, Decimal("3.10"), True, date(2020, 2, 29), datetime(2020, 1, 1, 10, 11, 12, tzinfo=UTC), "a, b"),
    (None, None, None, None, None, None, None),
    (-7, -0.25, Decimal("-0.01"), False, date(1999, 12, 31), datetime(1999, 1, 1, 0, 0, 0, 500_000, UTC), "ü"),
]
CSV = """\
1,1.5,3.10,true,2020-02-29,2020-01-01 10:11:12,"a, b"
,,,,,,
-7,-.25,-0.01,FALSE,1999-12-31,1999-01-01T00:00:00.5,ü
""".encode()
JSON = b"""\
{"i":1,"d":1.5,"m":3.1,"b":true,"y":"2020-02-29","t":"2020-01-01 10:11:12","s":"a, b","other":[{}]}
{"s":null}
{"t":"1999-01-01T00:00:00.5","s":"\\u00fc","i":-7,"d":-25e-2,"m":-0.01,"b":false,"y":"1999-12-31"}
"""


def rows_of(
    folder: Path, content: bytes, suffix: str, columns: object = None, **options: str
) -> list[tuple[object, ...]] | str:
    """The rows of a file without row ids and weights, or why it is not plain."""
    format = "json" if suffix.startswith("json") else "csv"
    source = source_of(format, COLUMNS if columns is None else columns, options)  # type: ignore[arg-type]
    (found,) = as_plain(source, written(folder, [content], suffix)).values()
    return found if isinstance(found, str) else [tuple(row.values())[:-2] for row in found.to_pylist()]


@pytest.mark.parametrize("suffix", ["csv", "json", "csv.gz", "jsonl.gz"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
def test_plain_rows(suffix: str, end: bytes, tmp_path: Path) -> None:
    content = (JSON if suffix.startswith("json") else CSV).replace(b"\n", end)
    assert rows_of(tmp_path, gzip.compress(content) if suffix.endswith("gz") else content, suffix) == ROWS


def test_small_blocks_give_the_same_rows_and_row_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of("csv", COLUMNS, {})
    (file,) = written(tmp_path, [CSV * 50], "csv")
    (whole,) = as_plain(source, [file]).values()
    monkeypatch.setattr(plain.PlainTexts._read_blocks, "__defaults__", (100,))
    (cut,) = as_plain(source, [file]).values()
    assert isinstance(whole, pa.Table)
    assert isinstance(cut, pa.Table)
    assert cut["c6"].num_chunks > whole["c6"].num_chunks
    assert cut.to_pylist() == whole.to_pylist()
    assert [row["c7"] for row in cut.to_pylist()] == list(range(150))


@pytest.mark.parametrize("header", [b"", b"a,n\n"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(header: bytes, tmp_path: Path) -> None:
    """Programs for tables write one. Of a JSON file, it is no part of the first object."""
    mark = b"\xef\xbb\xbf"
    options = {"header": "true", "enforceSchema": "false"} if header else {}
    assert rows_of(tmp_path, mark + header + b"x,1\ny,2\n", "csv", _TWO, **options) == [("x", 1), ("y", 2)]
    assert rows_of(tmp_path, mark + b'{"a":"x"}\n{"n":2}\n', "json", _TWO) == [("x", None), (None, 2)]
    assert rows_of(tmp_path, mark, "csv", _TWO) == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_an_empty_value_after_a_quoted_one_is_null_also_at_the_end(end: bytes, tmp_path: Path) -> None:
    columns = [("a", "string"), ("b", "string")]
    assert rows_of(tmp_path, b'"x",' + end, "csv", columns, nullValue="NA") == [("x", None)]
    assert rows_of(tmp_path, b'"x",""' + end, "csv", columns, nullValue="NA") == [("x", "")]


_TWO = [("a", "string"), ("n", "int")]


@pytest.mark.parametrize(
    ("content", "reason", "options"),
    [
        (b"\xef\xbb\xbf" * 2 + b"x,1\n", "a line begins with a byte order mark", {}),
        (b"x,1\n\xef\xbb\xbfy,2\n", "a line begins with a byte order mark", {}),
        (b"a,n\n\xef\xbb\xbfx,1", "a line begins with a byte order mark", {"header": "true"}),
        (b"x,1\ny\0,2\n", "NUL", {}),
        (b"\xff,1\n", "UTF-8", {}),
        (b"x,1\ry,2\n", "carriage return", {}),
        (b"x,1,\n", "2 columns", {}),
        (b"x\n", "2 columns", {}),
        (b'"x,1\n', "does not end", {}),
        (b'"x\ny",1\n', "does not end in its line", {}),
        (b'a"x",1\n', "a quote is inside", {}),
        (b'"x"a,1\n', "a quote is inside", {}),
        (b'"x""y",1\n', "a quote is inside", {}),
        (b'x""y,1\n', "a quote is inside", {"escape": '"'}),
        (b'"x\\y",1\n', "backslash", {}),
        (b"x,+1\n", "column 'n'", {}),
        (b"x,1.0\n", "column 'n'", {}),
        (b"x,0x1F\n", "column 'n'", {}),
        (b"x, 1\n", "column 'n'", {}),
        (b"x,2147483648\n", "column 'n'", {}),
        (b"\na,n\nx,1\n", "first line is blank", {"header": "true"}),
        (b"a,n\rx,1\r", "carriage return", {"header": "true", "enforceSchema": "true"}),
        (b"n,a\nx,1\n", "its header", {"header": "true", "enforceSchema": "false"}),
        (b"\t\nx\t1\n", "blanks only", {"sep": "\t"}),
        (b"\x01\x1f\n\x01\x1fx,1\n", "first line is blank", {"header": "true", "enforceSchema": "true"}),
        pytest.param(b"x" * (5 << 20), "longer than 4 MB", {}, id="a long line"),
        pytest.param(b"x,1\n" + b"x" * (5 << 20) + b",1\n", "longer than 4 MB", {}, id="a long line after a block"),
    ],
)
def test_each_rule_of_csv_broken_once(content: bytes, reason: str, options: Mapping[str, str], tmp_path: Path) -> None:
    assert reason in rows_of(tmp_path, content, "csv", _TWO, **options)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('{"a":1}', "changed from string to number"),
        ('{"n":1.0}', "couldn't parse:1.0"),
        ('{"n":"1"}', "changed from number to string"),
        ('{"n":1,"n":2}', "specified twice"),
        ('{"n":1}{"n":2}', "more than one object"),
        ('[{"n":1}]', "not an object"),
        (' {"n":1}', "not an object"),
        ("{'n':1}", "Missing a name"),
        ('{"o":NaN}', "NaN"),
        ('{"d":-0}', "-0"),
        ('{"a":"\\ud800"}', "surrogate"),
        ('{"m":99999}', "column 'm'"),
        ('{"m":1.555}', "requires scale"),
        ('{"m":"' + "9" * 37 + '"}', "column 'm'"),
        ('{"m":1' + "0" * 70 + "}", "more digits"),
        ('{"m":1E80}', "more digits"),
        ('{"m":"490e-211"}', "more digits"),
        ('{"y":"2020-1-1"}', "column 'y'"),
        ('{"t":"2020-01-01 10:11"}', "column 't'"),
        ('{"f":1.00000017881393432617187499}', "between two floats"),
        ('{"o":' + "[" * 901 + "]" * 901 + "}", "more than 900"),
        ('{"o":' + "1" * 1100 + "}", "longer than 900"),
        pytest.param('{"a":"x","' + "o" * 10_001 + '":1}', "a name may be longer", id="a long name"),
        pytest.param('{"o":{"' + r"\"" * 9_000 + '" :1}}', "a name may be longer", id="a long name of quotes"),
        pytest.param('{"' + "o" * 10_000 + r"\\" + '":1,"a":"x"}', "a name may be longer", id="a long name, backslash"),
    ],
)
def test_each_rule_of_json_broken_once(record: str, reason: str, tmp_path: Path) -> None:
    columns = [("a", "string"), ("n", "int"), ("d", "double"), ("m", "decimal(6,2)"), ("y", "date")]
    columns += [("t", "timestamp"), ("f", "float")]
    assert reason in rows_of(tmp_path, f'{{"a":"x"}}\n{record}\n'.encode(), "json", columns)


def test_a_number_beyond_doubles_is_not_plain(tmp_path: Path) -> None:
    assert "too big" in rows_of(tmp_path, b'{"d":1e400}', "json", [("d", "double")])


def test_numbers_and_texts_beside_decimals_are_plain(tmp_path: Path) -> None:
    texts = ["123e4567-e89b-42d3-a456-426614174000", "12345678e01234567890123e45678901", "1e1000x", "-" * 50]
    content = "".join(f'{{"m":-7.25,"a":"{text}","d":1.5e-07}}\n' for text in texts).encode()
    columns = [("m", "decimal(38,2)"), ("a", "string"), ("d", "double")]
    assert rows_of(tmp_path, content, "json", columns) == [(Decimal("-7.25"), text, 1.5e-07) for text in texts]


def test_long_texts_and_lists_of_numbers_are_plain(tmp_path: Path) -> None:
    text, numbers = r"\" :" * 9_000, "[" + "1," * 9_000 + "1]"
    content = f'{{"a":"{text}","o":{numbers},"p":"{text}"}}\n{{"a":"x"}}\n'.encode()
    assert rows_of(tmp_path, content, "json", [("a", "string")]) == [('" :' * 9_000,), ("x",)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("date", "1582-12-31"), ("date", "2020-02-30"), ("date", "2020-01-01T"), ("date", "20200101"),
        ("timestamp", "1899-12-31 23:59:59"), ("timestamp", "2020-01-01 1:02:03"), ("timestamp", "2020-01-01 24:00:00"),
        ("timestamp", "2020-01-01 10:11:12."), ("timestamp", "2020-01-01 10:11:12.1234567"),
        ("timestamp", "2020-01-01 10:11:12+1500"), ("timestamp", "2020-01-01 10:11:12+15:00"),
        ("timestamp", "2020-01-01 10:11:12 Z"), ("timestamp", "2020-01-01 10:11:12Z\n2020-01-01 10:11:12"),
        ("timestamp_ntz", "2020-01-01 10:11:12Z"), ("double", "1e999"), ("double", "1d"),
        ("double", "nan"), ("double", "NaN\n1e999"), ("double", "+Inf"), ("double", "inf"), ("float", "-NaN"),
        ("float", "1e39"), ("decimal(6,2)", "1e2"), ("decimal(6,2)", "12345.6"), ("decimal(6,2)", "1.234"),
        # Arrow's casts overflow silently: -0.91…, 0.00, and -20847100762815390390.12…
        ("decimal(38,38)", "11.12"), ("decimal(10,2)", "1." + "0" * 130), ("decimal(38,18)", "9" * 21 + "." + "9" * 18),
        ("tinyint", "128"), ("bigint", "9223372036854775808"), ("boolean", "1"), ("boolean", "yes"),
    ],
)  # fmt: skip
def test_texts_that_are_no_plain_values(kind: str, text: str, tmp_path: Path) -> None:
    assert "is not spelled as a plain" in rows_of(tmp_path, f"{text}\n".encode(), "csv", [("v", kind)])


@pytest.mark.parametrize("kind", ["float", "double"])
def test_words_of_csv_for_values_that_are_not_finite(kind: str, tmp_path: Path) -> None:
    content = b"1.5,\nNaN,\n,\n-Infinity,\nInfinity,\n-Inf,\nInf,\n-0.0,\n"
    rows = rows_of(tmp_path, content, "csv", [("v", kind), ("w", "string")])
    expected = [1.5, math.nan, None, -math.inf, math.inf, -math.inf, math.inf, -0.0]
    assert repr(rows) == repr([(value, None) for value in expected]), "NaN and -0.0 are only equal as texts"


def test_hours_that_a_zone_repeats_or_skips(tmp_path: Path) -> None:
    source = source_of("csv", [("t", "timestamp")], {})
    files = written(tmp_path, [b"2024-11-03 01:30:00\n", b"2024-03-10 02:30:00\n", b"2039-06-01 00:00:00\n"], "csv")
    repeated, skipped, far = as_plain(source, files, "America/New_York").values()
    assert isinstance(repeated, pa.Table)
    assert repeated["c0"].to_pylist() == [datetime(2024, 11, 3, 5, 30, tzinfo=UTC)], "the earlier one"
    assert "column 't'" in skipped
    assert isinstance(far, pa.Table)
    assert far["c0"].to_pylist() == [datetime(2039, 6, 1, 4, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("options", "kind", "reason"),
    [
        ({"multiLine": "true"}, "int", "option multiline 'true'"),
        ({"quote": "'"}, "int", "option quote"),
        ({"comment": "#"}, "int", "option comment"),
        ({"dateFormat": "dd/MM/yyyy"}, "int", "option dateformat"),
        ({"nullValue": ""}, "int", None),
        ({"nullValue": " "}, "int", "option nullValue ' '"),
        ({"timeZone": "EST"}, "int", "option timezone 'EST'"),
        ({"timeZone": "Europe/Paris", "mode": "FAILFAST", "encoding": "UTF-8"}, "int", None),
        ({}, "binary", "type binary of column 'a'"),
        ({}, "array<int>", "type array<int>"),
    ],
)
def test_options_and_types_off_the_list_leave_all_files_to_spark(
    options: Mapping[str, str], kind: str, reason: str | None
) -> None:
    source = source_of("csv", [("a", kind)], options)
    never = engine_of(source).find_reason_for_spark(source)
    assert never is None if reason is None else reason in (never or "")


def test_a_file_is_read_with_the_options_by_which_it_was_taken(tmp_path: Path) -> None:
    source = source_of("csv", _TWO, {})
    source = msgspec.structs.replace(source, option_changes=(EarlierOptions({"nullValue": "NA"}, (), 1),))
    old, new = as_plain(source, written(tmp_path, [b"x,NA\n", b"x,NA\n"], "csv")).values()
    assert isinstance(old, pa.Table)
    assert old["c1"].to_pylist() == [None]
    assert "column 'n'" in new


@pytest.mark.parametrize("name", ["a.bz2", "a.csv.zst", "a.snappy", "a.GZ"])
def test_a_suffix_that_may_name_a_compression_is_left_to_spark(name: str, tmp_path: Path) -> None:
    assert "may be one of a compression" in rows_of(tmp_path, b"x,1\n", name.partition(".")[2], _TWO)


def test_gzip_data_that_is_damaged_or_has_two_members_is_left_to_spark(tmp_path: Path) -> None:
    packed = gzip.compress(b"x,1\n" * 1000)
    for content, reason in ((packed[:-9], "cut short"), (packed + packed, "after its first"), (b"x,1\n", "not gzip")):
        assert reason in rows_of(tmp_path, content, "csv.gz", _TWO)


def test_a_file_in_s3_is_plain(s3_bucket: tuple[str, Callable[[str, bytes], None]]) -> None:
    uri, put = s3_bucket
    put("plain/0.csv", CSV)
    bucket, _, query = uri.partition("?")
    options = dict(pair.split("=") for pair in query.split("&"))
    source = source_of("csv", COLUMNS, options)
    (found,) = as_plain(source, [pinned(f"{bucket}/plain/0.csv", 0, options)]).values()
    assert isinstance(found, pa.Table)
    assert [tuple(row.values())[:-2] for row in found.to_pylist()] == ROWS


def test_a_header_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(csv_header, "open_pinned")
    content = b"a,n\nx,1\n"
    for suffix, data in (("csv", content), ("csv.gz", gzip.compress(content))):
        assert rows_of(tmp_path, data, suffix, _TWO, header="true", enforceSchema="false") == [("x", 1)]


def test_a_changed_file_is_an_error_of_the_file(tmp_path: Path) -> None:
    source = source_of("csv", _TWO, {})
    (file,) = written(tmp_path, [b"x,1\n"], "csv")
    zones = TimeZones(ruled_by_python("UTC"), ruled_by_python)
    (part,) = engine_of(source).divide(source, document_of([file]), Division(1, zones)).parts
    (tmp_path / "0.csv").write_bytes(b"x,+1\n")
    with pytest.raises(ChangedFileError):
        engine_of(source).read(source, part, [0, 1])


# --- epochs ---------------------------------------------------------------------------------------


def session_over(folder: Path, **options: str) -> Session:
    """A store with the source `s` (a string, n int) over the folder `files`, and a view of all its rows."""
    (folder / "files").mkdir()
    session = Session(str(folder / "store"), units=2, runner="local")
    fields = Field("a", "string"), Field("n", "int")
    append(
        session.meta,
        CreateSource("s", "csv", fields, {"path": str(folder / "files"), "retain": "files", **options}),
        CreateView("v", "…", Scan("s", (0, 1), fields)),
    )
    return session


def test_epochs_over_plain_files_need_no_spark(tmp_path: Path) -> None:
    session = session_over(tmp_path, on_error="quarantine")
    for n in range(3):
        (tmp_path / f"files/{n}.csv").write_text(f"x{n},{n}\ny,\n")
    session.flush()
    assert sorted(session.read("v").to_pylist(), key=str) == sorted(
        [{"a": f"x{n}", "n": n} for n in range(3)] + [{"a": "y", "n": None}] * 3, key=str
    )
    assert session.read("s__rejects").num_rows == 0
    catalog = session.meta.read_latest().catalog
    view = next(r for r in catalog.live_relations() if r.name == "v")
    assert "needs no Spark, except to read files of s that only it can read;" in explain_relation(catalog, view)


def test_a_file_that_is_not_plain_after_its_beginning_needs_spark(tmp_path: Path) -> None:
    session = session_over(tmp_path)
    (tmp_path / "files/0.csv").write_text("x,1\n")
    session.flush()
    before = session.meta.read_latest()
    (tmp_path / "files/1.csv").write_text("x,1\n" * 100_000 + "x,+1\n")
    with pytest.raises(NeedsSparkError, match=r"of s \(\S+/1.csv: column 'n' has a value"):
        session.flush()
    assert session.meta.read_latest() == before


def test_explain_names_the_option_that_leaves_files_to_spark(tmp_path: Path) -> None:
    session = session_over(tmp_path, multiLine="true")
    session.flush()
    catalog = session.meta.read_latest().catalog
    view = next(r for r in catalog.live_relations() if r.name == "v")
    text = "needs Spark to read new files of s (option multiline 'true' is not on the list of plain options);"
    assert text in explain_relation(catalog, view)
