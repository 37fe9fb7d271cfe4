"""The same files, read as plain files and by Spark's reader: the comparison of the tests and of the corpus run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
from pyarrow import compute as pc

from tests.support.jobs.sources.pinned import pinned
from tests.support.spark_types import SparkSession
from tests.support.zone_rules import ruled_by_python
from tussock.jobs.chunks.chunk import WEIGHT
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import Division, EngineReader, TimeZones
from tussock.jobs.sources.errors import OnlySparkReadsError
from tussock.jobs.sources.file_documents import document_of, files_of
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.rejects import REJECT
from tussock.statestore.nested import bits_of
from tussock.statestore.vnode import one_array


def source_of(
    format: str, columns: Sequence[tuple[str, str]], options: Mapping[str, str], quarantine: bool = False
) -> CreateSource:
    """A source whose files are given later."""
    more = {"on_error": "quarantine"} if quarantine else {}
    fields = tuple(Field(name, kind) for name, kind in columns)
    return CreateSource("s", format, fields, {"path": "/ignored", **options, **more})


def written(folder: Path, contents: Sequence[bytes], suffix: str) -> list[PinnedFile]:
    """The contents as pinned files, numbered in order. Empty contents have no file, as at a barrier."""
    files = []
    for number, content in enumerate(contents):
        if content:
            path = folder / f"{number}.{suffix}"
            path.write_bytes(content)
            files.append(pinned(path, number))
    return files


def engine_of(source: CreateSource) -> EngineReader:
    """The engine's reader of the source's files."""
    engine = reader_of(source).engine
    assert engine is not None
    return engine


def as_plain(source: CreateSource, files: Sequence[PinnedFile], zone: str = "UTC") -> dict[int, pa.Table | str]:
    """By file: its rows as a plain file, or why it is not plain."""
    engine, answers = engine_of(source), dict[int, pa.Table | str]()
    zones = TimeZones(ruled_by_python(zone), ruled_by_python)
    for file in files:
        document = document_of([file])
        reasons = engine.reasons_for_spark(source, document, zones)
        if reasons:
            answers[file.number] = reasons[file.path]
            continue
        try:
            (part,) = engine.divide(source, document, Division(1, zones, reasons)).parts
            read = engine.read(source, part, range(len(source.fields)))
        except OnlySparkReadsError as err:
            answers[file.number] = err.reason
        else:
            assert read.rejects is None
            answers[file.number] = read.rows
    return answers


def as_spark(spark: SparkSession, source: CreateSource, files: Sequence[PinnedFile]) -> dict[int, pa.Table | str]:
    """By file: its rows by Spark's reader, or why one of them is unreadable. The session has the store's time zone."""
    reader = reader_of(source)
    cells = reader.frame(spark, source, document_of(files), range(len(source.fields))).toArrow()
    found = dict[int, pa.Table | str]()
    for number in (f.number for f in files):
        mine = cells.filter(pc.equal(cells["part"], number))
        if failures := mine["failure"].drop_null().to_pylist():
            found[number] = failures[0].decode()
            continue
        chunks = [pa.ipc.open_stream(chunk).read_all() for chunk in mine["chunk"].to_pylist()]
        rejected = [chunk for chunk in chunks if REJECT in chunk.column_names]
        if any(chunk[REJECT].null_count < len(chunk) for chunk in rejected):
            found[number] = "it has rejects"
            continue
        if chunks:
            tables = [c.drop_columns([REJECT]) if REJECT in c.column_names else c for c in chunks]
            found[number] = pa.concat_tables(tables)
    return found


def as_decided(spark: SparkSession, source: CreateSource, file: PinnedFile) -> tuple[str, pa.Table | str]:
    """Why Spark reads a file, empty if the engine does, and the rows by the reader that the barrier decides."""
    answer = as_plain(source, [file])[file.number]
    if isinstance(answer, pa.Table):
        return "", answer
    return answer, as_spark(spark, source, [file])[file.number]


def differences(
    plain: Mapping[int, pa.Table | str], by_spark: Mapping[int, pa.Table | str]
) -> dict[int, tuple[object, object]]:
    """The files that are plain, and that Spark reads differently: {number: (rows as plain, rows or error of Spark)}.

    Rows are compared by their bits and in order, with their row ids and weights.
    """
    found = {}
    for number, rows in plain.items():
        if isinstance(rows, str):
            continue
        other = by_spark.get(number)
        if other is None and not rows.num_rows:
            continue
        if not isinstance(other, pa.Table) or not _same(rows, other):
            found[number] = (rows.to_pylist(), other if isinstance(other, str | None) else other.to_pylist())
    return found


def _same(left: pa.Table, right: pa.Table) -> bool:
    if left.column_names != right.column_names or left.schema.types != right.schema.types:
        return False
    if WEIGHT not in left.column_names or left.num_rows != right.num_rows:
        return False
    pairs = zip(left.columns, right.columns, strict=True)
    return all(bits_of(one_array(a)).equals(bits_of(one_array(b))) for a, b in pairs)


def numbers_of(document: msgspec.Raw | None) -> list[int]:
    """The numbers of the files that a document pins."""
    return [file.number for file in files_of(document)]
