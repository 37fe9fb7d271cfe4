"""Bytes that are not UTF-8, for each kind of input: the message names the file and the row, and the store is
unharmed.
"""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sources.pinned import pinned
from tests.support.jobs.sources.text import _bad
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.file_chunks import make_packer
from tussock.jobs.sources.parquet import Split, read_split
from tussock.jobs.sources.rejects import split_rejects
from tussock.jobs.sources.spark_paths import place_of
from tussock.jobs.sources.text import bad_texts, first_bad_text, with_shown_texts
from tussock.jobs.sources.text_files import TextFiles


def test_bytes_that_are_no_text_are_shown_at_any_depth() -> None:
    given = {
        "text": pa.array([b"a\xff", "ä".encode(), None], pa.binary()).view(pa.string()),
        "bytes": pa.array([b"\xff", b"", None], pa.binary()),
        "good": pa.array([["ä"], None, []], pa.list_(pa.string())),
        "nested": pa.array(
            [{"x": [b"\xff", "ä".encode()], "m": [(b"k\xc3", 1)], "b": b"\xff"}, None, {"x": None, "m": [], "b": None}],
            pa.struct({"x": pa.list_(pa.binary()), "m": pa.map_(pa.binary(), pa.int32()), "b": pa.binary()}),
        ).view(pa.struct({"x": pa.list_(pa.string()), "m": pa.map_(pa.string(), pa.int32()), "b": pa.binary()})),
    }
    rows = pa.table(given)
    shown = with_shown_texts(pa.concat_tables([rows, rows.slice(1)]))
    assert shown.schema == rows.schema
    assert shown["text"].to_pylist() == ["a\\xff", "ä", None, "ä", None]
    assert shown["bytes"].to_pylist() == [b"\xff", b"", None, b"", None]
    assert shown["good"].to_pylist() == [["ä"], None, [], None, []]
    last = {"x": None, "m": [], "b": None}
    first = {"x": ["\\xff", "ä"], "m": [("k\\xc3", 1)], "b": b"\xff"}
    assert shown["nested"].to_pylist() == [first, None, last, None, last]


@pytest.mark.parametrize("at", [0, 1, 700, 999])
def test_the_first_row_that_is_no_text_is_found(at: int) -> None:
    rows = [b"good" if i < at else b"a\xff" for i in range(1000)]
    chunks = pa.chunked_array([_bad(*rows[:600]), _bad(*rows[600:])])
    assert first_bad_text(chunks) == at
    assert first_bad_text(pa.chunked_array([_bad(b"\xc3\xa9", b"")])) is None


_KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view(), pa.binary(2)]


@pytest.mark.parametrize("kind", _KINDS, ids=str)
def test_text_of_every_width_reads_as_string(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(
        pa.table({"s": pa.array([b"ab", None, "é".encode()], pa.binary()).cast(kind)}), tmp_path / "a.parquet"
    )
    read = read_split(Split(pinned(tmp_path / "a.parquet")), (0,), (Field("s", "string"),), {}).rows
    assert read["s"].to_pylist() == ["ab", None, "é"]


def test_a_text_file_that_quarantines_keeps_the_other_lines_and_shows_the_bytes_of_the_bad_one(tmp_path: Path) -> None:
    """Spark passes the lines of a text file on without checking them."""
    path, lines = tmp_path / "a.txt", [b"fine", b"bad \xff\xfe", b"", b"\xc3\x28", "größer".encode(), None]
    path.write_bytes(b"\n".join(line or b"" for line in lines))
    source = CreateSource("lines", "text", (Field("value", "string"),), {"path": str(path), "on_error": "quarantine"})
    texts = pa.array(lines, pa.binary()).view(pa.string())
    batch = pa.record_batch([texts, pa.repeat(pa.scalar(path.as_uri()), len(lines))], names=["value", "path"])
    pack = make_packer(
        {place_of(path.as_uri()): [pinned(path, 3)]}, source, 1, (0,), TextFiles().require_types, TextFiles.raw_column
    )
    (made,) = [row for out in pack(iter([batch])) for row in out.to_pylist()]
    read = split_rejects(pa.ipc.open_stream(made["chunk"]).read_all())
    rows, rejects = read.rows, read.rejects
    assert rejects is not None
    assert list(zip(*(rows.column(c).to_pylist() for c in range(2)), strict=True)) == [
        (line if line is None else line.decode(), (3 << 40) + n) for n, line in enumerate(lines) if n not in (1, 3)
    ]
    reason = "column 'value': its bytes are not UTF-8, and a string has to be"
    four = (*rejects.columns[:4], rejects.columns[-1])  # not the hidden columns
    found = list(zip(*(c.to_pylist() for c in four), strict=True))
    assert found == [(str(path), 2, reason, "bad \\xff\\xfe", 1), (str(path), 4, reason, "\\xc3(", 1)]


def test_every_invalid_string_is_found_in_any_position() -> None:
    """Compared with Python's decoder, over bytes at the limits of UTF-8."""
    edges = [
        0x00,
        0x0A,
        0x41,
        0x7F,
        0x80,
        0x8F,
        0x90,
        0x9F,
        0xA0,
        0xBF,
        0xC0,
        0xC1,
        0xC2,
        0xDF,
        0xE0,
        0xED,
        0xEF,
        0xF0,
        0xF4,
        0xF5,
        0xFF,
    ]
    chosen = random.Random(7)
    strings = [bytes(chosen.choices(edges, k=chosen.randrange(5))) for _ in range(5_000)]
    strings += [
        "".join(chosen.choices("A\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff", k=3)).encode()
        for _ in range(1_000)
    ]
    expected = []
    for text in strings:
        try:
            text.decode()
            expected.append(False)
        except UnicodeDecodeError:
            expected.append(True)
    assert bad_texts(_bad(*strings)).tolist() == expected
    assert {True, False} == set(expected)
    nested = pa.array([[t, "fine"] if not bad else None for t, bad in zip(strings[:9], expected, strict=False)])
    assert not bad_texts(nested).any()
    lists = pa.ListArray.from_arrays(pa.array(range(0, 22, 2), pa.int32()), _bad(*strings[:20]))
    assert bad_texts(lists).tolist() == [any(expected[i : i + 2]) for i in range(0, 20, 2)]
