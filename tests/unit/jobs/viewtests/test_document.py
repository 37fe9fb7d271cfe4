"""Files of tests of views: each error names its place; values get the meaning of their column's type; differences."""

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tussock.jobs.viewtests.comparison import RowsDiffer, net_changes, row_differences, same_value
from tussock.jobs.viewtests.document import ViewTestError, read_tests
from tussock.jobs.viewtests.first_test import first_test_text
from tussock.jobs.viewtests.values import plain_rows, text_of_value, typed_rows


def test_wide_and_combining_characters_are_aligned_as_a_terminal_shows_them() -> None:
    differences = row_differences([(("東京", 1), 3)], [("東京", 22)])
    found = RowsDiffer("rows of v", ("café\u0301", "n"), (False, True), differences).to_text("UTC")
    assert found.splitlines() == [
        "  café\u0301   n",
        "- 東京   1    expected, line 3",
        "+ 東京  22    found",
        "        ^^",
    ]


HEAD = "- name: one\n  view: v\n"


def error_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ViewTestError) as caught:
        read_tests(path)
    return str(caught.value).replace(f"{path}, ", "")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("- name: [1\n", "line 2, column 1", "an error of syntax"),
        ("", "line 1, column 1", "found no test, expected a list of tests"),
        ("name: one\n", "line 1, column 1", "found a mapping, expected a list of tests"),
        (HEAD + "  row: {}\n  expect: []\n", "line 3, column 3", "found the key 'row'"),
        (HEAD + "  row: {}\n  expect: []\n", "line 3, column 3", "Did you mean 'rows'?"),
        (HEAD, "line 1, column 3", "found a test without an expectation, expected `expect` or `changes`"),
        ("- view: v\n  expect: []\n", "line 1, column 3", "found a test without 'name'"),
        (HEAD + "  expect: {a: 1}\n", "line 3, column 11", "found a mapping, expected a list of rows"),
        (HEAD + "  expect: [{a: 1, a: 2}]\n", "line 3, column 19", "found the key 'a' twice"),
        (
            HEAD + "  expect: [{a: 1, A: 2}]\n",
            "line 3, column 19",
            "found the names 'a' and 'A', expected each name once",
        ),
        (HEAD + "  rows: {T: [], t: []}\n  expect: []\n", "line 3, column 17", "found the names 'T' and 't'"),
        (HEAD + "  expect: [{<<: base, a: 1}]\n", "line 3, column 17", "found 'base', expected a mapping, or a list"),
        (HEAD + "  expect: [{<<: [{}, 1], a: 1}]\n", "line 3, column 22", "found '1', expected a mapping, or a list"),
        (HEAD + "  expect: &rows [*rows]\n", "line 1, column 1", "found values that contain themselves"),
        (HEAD + "  steps: [{inserts: {}}]\n  expect: []\n", "line 3, column 12", "Did you mean 'insert'?"),
        (HEAD + "  expect: []\n  steps: [{update: {t: [{set: {a: 1}}]}}]\n", "line 4, column 25", "without 'where'"),
        (HEAD + "  expect: []\n  files: {t: {../x.csv: a}}\n", "line 4, column 15", "a file name without a folder"),
        (HEAD + "  expect: []\n" + HEAD + "  expect: []\n", "line 4, column 3", "a second test 'one'"),
    ],
)
def test_an_invalid_file_names_its_place_and_what_was_expected(
    tmp_path: Path, text: str, place: str, words: str
) -> None:
    found = error_of(tmp_path, text)
    assert found.startswith(f"{place}: found ")
    assert words in found


def rows_of(tmp_path: Path, row: str, columns: list[tuple[str, str]], time_zone: str = "UTC") -> list[tuple[Any, ...]]:
    path = tmp_path / "a.yaml"
    path.write_text(f"{HEAD}  expect:\n    - {row}\n")
    (test,) = read_tests(path)
    assert test.steps[0].expect is not None
    return plain_rows(typed_rows(test.steps[0].expect, columns, time_zone))


