"""Random files that may be plain: each that is read as plain has exactly the rows that Spark's reader returns.

Texts are drawn near the borders of the rules: quotes, blanks, escapes, signs, digits and zones in odd places. Half of
them are not plain, and a file in which Spark finds an unreadable record must be among these.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.jobs.sources.plain_texts import as_plain, as_spark, differences, source_of, written
from tests.support.spark_types import SparkSession
from tussock.jobs.spark.session import epoch_session

pytestmark = pytest.mark.spark
FILES = 30  # per example, read by one job of Spark
ZONE = "America/New_York"

_integers = st.one_of(
    st.integers(-(2**63) - 1, 2**63).map(str),
    st.sampled_from(["0", "-0", "+1", "007", "127", "128", "-129", "32768", "2147483648", "1.0", "1e3", " 1", "0x1F"]),
)
_numbers = st.one_of(
    _integers,
    st.floats(allow_nan=False).map(repr),
    st.decimals(-100_000, 100_000, places=2).map(str),
    st.text("0123456789+-.eE", max_size=8),
    st.sampled_from(["NaN", "nan", "Inf", "-Inf", "+Inf", "-NaN", "Infinity", "-Infinity", "+Infinity", "infinity"]),
    st.sampled_from(["1d", ".5", "5.", "-.5", "1E+5", "1e400", "4.9e-324", "1.23456", "99999999.99"]),
)
_clocks = st.builds(
    lambda day, between, clock, fraction, zone: f"{day}{between}{clock}{fraction}{zone}",
    st.one_of(
        st.dates().map(str), st.sampled_from(["2024-03-10", "2024-11-03", "2020-02-30", "2020-1-1", "0000-01-01"])
    ),
    st.sampled_from([" ", "T", "  ", "t", ""]),
    st.one_of(
        st.times().map(lambda time: time.strftime("%H:%M:%S")), st.sampled_from(["24:00:00", "2:30:00", "01:30", ""])
    ),
    st.sampled_from(["", "", ".1", ".123", ".123456", ".1234567", "."]),
    st.sampled_from(["", "", "", "Z", "+01:00", "-05:30", "+14:00", "+15:00", "+1", " Z", "UTC"]),
)
_times = st.one_of(_clocks, st.datetimes().map(str), st.dates().map(str))
_texts = st.text(
    st.one_of(
        st.sampled_from("\"\\,;\t 'ab\u00e9\u2028\x0b#-NA"), st.characters(codec="utf-8", exclude_characters="\n\r")
    ),
    max_size=6,
)
_VALUES = {
    "int": _integers,
    "bigint": _integers,
    "tinyint": _integers,
    "double": _numbers,
    "float": _numbers,
    "decimal(10,2)": _numbers,
    "boolean": st.sampled_from(["true", "false", "TRUE", "False", "1", "yes", "t"]),
    "date": _times,
    "timestamp": _times,
    "timestamp_ntz": _times,
    "string": _texts,
}
_SMALL = {"int": "7", "bigint": "-8", "tinyint": "9", "double": "1.5", "float": "0.25", "decimal(10,2)": "3.10"} | {
    "boolean": "true", "date": "2020-01-31", "timestamp": "2020-01-31 05:06:07", "timestamp_ntz": "2020-01-31 05:06:07",
    "string": "text"
}  # fmt: skip


_COLUMNS = [(f"c{n}", kind) for n, kind in enumerate(_VALUES)]
_MARKS = st.sampled_from([b"", b"", b"", b"", b"\xef\xbb\xbf", b"\xef\xbb\xbf" * 2])  # byte order marks
_NESTED = "struct<x:int,y:array<string>>"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _cells(kind: str) -> st.SearchStrategy[str]:
    return st.one_of(st.just(""), _VALUES[kind], _VALUES[kind], _VALUES[kind].map(_quoted))


@st.composite
def _csv_file(draw: st.DrawFn, separator: str) -> bytes:
    """A file of all columns. Few cells are drawn, so that about half of the files are plain."""
    rows = []
    for _ in range(draw(st.integers(1, 2))):
        row = [_SMALL[kind] for _, kind in _COLUMNS]
        for place in draw(st.lists(st.integers(0, len(row) - 1), max_size=2)):
            row[place] = draw(_cells(_COLUMNS[place][1]))
        rows.append(separator.join(row))
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\r", "\n \n", ""]))
    return draw(_MARKS) + "".join(row + end for row in rows).encode()


_json_values = st.one_of(
    _numbers,
    st.sampled_from(["null", "true", "false", "[]", "{}", '{"x":1}', '{"x":1,"y":["a",null],"z":2}', '{"y":[1]}']),
    st.text(max_size=4).map(json.dumps),
    st.one_of(_times, _integers, st.just("NaN"), st.just("")).map(lambda text: f'"{text}"'),
)


@st.composite
def _json_file(draw: st.DrawFn) -> bytes:
    """A file of all columns, the nested one, and others that the source does not declare."""
    records = []
    for _ in range(draw(st.integers(1, 2))):
        values = {name: _json_of(kind) for name, kind in _COLUMNS} | {"n": '{"x":3,"y":["b"]}'}
        for name in draw(st.lists(st.sampled_from([*values, "other", "C1"]), max_size=3)):
            if draw(st.booleans()):
                values[name] = draw(_json_values)
            else:
                values.pop(name, None)
        pairs = [*values.items()]
        if draw(st.integers(0, 7)) == 0:
            pairs.append(draw(st.sampled_from([("c0", "1"), ("other", "{}"), ("\\u0063\\u0030", "2"), ("", "3")])))
        blank = draw(st.sampled_from(["", "", " "]))
        records.append("{" + ",".join(f'{blank}"{name}":{blank}{value}{blank}' for name, value in pairs) + "}")
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "", " \n"]))
    return draw(_MARKS) + "".join(record + end for record in records).encode()


def _json_of(kind: str) -> str:
    return f'"{_SMALL[kind]}"' if kind in ("string", "date", "timestamp", "timestamp_ntz") else _SMALL[kind]


def _compare(
    spark: SparkSession,
    format: str,
    columns: list[tuple[str, str]],
    options: Mapping[str, str],
    files: list[bytes],
    zone: str,
    quarantine: bool,
) -> None:
    """The first file must be plain."""
    source = source_of(format, columns, options, quarantine)
    with tempfile.TemporaryDirectory() as folder:
        pins = written(Path(folder), files, format)
        plain = as_plain(source, pins, zone)
        assert not isinstance(plain[0], str), plain[0]
        found = differences(plain, as_spark(epoch_session(spark, zone), source, pins))
        assert not found, {files[number]: rows for number, rows in found.items()}


_CSV = st.tuples(
    st.sampled_from([
        {}, {"escape": '"'}, {"nullValue": "NA"}, {"sep": "\t"}, {"sep": ";", "escape": '"'},
        {"timestampFormat": "yyyy-MM-dd HH:mm:ss", "dateFormat": "yyyy-MM-dd"},
    ]),
    st.sampled_from(["UTC", ZONE]),
    st.booleans(),
)  # fmt: skip
_JSON = st.tuples(st.sampled_from(["UTC", ZONE]), st.booleans())
_MANY = settings(
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    max_examples=2,
    derandomize=True,
    phases=[Phase.generate],
)


@_MANY
@given(st.data())
def test_csv_files(spark: SparkSession, data: st.DataObject) -> None:
    _csv(spark, data)


@_MANY
@given(st.data())
def test_json_files(spark: SparkSession, data: st.DataObject) -> None:
    _json(spark, data)


@pytest.mark.deep
@settings(_MANY, max_examples=120, derandomize=False)
@given(st.data())
def test_many_csv_files(spark: SparkSession, data: st.DataObject) -> None:
    _csv(spark, data)


@pytest.mark.deep
@settings(_MANY, max_examples=120, derandomize=False)
@given(st.data())
def test_many_json_files(spark: SparkSession, data: st.DataObject) -> None:
    _json(spark, data)


def _csv(spark: SparkSession, data: st.DataObject) -> None:
    options, zone, quarantine = data.draw(_CSV)
    separator = options.get("sep", ",")
    fine = separator.join(_SMALL[kind] for _, kind in _COLUMNS).encode()
    files = [
        fine,
        b"\xef\xbb\xbf",
        b"\xef\xbb\xbf" + fine,
        *data.draw(st.lists(_csv_file(separator), min_size=FILES, max_size=FILES)),
    ]
    _compare(spark, "csv", _COLUMNS, options, files, zone, quarantine)


def _json(spark: SparkSession, data: st.DataObject) -> None:
    zone, quarantine = data.draw(_JSON)
    fine = "{" + ",".join(f'"{name}":{_json_of(kind)}' for name, kind in _COLUMNS) + "}"
    files = [
        fine.encode(),
        b"\xef\xbb\xbf" + fine.encode(),
        *data.draw(st.lists(_json_file(), min_size=FILES, max_size=FILES)),
    ]
    _compare(spark, "json", [*_COLUMNS, ("n", _NESTED)], {}, files, zone, quarantine)
