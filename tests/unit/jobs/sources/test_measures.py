"""Files of few bytes with many decoded ones are measured by their records, in every format. No Spark."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sources.avro_files import write_avro
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources import xml
from tussock.jobs.sources.file_portions import FileRecords
from tussock.jobs.sources.files import FileSource
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.registry import READERS

ROWS = 20_000
TEXT = "x" * 1_000
TABLE = pa.table({"k": pa.array([1] * ROWS, pa.int64()), "v": pa.array([TEXT] * ROWS)})
CSV, JSON, XML = f"1,{TEXT}\n".encode(), f'{{"k":1,"v":"{TEXT}"}}\n'.encode(), f"<r><v>{TEXT}</v></r>".encode()


def text_of(record: bytes, pack: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(pack(record * ROWS)) and None


def same(data: bytes) -> bytes:
    return data


BOMBS: Mapping[str, tuple[str, Callable[[Path], None], dict[str, str]]] = {
    "a.csv.gz": ("csv", text_of(CSV, gzip.compress), {}),
    "a.json.gz": ("json", text_of(JSON, gzip.compress), {}),
    "a.xml.gz": ("xml", text_of(XML, gzip.compress), {"rowTag": "r"}),
    "a.txt.gz": ("text", text_of(CSV, gzip.compress), {}),
    "a.txt.bz2": ("text", text_of(CSV, bz2.compress), {}),
    "a.txt.xz": ("text", text_of(CSV, lzma.compress), {}),
    "a.txt.deflate": ("text", text_of(CSV, zlib.compress), {}),
    "two.csv.gz": (
        "csv",
        text_of(CSV[:-1] + b"\n", lambda data: gzip.compress(data[:50_000]) + gzip.compress(data[50_000:])),
        {},
    ),
    "a.csv": ("csv", text_of(CSV, same), {}),
    "dictionary.parquet": ("parquet", lambda path: pq.write_table(TABLE, path), {}),
    "delta.parquet": (
        "parquet",
        lambda path: pq.write_table(TABLE, path, use_dictionary=False, column_encoding={"v": "DELTA_BYTE_ARRAY"}),
        {},
    ),
    "plain.parquet": (
        "parquet",
        lambda path: pq.write_table(TABLE, path, use_dictionary=False, compression="zstd"),
        {},
    ),
    "a.orc": ("orc", lambda path: orc.write_table(TABLE, path, compression="zlib"), {}),
    "a.avro": ("avro", lambda path: write_avro(path, ROWS, TEXT), {}),
}


def measured(path: Path, format: str, options: Mapping[str, str]) -> FileRecords:
    source = CreateSource("s", format, (Field("v", "string"),), {"path": str(path), **options})
    reader = READERS[format]
    assert isinstance(reader, FileSource)
    return reader.measure(source, PinnedFile(str(path), path.stat().st_size, "", 0))


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_has_the_cost_of_its_decoded_records(name: str, tmp_path: Path) -> None:
    format, write, options = BOMBS[name]
    path = tmp_path / name
    write(path)
    found = measured(path, format, options)
    assert found.records in (ROWS, ROWS + 1)
    assert 0.95 <= found.cost / (ROWS * 1_000) <= 1.2


@pytest.mark.parametrize(
    ("before", "after", "divisible"),
    [(b"<rs>", b"</rs>", True), (b"", b"", False), (b"<rs>", b"", False), (b"<rs>", b"</rs><", False)],
)
def test_a_large_xml_file_that_is_no_document_is_one_record(
    before: bytes, after: bytes, divisible: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps such a file as one text, and its JVM ended for lack of memory."""
    monkeypatch.setattr(xml, "_LARGE_BYTES", 10_000)
    path = tmp_path / "a.xml.gz"
    path.write_bytes(gzip.compress(before + b"<r><v>x</v></r>\n" * 1_000 + after))
    found = measured(path, "xml", {"rowTag": "r"})
    assert (found.records > 1) == divisible
    assert found.cost >= 16_000


def test_rows_of_a_few_thousandths_of_a_byte_count_as_rows(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.parquet", 3_000_000
    pq.write_table(pa.table({"k": pa.array([1] * rows, pa.int8())}), path)
    assert path.stat().st_size < rows / 250
    found = measured(path, "parquet", {})
    assert (found.records, found.cost) == (rows, 64 * rows)


def test_one_record_cannot_be_divided(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b"[\n" + JSON * 1_000 + b"]"))
    assert measured(path, "json", {"multiLine": "true"}).records == 1
    path.write_bytes(gzip.compress(b"x" * 5_000_000 + b"\n" + b"y\n" * 1_000))
    assert measured(path, "text", {}).largest == 5_000_000


def test_a_damaged_file_is_measured_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(CSV * ROWS)[:-5_000])
    assert 0 < measured(path, "csv", {}).records < ROWS


def test_every_format_of_files_measures() -> None:
    for name, reader in READERS.items():
        if isinstance(reader, FileSource):
            assert type(reader).measure is not FileSource.measure, name