VALUES: list[tuple[str, str, Any]] = [
    ("0.40", "decimal(8,2)", Decimal("0.40")),
    ("12345678901234567890.12", "decimal(22,2)", Decimal("12345678901234567890.12")),
    ("0.1", "double", 0.1),
    (".nan", "double", math.nan),
    ("NaN", "float", math.nan),
    ("-.inf", "double", -math.inf),
    ("-128", "tinyint", -128),
    ("9223372036854775807", "bigint", 9223372036854775807),
    ("true", "boolean", True),
    ("007", "string", "007"),
    ("no", "string", "no"),
    ("2026-01-01", "string", "2026-01-01"),
    ("'null'", "string", "null"),
    ("null", "string", None),
    ("~", "int", None),
    ("", "decimal(8,2)", None),
    ("2026-01-01", "date", date(2026, 1, 1)),
    ("2026-01-01 08:00:00", "timestamp", datetime(2026, 1, 1, 7, tzinfo=UTC)),  # Berlin
    ("2026-01-01T08:00:00.000001Z", "timestamp", datetime(2026, 1, 1, 8, 0, 0, 1, tzinfo=UTC)),
    ("2026-03-29 02:30:00", "timestamp", datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),  # skipped: moves forward
    ("2026-10-25 02:30:00", "timestamp", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),  # ambiguous: the first
    ("2026-01-01 08:00:00", "timestamp_ntz", datetime(2026, 1, 1, 8)),
    ("0x1F00", "binary", b"\x1f\x00"),
    ("!!binary HwA=", "binary", b"\x1f\x00"),
    ("[1, null, 2]", "array<int>", [1, None, 2]),
    ("{A: 1}", "struct<a:int,b:string>", {"a": 1, "b": None}),
    ("{x: 0.5, y: null}", "map<string,decimal(3,1)>", [("x", Decimal("0.5")), ("y", None)]),
    ("[{a: [2026-01-01]}]", "array<struct<a:array<date>>>", [{"a": [date(2026, 1, 1)]}]),
    ("-1 02:30:00.5", "interval day to second", -timedelta(days=1, hours=2, minutes=30, seconds=0.5)),
    ("-1-06", "interval year to month", pa.MonthDayNano([-18, 0, 0])),
    ("08:30:00.25", "time(6)", time(8, 30, 0, 250_000)),
]


@pytest.mark.parametrize(("text", "kind", "value"), VALUES, ids=[f"{kind} {text}" for text, kind, _ in VALUES])
def test_the_type_of_the_column_decides_the_meaning_of_a_value(
    tmp_path: Path, text: str, kind: str, value: Any
) -> None:
    ((found,),) = rows_of(tmp_path, f"{{c: {text}}}", [("c", kind)], "Europe/Berlin")
    assert same_value(found, value), (found, value)


def written_and_read(path: Path, kind: str, value: Any) -> Any:
    """The value that a test reads from the file which `first_test_text` writes for one value."""
    path.write_text(first_test_text("v", None, {}, (["c"], [(value,)]), "Europe/Berlin"))
    (test,) = read_tests(path)
    assert test.steps[0].expect is not None
    ((read,),) = plain_rows(typed_rows(test.steps[0].expect, [("c", kind)], "Europe/Berlin"))
    return read


@pytest.mark.parametrize(("kind", "value"), [case[1:] for case in VALUES], ids=[f"{k} {t}" for t, k, _ in VALUES])
def test_a_first_test_writes_values_that_are_read_back(tmp_path: Path, kind: str, value: Any) -> None:
    read = written_and_read(tmp_path / "a.yaml", kind, value)
    assert same_value(read, value), (tmp_path / "a.yaml").read_text()


