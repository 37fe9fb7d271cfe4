"""Rows as CSV: columns without a form in CSV are JSON or text, as `--json` writes them. Expected texts by hand."""

import csv
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from tussock.jobs.reading.written_rows import NoFormError, write_csv, write_json
from tussock.statestore.types import GIVEN_MONTHS, VARIANT

FILE = pa.struct([("file_path", pa.string()), ("file_size", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
INSIDE = pa.struct(
    [
        ("at", pa.timestamp("us")),
        ("day", pa.date32()),
        ("price", pa.decimal128(38, 10)),
        ("raw", pa.binary()),
        ("months", GIVEN_MONTHS),
    ]
)
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "text": pa.array(["", None, 'a "quoted", word\n']),
        "file": pa.array(
            [
                {"file_path": 'file:/it\'s "a",b', "file_size": 1, "at": datetime(2024, 1, 2, 3, 4, 5, 600, UTC)},
                None,
                {"file_path": None, "file_size": None, "at": None},
            ],
            FILE,
        ),
        "list": pa.array([[], None, [1, None]], pa.list_(pa.int32())),
        "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
        "inside": pa.array(
            [
                None,
                [
                    {
                        "at": datetime(2024, 1, 2, 3, 4, 5),
                        "day": date(2024, 1, 2),
                        "price": Decimal("12345678901234567890.0000000001"),
                        "raw": b"a\x00\xff",
                        "months": pa.MonthDayNano([14, 0, 0]),
                    }
                ],
                [None],
            ],
            pa.list_(INSIDE),
        ),
        "raw": pa.array([b"a\x00\xff", b"", None]),
        "months": pa.array([(14, 0, 0), (-25, 0, 0), None], GIVEN_MONTHS),
    }
)
EXPECTED = (
    r""""id","text","file","list","map","inside","raw","months"
1,"","{""file_path"":""file:/it's \""a\"",b"",""file_size"":1,""at"":""2024-01-02 03:04:05.0006+00""}","[]","""
    r""""{""k"":1}",,"a\x00\xFF","INTERVAL '1-2' YEAR TO MONTH"
2,,,,"{}","[{""at"":""2024-01-02 03:04:05"",""day"":""2024-01-02"",""price"":12345678901234567890.0000000001,"""
    r"""""raw"":""a\\x00\\xFF"",""months"":""1 year 2 months""}]","","INTERVAL '-2-1' YEAR TO MONTH"
3,"a ""quoted"", word
","{""file_path"":null,""file_size"":null,""at"":null}","[1,null]",,"[null]",,
"""
)


def written(rows: pa.Table) -> str:
    out = io.BytesIO()
    write_csv(rows.to_reader(max_chunksize=2), out)
    return out.getvalue().decode()


def test_nested_values_bytes_and_intervals_have_a_form_in_csv() -> None:
    assert written(ROWS) == EXPECTED
    assert written(ROWS.slice(0, 0)) == EXPECTED.splitlines(keepends=True)[0]
    assert written(ROWS.slice(1, 1)).splitlines()[1:] == EXPECTED.splitlines()[2:3], "arrays with an offset"


def test_nested_values_are_those_of_json() -> None:
    out = io.BytesIO()
    write_json(ROWS.to_reader(), out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    records = [*csv.DictReader(io.StringIO(written(ROWS)))]
    for column in ("file", "list", "map", "inside"):
        assert [json.loads(r[column] or "null") for r in records] == [line[column] for line in lines]
    assert [r["raw"] for r in records] == [line["raw"] or "" for line in lines]


def test_intervals_with_days_are_those_of_duckdb() -> None:
    rows = pa.table({"i": pa.array([(0, 3, 0), (1, 0, 10**9), None], GIVEN_MONTHS)})
    assert written(rows).splitlines() == ['"i"', '"3 days"', '"1 month 00:00:01"', ""]


@pytest.mark.parametrize("kind", [VARIANT, pa.list_(VARIANT)], ids=["variant", "array of variants"])
def test_a_variant_has_no_form_in_csv(kind: pa.DataType) -> None:
    with pytest.raises(NoFormError, match=r"column 'v' is a variant, which CSV cannot represent. Use --json or"):
        written(pa.table({"v": pa.nulls(1, kind)}))


def test_numbers_that_json_lacks_are_strings() -> None:
    nan, inf = float("nan"), float("inf")
    texts = ['NaN, "Infinity"', None]
    rows = pa.table({"x": [nan, 1.5], "s": [{"y": [-inf, inf]}, {"y": [nan]}], "NaN": texts})
    out = io.BytesIO()
    write_json(rows.to_reader(), out)
    expected = [{"x": "NaN", "s": {"y": ["-Infinity", "Infinity"]}, "NaN": texts[0]}, {"x": 1.5, "s": {"y": ["NaN"]}}]
    found = [json.loads(line, parse_constant=pytest.fail) for line in out.getvalue().splitlines()]
    assert found == [expected[0], {**expected[1], "NaN": None}]
    records = csv.DictReader(io.StringIO(written(rows)))
    assert [json.loads(r["s"], parse_constant=pytest.fail) for r in records] == [line["s"] for line in expected]


def test_csv_has_the_years_that_arrow_cannot_write() -> None:
    """Arrow counts years in 16 bits: the third time would be one of the year 10173."""
    last_day = 2_932_896  # of the year 9999
    days = [last_day, last_day + 20_000_000, last_day + 24_000_000, None, -719_528]
    times = pa.array([None if day is None else day * 86_400_000_000 + 1 for day in days], pa.int64())
    rows = pa.table(
        {
            "u": times.cast(pa.timestamp("us", "UTC")),
            "n": times.cast(pa.timestamp("us")),
            "d": pa.array(days, pa.int32()).cast(pa.date32()),
        }
    )
    write_csv(rows.to_reader(), out := io.BytesIO())
    assert out.getvalue().decode().replace('"', "").splitlines() == [
        "u,n,d",
        "9999-12-31 00:00:00.000001Z,9999-12-31 00:00:00.000001,9999-12-31",
        "64758-02-20 00:00:00.000001Z,64758-02-20 00:00:00.000001,64758-02-20",
        "75709-10-07 00:00:00.000001Z,75709-10-07 00:00:00.000001,75709-10-07",
        ",,",
        "0000-01-01 00:00:00.000001Z,0000-01-01 00:00:00.000001,0000-01-01",
    ]
