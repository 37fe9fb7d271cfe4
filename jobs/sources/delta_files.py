"""The files of Delta tables: actors read them like Parquet files, and Spark reads those that only it can read.

A part is a piece of a file with its weights: added and removed rows by deletion vectors, or the rows of a change feed.
Both readers give the rows of a file with their positions; `_chunk_of` makes the chunk of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, decode_tables, encode_table, make_chunk
from tussock.jobs.chunks.failure import encode_failure, first_failure
from tussock.jobs.delta.delta_columns import Mapped
from tussock.jobs.delta.delta_log import (
    CHANGE_TYPE,
    CLONE_OF,
    DeltaPlace,
    Piece,
    commits_after,
    mask_at,
    partition_column,
    sum_commits,
)
from tussock.jobs.delta.delta_vectors import LOG
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import DividedInput, Division, EngineReader, Item, ReadPart
from tussock.jobs.sources.char_padding import pad_column
from tussock.jobs.sources.errors import OnlySparkReadsError, PinnedReadError
from tussock.jobs.sources.file_chunks import OUTPUT, OUTPUT_DDL
from tussock.jobs.sources.file_documents import document_of
from tussock.jobs.sources.file_options import MISSING
from tussock.jobs.sources.kept import map_in_threads
from tussock.jobs.sources.lake_files import errors_of_item, is_small_rewrite
from tussock.jobs.sources.listing import open_file, server_options, split_bucket
from tussock.jobs.sources.pairing import pick_column
from tussock.jobs.sources.parquet import ParquetFiles, Split, cut_splits, read_split, split_size
from tussock.jobs.sources.parquet_footer import reason_of_file
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.plain_values import NotPlain
from tussock.jobs.sources.row_ids import position_of
from tussock.jobs.sources.snapshot_cuts import SnapshotCut, pieces_between_cuts
from tussock.jobs.sources.variants import canonical_variants
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import TussockError
from tussock.statestore.nested import relabel_column
from tussock.statestore.objectstore.base import ObjectNotFoundError
from tussock.statestore.types import arrow_type, holds_variant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Positions = npt.NDArray[np.int64]
_INSERTS = pa.array(["insert", "update_postimage"])


class PinnedVersions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The versions of a table that an epoch reads: rows of `last`, or the changes of `after` + 1 to `last`."""

    place: str  # the table's folder
    table: str  # its id
    last: int
    nbytes: int  # of the files to read
    after: int | None = None  # None: the rows between `start` and `end`
    start: SnapshotCut | None = None  # None: from the begin
    end: SnapshotCut | None = None  # None: to the end
    cost: int = 0  # bytes that an epoch counts for them; 0: `nbytes`
    only: tuple[str, ...] = ()  # during a read by Spark: the files that it reads


class DeltaPart(msgspec.Struct, frozen=True):
    """The unit of reading for an actor: some row groups of a file."""

    item: str  # its name in the barrier
    table: str  # the table's id
    split: Split
    piece: Piece
    columns: tuple[Mapped, ...]  # of the version that wrote the file


_REMOVER = "VACUUM or by hand"

versions_of = decoder_of(PinnedVersions).decode
_part = decoder_of(DeltaPart)