@pytest.mark.parametrize("value", ["a: b", "{x}", "#1", "- x", 'say "hi"', "a\nb", "\\", " ", "", "null", "é", "\x00"])
def test_a_first_test_quotes_texts_that_yaml_would_read_otherwise(tmp_path: Path, value: str) -> None:
    assert written_and_read(tmp_path / "a.yaml", "string", value) == value


@pytest.mark.parametrize(
    ("row", "kind", "message"),
    [
        ("{c: 0.401}", "decimal(8,2)", "found '0.401', expected a number with at most 2 digits after the point"),
        ("{c: 1.5}", "int", "found '1.5', expected a whole number within the type's range (int)"),
        ("{c: 128}", "tinyint", "found '128', expected a whole number"),
        ("{c: yes}", "boolean", "found 'yes', expected true or false"),
        ("{c: 2026-13-01}", "date", "expected a date such as 2026-01-31"),
        ("{c: 2026-01-01 08:00:00+01:00}", "timestamp_ntz", "expected a time without an offset"),
        ("{c: 1}", "array<int>", "found '1', expected a list of values (array<int>)"),
        (
            "{c: {amuont: 1}}",
            "struct<amount:int>",
            "found the field 'amuont', expected one of amount. Did you mean 'amount'?",
        ),
        ("{d: 1}", "int", "found the column 'd', expected one of c"),
        ("{c: [1]}", "int", "found a list, expected one value (int)"),
    ],
)
def test_a_value_that_its_type_does_not_have_is_an_error_at_its_place(
    tmp_path: Path, row: str, kind: str, message: str
) -> None:
    with pytest.raises(ViewTestError, match=r"line 4, column \d+") as caught:
        rows_of(tmp_path, row, [("c", kind)])
    assert message in str(caught.value)


def test_entries_of_a_base_row_are_replaced_by_those_of_the_row(tmp_path: Path) -> None:
    columns = [("a", "int"), ("b", "int")]
    assert rows_of(tmp_path, "&base {a: 1, b: 2}\n    - {<<: *base, b: 3}", columns) == [(1, 2), (1, 3)]


def test_rows_are_compared_as_a_multiset_with_a_tolerance_for_floats_only() -> None:
    assert row_differences([((0.1 + 0.2,), 1)], [(0.3,)]) == ()
    assert row_differences([((math.nan,), 1)], [(math.nan,)]) == ()
    assert len(row_differences([((1.0,), 1)], [(1.00001,)])) == 1
    assert len(row_differences([((Decimal("0.30"),), 1)], [(Decimal("0.31"),)])) == 1
    assert len(row_differences([((1,), 1), ((1,), 2)], [(1,)])) == 1
    assert len(row_differences([((True,), 1)], [(1,)])) == 1, "a boolean is no number"
    assert net_changes([(1,), (1,), (2,)], [(1,), (3,)]) == ([(1,), (2,)], [(3,)])


def test_the_differences_mark_the_values_that_differ() -> None:
    expected = [((date(2026, 1, 1), 2, Decimal("0.80")), 12), ((date(2026, 1, 2), 1, Decimal("0.55")), 13)]
    found = [(date(2026, 1, 3), 9, None), (date(2026, 1, 1), 2, Decimal("0.40"))]
    differ = RowsDiffer(
        "rows of v", ("day", "orders", "revenue"), (False, True, True), row_differences(expected, found)
    )
    assert differ.to_text("UTC").splitlines() == [
        "  day         orders  revenue",
        "- 2026-01-01       2     0.80    expected, line 12",
        "+ 2026-01-01       2     0.40    found",
        "                         ^^^^",
        "- 2026-01-02       1     0.55    missing, line 13",
        "+ 2026-01-03       9     NULL    not expected",
    ]


def test_times_are_shown_in_the_time_zone_of_the_pipeline() -> None:
    assert text_of_value(datetime(2026, 1, 1, 7, tzinfo=UTC), "Europe/Berlin") == "2026-01-01 08:00:00"
