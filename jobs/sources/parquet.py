"""Parquet files, read by actors: split at row groups, only the needed columns, exactly the declared types.

Columns, and struct fields at any depth, are found by name, ignoring case, as in Spark. `pairing.py` defines which types
read as the declared ones. Any other type is a SchemaMismatchError, even if Spark would wrap values silently (int read
as smallint). A missing declared column or field is an error too, unless the source has the option `missing 'null'`:
then it is NULL in all rows of that file, as in Spark. A time with digits below the microsecond is a TooFineTimeError. A
column of the type "always null" reads as any type.

If the source quarantines, all columns are checked, not only the wanted ones. Wider integers and decimals are then read,
and rows with a value that does not fit become rejects, as do rows with strings that are not UTF-8.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quoted
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import ReadPart
from tussock.jobs.sources.boundary import boundary
from tussock.jobs.sources.errors import BadOptionError, SchemaMismatchError, TooFineTimeError, UnreadableFileError
from tussock.jobs.sources.far_int96 import far_years_as_spark
from tussock.jobs.sources.file_portions import FileRecords
from tussock.jobs.sources.files import MISSING, OWN_OPTIONS, FileSource, files_of
from tussock.jobs.sources.fine_times import holds_nanoseconds, too_fine
from tussock.jobs.sources.kept import hadoop_options
from tussock.jobs.sources.legacy_calendar import MODES, OPTIONS, legacy_zones, rebased
from tussock.jobs.sources.listing import open_file
from tussock.jobs.sources.measures import measure_parquet
from tussock.jobs.sources.narrowing import narrowed, narrows, not_fitting
from tussock.jobs.sources.pairing import misfit, picked, undeclared_fields
from tussock.jobs.sources.parquet_file import OpenedFile, opened_file
from tussock.jobs.sources.parquet_schema import parquet_fields
from tussock.jobs.sources.pins import PinnedFile, RangeFile, open_pinned, verify_pin
from tussock.jobs.sources.rejects import (
    ON_ERROR,
    QUARANTINE,
    chunk_of,
    first_reasons,
    marked,
    not_text,
    parted,
    quarantines,
    reason_where,
)
from tussock.jobs.sources.row_ids import ROW_ID_NAME, pack
from tussock.jobs.sources.text import as_text, bad_texts, require_text
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import TussockError, did_you_mean
from tussock.statestore.nested import is_nested, rebuilt, relabelled
from tussock.statestore.types import arrow_type, type_name
from tussock.statestore.vnode import one_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLIT_BYTES = 64 << 20
_OPTIONS = (*OWN_OPTIONS, "timeZone")
_MOST_PIECES = 4  # of a row group: each piece decodes the rows before it too
MIN_SPLIT_BYTES = 1 << 20  # for smaller parts, opening the file costs more than reading it


class Split(msgspec.Struct, frozen=True):
    """The part of a file that one actor reads.

    Args:
        row_groups: None for the whole file.
        first_row: position of its first row in the file.
        skipped: number of rows of `row_groups` before its first row.
        rows: number of its rows; None: all others of `row_groups`.
    """

    file: PinnedFile
    row_groups: tuple[int, ...] | None = None
    first_row: int = 0
    skipped: int = 0
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class SplitRows:
    """The rows of a split, and the undeclared columns of its file, each as `name type`."""

    rows: pa.Table
    undeclared: tuple[str, ...]


_split = decoder_of(Split)


class ParquetFiles(FileSource):
    """Parquet files, split for actors at row groups, and within large ones."""

    needs_spark: ClassVar[Literal[False]] = False
    missing_columns: ClassVar[tuple[str, ...]] = ("error", "null")
    why_missing: ClassVar[str] = (
        "expected 'error' (hold a file that lacks a declared column) or 'null' (the column is NULL in its rows)"
    )

    def hidden(self, source: CreateSource) -> tuple[HiddenColumn, ...]:
        return tuple(HiddenColumn)

    def check(self, source: CreateSource) -> None:
        super().check(source)
        for option, value in source.options.items():
            if option.lower() in OPTIONS and value.upper() not in MODES:
                raise BadOptionError(source.name, option, value, f"expected {' or '.join(MODES)}")
            if option not in _OPTIONS and option.lower() not in OPTIONS:
                names = (*_OPTIONS, *OPTIONS.values())
                known = ", ".join(names)
                raise BadOptionError(
                    source.name,
                    option,
                    value,
                    f"a parquet source has no such option.{did_you_mean(option, names)} Its options are {known}",
                )

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        """Return the declared columns, or those in the footer of the first file."""
        first = self.first_file(source)
        if source.fields:
            return source.fields
        file = self.require_file(source, first)
        store, name = open_file(file.path, source.options)
        with pa.PythonFile(RangeFile(store, name, file.size), mode="r") as opened:
            return parquet_fields(opened, file.path)

    def measure(self, source: CreateSource, file: PinnedFile) -> FileRecords:
        """See FileSource."""
        return measure_parquet(file, source.options)

    def parts(self, source: CreateSource, document: msgspec.Raw, units: int) -> Sequence[msgspec.Raw]:
        """See ActorReader. Large files come first.

        Files above the split size are cut. The size shrinks until every unit gets a part. Cost: the footer of each file
        that is cut.
        """
        files = files_of(document)
        share = sum(f.size if f.portions is None else f.cost for f in files) // units
        target = max(MIN_SPLIT_BYTES, min(SPLIT_BYTES, share))
        found: list[Split] = []
        for f in files:
            with boundary(source, f.path):
                found += splits(f, source.fields[: source.width_of(f.number)], target, source.options)
        found.sort(key=lambda s: (-s.file.size, s.file.number, s.first_row))
        return [msgspec.Raw(msgspec.json.encode(s)) for s in found]

    def item_of(self, part: msgspec.Raw) -> str:
        return _split.decode(part).file.path

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        split = _split.decode(part)
        found = read_split(split, columns, source.fields, source.options, source.width_of(split.file.number))
        return parted(chunk_of(found.rows, split.file.weight), found.undeclared)

    def by_spark(
        self, session: "SparkSession", source: CreateSource, document: msgspec.Raw, hidden: Sequence[HiddenColumn] = ()
    ) -> "DataFrame":
        from tussock.jobs.sources.spark_files import read_by_spark

        options = {k: v for k, v in source.options.items() if k.lower() in OPTIONS}
        files = files_of(document)
        if not quarantines(source):
            return read_by_spark(session, "parquet", options, source, files, hidden=hidden)
        return reduce(
            lambda before, after: before.unionAll(after),
            [_fitting_rows(session, source, options, file, hidden) for file in files],
        )


def _fitting_rows(
    session: "SparkSession",
    source: CreateSource,
    options: Mapping[str, str],
    file: PinnedFile,
    hidden: Sequence[HiddenColumn],
) -> "DataFrame":
    """Read one file with Spark, without its rejects: records with values that do not fit the declared types.

    Each file is read separately, because files differ in their types.
    """
    from pyspark.sql.types import NumericType

    from tussock.jobs.sources.spark_files import is_text, rows_of_portion, with_facts
    from tussock.jobs.sources.spark_paths import spark_paths_of

    verify_pin(file, source.options)
    addresses = spark_paths_of(session, [file], source.options)
    frame = session.read.format("parquet").options(**{**options, **hadoop_options([file])}).load(addresses)
    found = {field.name.lower(): field for field in frame.schema}
    columns, fitting = [], []
    for i, declared in enumerate(source.fields):
        field = found.get(declared.name.lower()) if i < source.width_of(file.number) else None
        if field is None:
            columns.append(f"CAST(NULL AS {declared.type}) AS {quoted(declared.name)}")
            continue
        name = quoted(field.name)
        cast = name if field.dataType.simpleString() == declared.type else f"try_cast({name} AS {declared.type})"
        columns.append(f"{cast} AS {quoted(declared.name)}")
        if cast != name and isinstance(field.dataType, NumericType):
            fitting.append(f"({name} IS NULL OR coalesce({cast} = {name}, false))")
        if text := is_text(name, field.dataType):
            fitting.append(text)
    rows = rows_of_portion(with_facts(session, frame, [file], addresses, hidden), file)
    return (rows.where(" AND ".join(fitting)) if fitting else rows).selectExpr(
        *columns, *(quoted(c.column) for c in hidden)
    )


def splits(file: PinnedFile, fields: Sequence[Field], target_bytes: int, options: Mapping[str, str]) -> list[Split]:
    """Cut a file into parts of about `target_bytes` (compressed, all columns).

    A part has at least one row group, or up to _MOST_PIECES parts share a larger one. Many writers put a whole file
    into one row group, which a single unit would read while the others wait.

    Raises: ChangedFileError, UnreadableFileError, SchemaMismatchError.

    Cost: nothing for a file within the target; otherwise one HEAD request and one read of the footer.
    """
    if file.size <= target_bytes and file.portions is None:
        return [Split(file)]
    verify_pin(file, options)
    with _open(file, options) as opened:
        meta = opened.file.metadata
        _require_columns(file, opened.schema, fields, range(len(fields)), options)
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        sizes = [sum(g.column(c).total_compressed_size for c in range(g.num_columns)) for g in groups]
        starts = np.concatenate([[0], np.cumsum([g.num_rows for g in groups])])
    if file.portions is not None:
        return _splits_of_portion(file, starts.tolist(), min(_MOST_PIECES, -(-file.cost // target_bytes)))
    parts: list[list[int]] = []
    filled = target_bytes
    for i, size in enumerate(sizes):
        if filled >= target_bytes:
            parts.append([])
            filled = 0
        parts[-1].append(i)
        filled += size
    found: list[Split] = []
    for part in parts:
        rows, first = groups[part[0]].num_rows, int(starts[part[0]])
        pieces = min(_MOST_PIECES, rows, -(-sizes[part[0]] // target_bytes)) if len(part) == 1 else 1
        if pieces < 2:
            found.append(Split(file, tuple(part), first))
            continue
        cuts = [rows * piece // pieces for piece in range(pieces + 1)]
        found += [Split(file, tuple(part), first + cut, cut, end - cut) for cut, end in pairwise(cuts)]
    return found


def _splits_of_portion(file: PinnedFile, starts: Sequence[int], parts: int) -> list[Split]:
    """Cut a portion of a file into about `parts` parts, each within one row group.

    Args:
        starts: the first row of each row group, and the number of all rows.
    """
    first, count = file.first_record, file.record_count
    end = starts[-1] if count is None else min(first + count, starts[-1])
    found = []
    for group, (start, after) in enumerate(pairwise(starts)):
        low, high = max(first, start), min(end, after)
        if low < high:
            share = max(1, -(-parts * (high - low) // max(end - first, 1)))
            cuts = [low + (high - low) * part // share for part in range(share + 1)]
            found += [Split(file, (group,), a, a - start, b - a) for a, b in pairwise(cuts) if a < b]
    return found


def read_split(
    split: Split, columns: Sequence[int], fields: Sequence[Field], options: Mapping[str, str], width: int | None = None
) -> SplitRows:
    """Read a split's rows.

    Args:
        split: from `splits`, or `Split(file)` for a whole file.
        columns: indices into `fields` of the columns to read, in output order.
        fields: all columns that the source declares.
        options: the source's options; they locate an S3 path.
        width: the number of fields to read from this file; the others are NULL. None: all.

    Returns: the columns, named and typed as declared, then `_row_id` (row_ids.py), then REJECT if the split has
        rejects.

    Raises:
        ChangedFileError: size or ETag differ from the pin, before or after the read.
        SchemaMismatchError: a column is missing or reads as another type.
        UnreadableFileError: not a Parquet file, cut short or damaged.

    Cost: two HEAD requests, the footer, and one coalesced read of the columns' chunks. Memory: the decoded columns.
    """
    file, quarantine, reasons = split.file, options.get(ON_ERROR) == QUARANTINE, list[pa.Array | None]()
    verify_pin(file, options)
    with _open(file, options) as opened:
        schema, reader = opened.schema, opened.file
        wanted = tuple(columns)
        is_wanted = frozenset(wanted).__contains__
        width = len(fields) if width is None else width
        judged = (*wanted, *(c for c in range(width) if quarantine and not is_wanted(c)))
        names = iter(_require_columns(file, schema, fields, [c for c in judged if c < width], options))
        there = ((next(names) if c < width else None, c) for c in judged)
        found = [(name, c) for name, c in there if is_wanted(c) or _may_be_bad(schema, name, fields[c].type, options)]
        groups = list(range(reader.metadata.num_row_groups)) if split.row_groups is None else list(split.row_groups)
        rows = split.rows
        if rows is None:
            rows = sum(reader.metadata.row_group(g).num_rows for g in groups) - split.skipped
        try:
            table = opened.read(groups, [n for n, _ in found if n is not None], split.skipped, split.rows)
            legacy = legacy_zones(reader.metadata.metadata, options)
            int96 = {
                c.path
                for c in (reader.schema.column(i) for i in range(len(reader.schema)))
                if c.physical_type == "INT96"
            }
            typed = []
            for name, c in found:
                if name is None:
                    typed.append(pa.chunked_array([pa.nulls(rows, arrow_type(fields[c].type))]))
                    continue
                zone = legacy.int96 if name in int96 else legacy.datetime
                column, field = table[name], fields[c]
                if name in int96:
                    column = far_years_as_spark(column, partial(_in_seconds, split, options, groups, name))
                if quarantine and not _reads_as(column.type, field.type, options):
                    values, bad = narrowed(column, arrow_type(field.type))
                    typed.append(values)
                    reasons.append(not_fitting(field.name, column, field.type, bad))
                    continue
                if is_nested(column.type):
                    chunks = [picked(chunk, arrow_type(field.type)) for chunk in column.chunks]
                    column = pa.chunked_array(chunks) if chunks else pa.chunked_array([], arrow_type(field.type))
                if "timestamp" in field.type and holds_nanoseconds(column.type) and (fine := too_fine(column)).any():
                    if not quarantine:
                        raise TooFineTimeError(
                            file.path, split.first_row + 1 + int(fine.argmax()), field.name, field.type
                        )
                    reasons.append(
                        reason_where(fine, f"column {field.name!r}: a time has digits below the microsecond")
                    )
                typed.append(_as_declared(column, field.type, zone))
                if "string" in field.type and not quarantine:
                    require_text(file.path, field.name, typed[-1], split.first_row + 1)
                elif "string" in field.type and (bad := bad_texts(typed[-1])).any():
                    reasons.append(reason_where(bad, not_text(field.name)))
        except (pa.ArrowException, OSError) as err:
            raise _unreadable(file, err, options) from err
    verify_pin(file, options)
    positions = np.arange(split.first_row, split.first_row + rows, dtype=np.int64)
    row_ids = pack(file.number, positions)
    declared = {field.name.lower(): field.type for field in fields}
    table = pa.Table.from_arrays(
        [*typed[: len(wanted)], row_ids], names=[*(fields[c].name for c in wanted), ROW_ID_NAME]
    )
    table = marked(table, file, split.first_row, first_reasons(*reasons))
    undeclared = [f"{f.name} {f.type}" for f in schema if f.name.lower() not in declared]
    inner = (
        undeclared_fields(schema.field(name).type, arrow_type(fields[c].type), name)
        for name, c in found
        if name is not None
    )
    return SplitRows(table, (*undeclared, *(field for fields_of_one in inner for field in fields_of_one)))


def _in_seconds(split: Split, options: Mapping[str, str], groups: Sequence[int], name: str) -> pa.ChunkedArray:
    """Read an INT96 column in seconds."""
    with _open(split.file, options, "s") as opened:
        return opened.read(groups, [name], split.skipped, split.rows)[name]


@contextmanager
def _open(file: PinnedFile, options: Mapping[str, str], int96_unit: str = "us") -> Iterator[OpenedFile]:
    store, name = open_pinned(file, options)
    try:
        source = (
            pa.OSFile(local)
            if (local := file.local_path)
            else pa.PythonFile(RangeFile(store, name, file.size), mode="r")
        )
        opened = opened_file(
            source, pre_buffer=True, coerce_int96_timestamp_unit=int96_unit, arrow_extensions_enabled=False
        )
    except (pa.ArrowException, OSError) as err:
        raise _unreadable(file, err, options) from err
    with opened.file:
        yield opened


def _unreadable(file: PinnedFile, err: Exception, options: Mapping[str, str]) -> TussockError:
    """Return the error of a failed read: an unavailable store or a damaged file. Raises ChangedFileError."""
    verify_pin(file, options)
    return err if isinstance(err, TussockError) else UnreadableFileError(file.path, "parquet", str(err).split("\n")[0])


def _require_columns(
    file: PinnedFile, schema: pa.Schema, fields: Sequence[Field], columns: Sequence[int], options: Mapping[str, str]
) -> list[str | None]:
    """Return the file's name of each wanted column; None for a missing column, if the source allows that.

    Raises SchemaMismatchError.
    """
    found: list[str | None] = []
    by_name = fields_by_name(schema)
    for declared in (fields[c] for c in columns):
        same = by_name.get(declared.name.lower(), [])
        if not same and options.get(MISSING) == "null":
            found.append(None)
            continue
        if len(same) != 1:
            there = "no such column" if not same else "several columns of this name"
            raise SchemaMismatchError(
                file.path, declared.name, f"{there} (the file has {', '.join(schema.names)})", declared.type
            )
        one_by_one = options.get(ON_ERROR) == QUARANTINE and narrows(same[0].type, arrow_type(declared.type))
        place = misfit(same[0].type, arrow_type(declared.type), declared.name, may_lack=options.get(MISSING) == "null")
        if place is not None and not one_by_one:
            raise SchemaMismatchError(
                file.path, *(place if is_nested(same[0].type) else (declared.name, place.found, declared.type))
            )
        found.append(same[0].name)
    return found


def fields_by_name(schema: pa.Schema) -> dict[str, list[pa.Field]]:
    """Group the columns of a file by lower-case name. Names may differ only in case."""
    found: dict[str, list[pa.Field]] = {}
    for field in schema:
        found.setdefault(field.name.lower(), []).append(field)
    return found


def _may_be_bad(schema: pa.Schema, name: str | None, declared: str, options: Mapping[str, str]) -> bool:
    """Return whether some values of a file's column may not fit the declared type."""
    if name is None:
        return False
    kind = schema.field(name).type
    return "string" in declared or holds_nanoseconds(kind) or not _reads_as(kind, declared, options)