class DeltaEngine(EngineReader):
    """Reads the files of Delta tables in actors, split at row groups. `pin` decides which of them Spark reads."""

    def divide(self, source: CreateSource, document: msgspec.Raw, division: Division) -> DividedInput:
        """See EngineReader. Large files come first.

        A snapshot that a new view reads has no record in the barrier, so the footers decide again.

        Cost: the log of the pinned versions, one HEAD request per file, and the footers that this process has not read.
        """
        pinned, place = versions_of(document), place_of_table(source)
        item = item_of_versions(pinned).name
        columns, pieces = pinned_pieces(place, pinned)
        target = split_size(sum(p.size for p in pieces), division.units)

        def cut(piece: Piece) -> list[DeltaPart] | tuple[str, str]:
            file = file_of(place, source, item, piece)
            fields = _stored_fields(source, columns, range(len(source.fields)), piece)
            reason = division.by_spark.get(file.path) or reason_of_file(file, fields, _reading(source))
            if reason is not None:
                return file.path, reason
            with errors_of_item(item, _REMOVER):
                return [
                    DeltaPart(item, pinned.table, split, piece, columns)
                    for split in cut_splits(file, fields, target, _reading(source), piece.rows)
                ]

        parts, left = list[DeltaPart](), dict[str, str]()
        for one in map_in_threads(cut, pieces):
            if isinstance(one, tuple):
                left[one[0]] = one[1]
            else:
                parts += one
        parts.sort(key=lambda p: (-p.split.file.size, p.split.file.path, p.split.first_row))
        rest = msgspec.structs.replace(pinned, only=tuple(sorted(left)))
        why = next((f"{path}: {reason}" for path, reason in sorted(left.items())), "")
        encoded = [msgspec.Raw(msgspec.json.encode(p)) for p in parts]
        together = is_small_rewrite((p.weights for p in pieces), sum(p.size for p in pieces))
        return DividedInput(encoded, msgspec.Raw(msgspec.json.encode(rest)) if left else None, why, together)

    def item_of(self, part: msgspec.Raw) -> str:
        return _part.decode(part).item

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        of = _part.decode(part)
        fields = _fields_to_read(source, of, columns)
        try:
            with errors_of_item(of.item, _REMOVER):
                rows = read_split(of.split, range(len(fields)), fields, _reading(source)).rows
                return ReadPart(_chunk_of(source, of, columns, rows))
        except NotPlain as err:
            raise OnlySparkReadsError(source.name, of.split.file.path, str(err)) from err


def pinned_pieces(place: DeltaPlace, pinned: PinnedVersions) -> tuple[tuple[Mapped, ...], list[Piece]]:
    """Return the column mapping of the pinned versions and the pieces to read. Raises PinnedReadError."""
    item = item_of_versions(pinned).name
    if (snapshot := place.read_snapshot(pinned.last)) is None or snapshot.id != pinned.table:
        raise PinnedReadError(
            item,
            f"version {pinned.last} of the Delta table {place.root} is gone: "
            "its log was cleaned up, or it was dropped.",
        )
    if pinned.after is None:
        return snapshot.columns, pieces_between_cuts(snapshot.list_pieces(), pinned.start, pinned.end)
    commits = commits_after(place, pinned.after, pinned.last)
    for n, commit in enumerate(commits):
        if commit is None:
            raise PinnedReadError(item, f"{place.root}/{LOG}/{pinned.after + 1 + n:020}.json is gone.")
    return snapshot.columns, sum_commits([c for c in commits if c is not None])


def file_of(place: DeltaPlace, source: CreateSource, item: str, piece: Piece) -> PinnedFile:
    """Return a file of the table as it is now. Raises PinnedReadError. Cost: one HEAD request."""
    path = place.file_path(piece.path)
    store, name = open_file(path, source.options)
    try:
        info = store.head(name)
        return PinnedFile(path, info.size, info.etag, 0)
    except ObjectNotFoundError as err:
        raise PinnedReadError(item, f"file {path} is gone, removed by {_REMOVER}.") from err


def _fields_to_read(source: CreateSource, part: DeltaPart, columns: Sequence[int]) -> tuple[Field, ...]:
    """Return the columns of a part's file that these declared columns need."""
    return _stored_fields(source, part.columns, _columns_of_file(source, part, columns), part.piece)


def _columns_of_file(source: CreateSource, part: DeltaPart, columns: Sequence[int]) -> list[int]:
    stored = {c.name.lower(): c for c in part.columns}
    return [c for c in columns if not stored[source.fields[c].name.lower()].is_partition]


def _chunk_of(source: CreateSource, part: DeltaPart, columns: Sequence[int], rows: pa.Table) -> pa.Table:
    """Return a part's rows as a chunk.

    Args:
        rows: those of `_fields_to_read`, then `_row_id`.
    """
    piece, place = part.piece, place_of_table(source)
    stored = {c.name.lower(): c for c in part.columns}
    from_file = _columns_of_file(source, part, columns)
    positions = position_of(rows.column(len(from_file) + (not piece.weights)).to_numpy())
    if piece.weights:
        weights = np.zeros(rows.num_rows, np.int64)
        for weight, version in piece.weights:
            weights += weight * _there(place, part.table, piece.path, version, positions)
    else:
        weights = np.where(pc.is_in(rows.column(len(from_file)), _INSERTS).to_numpy(), 1, -1)
    if piece.rows is not None:  # Spark reads the whole file
        first, after = piece.rows
        weights[positions < first] = 0
        if after is not None:
            weights[positions >= after] = 0
    declared = [arrow_type(field.type) for field in source.fields]
    values: dict[int, pa.ChunkedArray] = {
        c: relabel_column(rows.column(i), declared[c]) for i, c in enumerate(from_file)
    }
    for c in columns:
        if c not in values:
            column = stored[source.fields[c].name.lower()]
            if piece.partition is None:
                raise LookupError(f"the log contains no partition values for the removed file {piece.path}")
            text = piece.partition.get(column.stored, piece.partition.get(column.name))
            values[c] = partition_column(text, arrow_type(column.type), declared[c], rows.num_rows)
        if (column := stored[source.fields[c].name.lower()]).char_note:
            values[c] = pad_column(values[c], column.char_note, arrow_type(column.type))
        if holds_variant(declared[c]):
            chunks = [pick_column(chunk, declared[c], canonical_variants) for chunk in values[c].chunks]
            values[c] = relabel_column(pa.chunked_array(chunks, chunks[0].type if chunks else declared[c]), declared[c])
    chunk = make_chunk([values[c] for c in columns], pa.array(weights))
    return chunk if weights.all() else chunk.filter(pc.not_equal(chunk[WEIGHT], 0))


def _there(place: DeltaPlace, table: str, path: str, version: int | None, positions: Positions) -> Positions:
    """Return 1 for each row of a file that is live under its deletion vector at a version, else 0.

    Raises LookupError.
    """
    live = np.ones(len(positions), np.int64)
    if version is None:
        return live
    mask = mask_at(place, table, version, path)
    inside = positions < len(mask)
    live[inside] = mask[positions[inside]]
    return live


def _stored_fields(
    source: CreateSource, columns: Sequence[Mapped], wanted: Sequence[int], piece: Piece
) -> tuple[Field, ...]:
    """Return the columns to read from a file, by their names in it.

    Partition columns are not in the file. Files of a change feed also have a column with the kind of change.
    """
    stored = {c.name.lower(): c for c in columns}
    fields = [(source.fields[c], stored[source.fields[c].name.lower()]) for c in wanted]
    stored_fields = tuple(Field(s.stored, s.stored_as(field.type)) for field, s in fields if not s.is_partition)
    return stored_fields if piece.weights else (*stored_fields, Field(CHANGE_TYPE, "string"))


def place_of_table(source: CreateSource) -> DeltaPlace:
    path = source.options["path"]
    bucket, name = split_bucket(path)
    return DeltaPlace(bucket, name, server_options(path, source.options), other_tables(source))


def other_tables(source: CreateSource) -> tuple[str, ...]:
    """Return the folders of other tables, whose files the table may name."""
    return tuple(folder.strip() for folder in source.options.get(CLONE_OF, "").split(",") if folder.strip())


def _reading(source: CreateSource) -> Mapping[str, str]:
    """Return the options for the Parquet reader: a column added after a file was written is NULL in the file's rows."""
    return {**server_options(source.options["path"], source.options), MISSING: "null"}


def files_of_pieces(
    place: DeltaPlace, source: CreateSource, pieces: Sequence[Piece]
) -> tuple[list[PinnedFile], list[str]]:
    """Return the files of pieces, and the paths of those that are gone. Cost: one HEAD request each, 16 at a time."""

    def look_up(piece: Piece) -> PinnedFile | str:
        try:
            return file_of(place, source, "", piece)
        except PinnedReadError:
            return place.file_path(piece.path)

    files = map_in_threads(look_up, pieces)
    return [f for f in files if isinstance(f, PinnedFile)], [f for f in files if isinstance(f, str)]