def _reads_as(found: pa.DataType, declared: str, options: Mapping[str, str]) -> bool:
    return misfit(found, arrow_type(declared), "", may_lack=options.get(MISSING) == "null") is None


def _as_declared(column: pa.ChunkedArray, declared: str, legacy_zone: str | None) -> pa.ChunkedArray:
    """Convert a column to exactly the declared type. The caller checks strings and digits below the microsecond."""
    target = arrow_type(declared)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(column), target)], target)
    if is_nested(target):
        return pa.chunked_array([_nested_as_declared(chunk, target, legacy_zone) for chunk in column.chunks], target)
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns" and target != pa.int64():
        column = pc.floor_temporal(column, unit="microsecond")
    if pa.types.is_timestamp(column.type) and column.type.tz not in (None, "UTC"):
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    if legacy_zone is not None and pa.types.is_date(column.type):
        column = rebased(column, legacy_zone)
    if pa.types.is_string(target):
        column = as_text(column)
    elif pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    column = relabelled(column, target)
    if legacy_zone is not None and declared == "timestamp":  # Spark leaves local times, which have no zone
        column = rebased(column, legacy_zone)
    return column


def _nested_as_declared(array: pa.Array, target: pa.DataType, legacy_zone: str | None) -> pa.Array:
    def leaf(values: pa.Array, kind: pa.DataType) -> pa.Array:
        return one_array(_as_declared(pa.chunked_array([values]), type_name(kind), legacy_zone))

    return rebuilt(array, target, leaf)