def reasons_of_files(
    source: CreateSource, columns: Sequence[Mapped], pieces: Sequence[Piece], files: Sequence[PinnedFile]
) -> dict[str, str]:
    """Return why Spark reads files of the table, by path. Cost: one footer each, 16 at a time."""

    def reason(both: tuple[Piece, PinnedFile]) -> str | None:
        piece, file = both
        fields = _stored_fields(source, columns, range(len(source.fields)), piece)
        return reason_of_file(file, fields, _reading(source))

    reasons = map_in_threads(reason, list(zip(pieces, files, strict=True)))
    return {file.path: why for file, why in zip(files, reasons, strict=True) if why is not None}


# --- the files that Spark reads ---------------------------------------------------------------------------------------


def rest_by_spark(
    spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
) -> "DataFrame":
    """Return the files in `only` as rows of OUTPUT_DDL, with the chunks of an actor. Raises PinnedReadError.

    Spark reads each as a file of a Parquet source with the stored columns.
    """
    item, alike = item_of_versions(versions_of(document)).name, dict[tuple[Field, ...], list[DeltaPart]]()
    for part in _parts_by_spark(source, document):
        alike.setdefault(_fields_to_read(source, part, columns), []).append(part)
    frames = []
    with errors_of_item(item, _REMOVER):
        for fields, parts in alike.items():
            files = document_of([part.split.file for part in parts])
            frame = ParquetFiles().frame(spark, _as_parquet(source, fields), files, range(len(fields)))
            by_number = {part.split.file.number: part for part in parts}
            frames.append(frame.mapInArrow(_rows_of_table(source, by_number, tuple(columns)), OUTPUT_DDL))
    return reduce(lambda before, more: before.unionAll(more), frames)


def _rows_of_table(
    source: CreateSource, parts: Mapping[int, DeltaPart], columns: tuple[int, ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the step that turns the rows of files into rows of the table."""

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                part, failure = parts[row["part"]], row["failure"]
                try:
                    with errors_of_item(part.item, _REMOVER):
                        if failure is not None:
                            raise first_failure([failure])
                        rows = decode_tables([row["chunk"]])
                        for chunk in encode_table(_chunk_of(source, part, columns, rows)):
                            yield pa.record_batch([[row["part"]], [memoryview(chunk)], [None]], schema=OUTPUT)
                except TussockError as err:
                    failed = encode_failure(err, source.name, 0)
                    yield pa.record_batch([[row["part"]], [None], [failed]], schema=OUTPUT)

    return convert


def translated_error(error: Exception, source: CreateSource, document: msgspec.Raw) -> TussockError | None:
    """Return the error of the pinned item for an error that Spark raised over `rest_by_spark`; None for others."""
    files = document_of([part.split.file for part in _parts_by_spark(source, document)])
    try:
        with errors_of_item(item_of_versions(versions_of(document)).name, _REMOVER):
            if (file_error := ParquetFiles().translate(error, _as_parquet(source, ()), files)) is not None:
                raise file_error
    except TussockError as err:
        return err
    return None


def _parts_by_spark(source: CreateSource, document: msgspec.Raw) -> list[DeltaPart]:
    """Return the files in `only`, each as one part with a number of its own. Cost: the log, a HEAD request per file."""
    pinned, place = versions_of(document), place_of_table(source)
    item, (columns, pieces) = item_of_versions(pinned).name, pinned_pieces(place, pinned)
    mine = [piece for piece in pieces if place.file_path(piece.path) in pinned.only]
    files = [msgspec.structs.replace(file_of(place, source, item, piece), number=n) for n, piece in enumerate(mine)]
    return [DeltaPart(item, pinned.table, Split(file), piece, columns) for file, piece in zip(files, mine, strict=True)]


def _as_parquet(source: CreateSource, fields: Sequence[Field]) -> CreateSource:
    """Return the source of Parquet files that has a table's files."""
    return CreateSource(source.name, "parquet", tuple(fields), {"path": source.options["path"], **_reading(source)})


def _item_name(place: str, first: int) -> str:
    return f"{place} from version {first}"


def item_of_versions(pinned: PinnedVersions) -> Item:
    """Return the pinned thing by the name that users see. A held one is tried again once the table has changed."""
    name = _item_name(pinned.place, 0 if pinned.after is None else pinned.after + 1)
    return Item(name, pinned.nbytes, f"{pinned.table} {pinned.last}", cost=pinned.cost)
