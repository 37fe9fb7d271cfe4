"""Parquet files, read by actors: split at row groups, only the needed columns, exactly the declared types.

Spark reads the files that only its own reader turns into Spark's rows (parquet_footer.py).

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
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.sources.base import DividedInput, Division, EngineReader, ReadPart, TimeZones
from tussock.jobs.sources.boundary import errors_of_source
from tussock.jobs.sources.errors import (
    BadOptionError,
    LegacyZoneError,
    OnlySparkReadsError,
    SchemaMismatchError,
    TooFineTimeError,
    UnreadableFileError,
)
from tussock.jobs.sources.file_documents import divided_files, files_of, files_to_decide
from tussock.jobs.sources.file_options import MISSING, OWN_OPTIONS
from tussock.jobs.sources.file_portions import FileRecords
from tussock.jobs.sources.files import FileSource
from tussock.jobs.sources.fine_times import holds_nanoseconds, too_fine
from tussock.jobs.sources.kept import hadoop_options, map_in_threads
from tussock.jobs.sources.listing import open_file
from tussock.jobs.sources.measures import measure_parquet
from tussock.jobs.sources.narrowing import may_narrow, narrow_column, not_fitting
from tussock.jobs.sources.pairing import find_misfit, pick_column, undeclared_fields
from tussock.jobs.sources.parquet_footer import (
    MODES,
    OPTIONS,
    footer_of,
    is_of_optional_keys,
    needs_zone,
    opened_bytes,
    reason_of_file,
)
from tussock.jobs.sources.parquet_schema import UnreadableSchemaError, parquet_fields
from tussock.jobs.sources.pins import PinnedFile, verify_pin
from tussock.jobs.sources.plain_values import NotPlain
from tussock.jobs.sources.rejects import (
    ON_ERROR,
    QUARANTINE,
    chunk_of,
    first_reasons,
    mark_rejects,
    not_text,
    quarantines_rejects,
    reason_where,
    split_rejects,
)
from tussock.jobs.sources.row_ids import ROW_ID_NAME, pack_row_ids
from tussock.jobs.sources.spark_files import (
    SparkFiles,
    inferred_fields,
    is_text,
    read_by_spark,
    rows_of_portion,
    spark_errors,
    with_facts,
)
from tussock.jobs.sources.spark_paths import spark_paths_of
from tussock.jobs.sources.text import as_text, bad_texts, require_text
from tussock.jobs.spark.jvm_errors import is_of_machine
from tussock.jobs.spark.type_names import name_of_type
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import TussockError, did_you_mean
from tussock.statestore.nested import is_nested, rebuild_leaves, relabel_column
from tussock.statestore.objectstore.range_file import RangeFile
from tussock.statestore.types import arrow_type, type_name
from tussock.statestore.vnode import one_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLIT_BYTES = 64 << 20
_OPTIONS = (*OWN_OPTIONS, "timeZone")
_BATCH_ROWS = 1 << 16
_FAR_MICROS = 10_000_000_000_000_000  # from 1970: the year 2286
_MOST_PIECES = 4  # of a row group: each piece decodes the rows before it too
_MIN_SPLIT_BYTES = 1 << 20  # for smaller parts, opening the file costs more than reading it


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


def split_size(nbytes: int, units: int) -> int:
    """Return the size above which files are cut, so that every unit gets a part if the input is large enough."""
    return max(_MIN_SPLIT_BYTES, min(SPLIT_BYTES, nbytes // units))


class ParquetEngine(EngineReader):
    """Reads Parquet files in actors, split at row groups, and within large ones."""

    def reasons_for_spark(self, source: CreateSource, document: msgspec.Raw, zones: TimeZones) -> Mapping[str, str]:
        files = files_to_decide(document)
        reasons = map_in_threads(lambda file: _reason_for_spark(source.as_of(file.number), file), files)
        return {file.path: reason for file, reason in zip(files, reasons, strict=True) if reason is not None}

    def divide(self, source: CreateSource, document: msgspec.Raw, division: Division) -> DividedInput:
        """See EngineReader. Large files come first.

        Files above the split size are cut. The size shrinks until every unit gets a part. Cost: the footer of each file
        that is cut.
        """
        files, rest, why = divided_files(document, division.by_spark)
        target = split_size(sum(f.size if f.portions is None else f.cost for f in files), division.units)
        cut: list[Split] = []
        for f in files:
            as_of = source.as_of(f.number)
            with errors_of_source(source, f.path):
                cut += cut_splits(f, as_of.fields[: as_of.width_of(f.number)], target, as_of.options)
        cut.sort(key=lambda s: (-s.file.size, s.file.number, s.first_row))
        return DividedInput([msgspec.Raw(msgspec.json.encode(s)) for s in cut], rest, why)

    def item_of(self, part: msgspec.Raw) -> str:
        return _split.decode(part).file.path

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        split = _split.decode(part)
        as_of = source.as_of(split.file.number)
        try:
            read = read_split(split, columns, as_of.fields, as_of.options, as_of.width_of(split.file.number))
        except NotPlain as err:
            raise OnlySparkReadsError(source.name, split.file.path, str(err)) from err
        return split_rejects(chunk_of(read.rows, split.file.weight), read.undeclared)


def _reason_for_spark(source: CreateSource, file: PinnedFile) -> str | None:
    return reason_of_file(file, source.fields[: source.width_of(file.number)], source.options)


class ParquetFiles(SparkFiles):
    """Parquet files. Actors read them, except those that only Spark reads (parquet_footer.py)."""

    format: ClassVar[str] = "parquet"
    engine: EngineReader | None = ParquetEngine()
    options_class: ClassVar[str] = "execution.datasources.parquet.ParquetOptions"
    missing_columns: ClassVar[tuple[str, ...]] = ("error", "null")
    why_missing: ClassVar[str] = (
        "expected 'error' (hold a file that lacks a declared column) or 'null' (the column is NULL in its rows)"
    )

    def hidden(self, source: CreateSource) -> tuple[HiddenColumn, ...]:
        return tuple(HiddenColumn)

    def check(self, source: CreateSource) -> None:
        FileSource.check(self, source)
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
            try:
                return parquet_fields(opened, file.path)
            except UnreadableSchemaError as err:
                if not is_of_optional_keys(err):
                    raise
                return inferred_fields(self, source, file, spark())

    def measure(self, source: CreateSource, file: PinnedFile) -> FileRecords:
        return measure_parquet(file, source.options)

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        """See SparkFiles; also raises SchemaMismatchError and LegacyZoneError. Cost: two footers per file."""
        map_in_threads(lambda file: self._require_types(spark, source, file), files_of(document))
        return super().frame(spark, source, document, columns)

    def _require_types(self, spark: "SparkSession", source: CreateSource, file: PinnedFile) -> None:
        """Require the types of a file to read as the declared ones, as Spark sees them: it wraps some values silently.

        Wider types are not read value by value, as the engine does if the source quarantines.
        """
        fields = source.fields[: source.width_of(file.number)]
        verify_pin(file, source.options)
        require_zone(spark, source, file, fields)
        addresses = spark_paths_of(spark, [file], source.options)
        try:
            java = self.load_files(spark, self.reader_options(source), [file], addresses)._jdf.schema()
            declared = {field.name.lower() for field in fields}
            schema = pa.schema(
                (f.name(), arrow_type(name_of_type(f.dataType())))
                for f in java.fields()
                if f.name().lower() in declared
            )
        except spark_errors() as err:
            if is_of_machine(err):
                raise
            raise UnreadableFileError(file.path, self.format, cause_of(err)) from err
        options = {name: value for name, value in source.options.items() if name != ON_ERROR}
        _require_columns(file, schema, fields, range(len(fields)), options)

    def by_spark(
        self, session: "SparkSession", source: CreateSource, document: msgspec.Raw, hidden: Sequence[HiddenColumn] = ()
    ) -> "DataFrame":
        options = {k: v for k, v in source.options.items() if k.lower() in OPTIONS}
        files = files_of(document)
        if not quarantines_rejects(source):
            return read_by_spark(session, "parquet", options, source, files, hidden=hidden)
        return reduce(
            lambda before, after: before.unionAll(after),
            [_fitting_rows(session, source, options, file, hidden) for file in files],
        )


def require_zone(spark: "SparkSession", source: CreateSource, file: PinnedFile, fields: Sequence[Field]) -> None:
    """Require that Spark's Java has the time zone of a file's legacy times, if the file does not name one.

    Raises LegacyZoneError.
    """
    if not needs_zone(file, fields, source.options):
        return
    wanted, jvm = source.options.get("timeZone", "UTC"), cast(Any, spark._jvm)
    zone = jvm.java.util.TimeZone.getDefault()
    if not zone.hasSameRules(jvm.java.util.TimeZone.getTimeZone(wanted)):
        raise LegacyZoneError(source.name, file.path, wanted, str(zone.getID()))


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

    verify_pin(file, source.options)
    addresses = spark_paths_of(session, [file], source.options)
    frame = session.read.format("parquet").options(**{**options, **hadoop_options([file])}).load(addresses)
    field_by_name = {field.name.lower(): field for field in frame.schema}
    columns, fitting = [], []
    for i, declared in enumerate(source.fields):
        field = field_by_name.get(declared.name.lower()) if i < source.width_of(file.number) else None
        if field is None:
            columns.append(f"CAST(NULL AS {declared.type}) AS {quote_name(declared.name)}")
            continue
        name = quote_name(field.name)
        cast = name if field.dataType.simpleString() == declared.type else f"try_cast({name} AS {declared.type})"
        columns.append(f"{cast} AS {quote_name(declared.name)}")
        if cast != name and isinstance(field.dataType, NumericType):
            fitting.append(f"({name} IS NULL OR coalesce({cast} = {name}, false))")
        if text := is_text(name, field.dataType):
            fitting.append(text)
    rows = rows_of_portion(with_facts(session, frame, [file], addresses, hidden), file)
    return (rows.where(" AND ".join(fitting)) if fitting else rows).selectExpr(
        *columns, *(quote_name(c.column) for c in hidden)
    )


def cut_splits(
    file: PinnedFile,
    fields: Sequence[Field],
    target_bytes: int,
    options: Mapping[str, str],
    rows: tuple[int, int | None] | None = None,
) -> list[Split]:
    """Cut a file into parts of about `target_bytes` (compressed, all columns).

    A part has at least one row group, or up to _MOST_PIECES parts share a larger one. Many writers put a whole file
    into one row group, which a single unit would read while the others wait.

    Args:
        rows: the first row to read, and the row after the last one (None: all). None: those of the file's portion.

    Raises: ChangedFileError, UnreadableFileError, SchemaMismatchError.

    Cost: nothing for a file within the target; otherwise one HEAD request and one read of the footer.
    """
    if rows is None and file.portions is not None:
        records = file.record_count
        rows = file.first_record, None if records is None else file.first_record + records
    if file.size <= target_bytes and rows is None:
        return [Split(file)]
    verify_pin(file, options)
    with _open_file(file, options) as opened:
        meta = opened.metadata
        _require_columns(file, opened.schema_arrow, fields, range(len(fields)), options)
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        sizes = [sum(g.column(c).total_compressed_size for c in range(g.num_columns)) for g in groups]
        starts = np.concatenate([[0], np.cumsum([g.num_rows for g in groups])])
    if rows is not None:
        first, after = rows
        share = min(_MOST_PIECES, -(-(file.cost or file.size) // target_bytes))
        return _splits_of_rows(file, starts.tolist(), share, first, after)
    parts: list[list[int]] = []
    filled = target_bytes
    for i, size in enumerate(sizes):
        if filled >= target_bytes:
            parts.append([])
            filled = 0
        parts[-1].append(i)
        filled += size
    splits: list[Split] = []
    for part in parts:
        count, low = groups[part[0]].num_rows, int(starts[part[0]])
        pieces = min(_MOST_PIECES, count, -(-sizes[part[0]] // target_bytes)) if len(part) == 1 else 1
        if pieces < 2:
            splits.append(Split(file, tuple(part), low))
            continue
        cuts = [count * piece // pieces for piece in range(pieces + 1)]
        splits += [Split(file, tuple(part), low + cut, cut, end - cut) for cut, end in pairwise(cuts)]
    return splits


def _splits_of_rows(file: PinnedFile, starts: Sequence[int], parts: int, first: int, after: int | None) -> list[Split]:
    """Cut some rows of a file into about `parts` parts, each within one row group.

    Args:
        starts: the first row of each row group, and the number of all rows.
        first, after: the first row, and the row after the last one (None: all).
    """
    end = starts[-1] if after is None else min(after, starts[-1])
    splits = []
    for group, (start, next_start) in enumerate(pairwise(starts)):
        low, high = max(first, start), min(end, next_start)
        if low < high:
            share = max(1, -(-parts * (high - low) // max(end - first, 1)))
            cuts = [low + (high - low) * part // share for part in range(share + 1)]
            splits += [Split(file, (group,), a, a - start, b - a) for a, b in pairwise(cuts) if a < b]
    return splits


class _DeclaredColumns:
    """Turns columns of a split into the declared types. Collects why records are rejects, if they are quarantined."""

    def __init__(self, split: Split, options: Mapping[str, str]) -> None:
        self._split, self._options = split, options
        self._quarantines = options.get(ON_ERROR) == QUARANTINE
        self.reasons: list[pa.Array | None] = []

    def read_as(self, field: Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a column as declared. Raises SchemaMismatchError, TooFineTimeError, BadTextError."""
        if self._quarantines and not _reads_as(column.type, field.type, self._options):
            values, bad = narrow_column(column, arrow_type(field.type))
            self.reasons.append(not_fitting(field.name, column, field.type, bad))
            return values
        if is_nested(column.type):
            chunks = [pick_column(chunk, arrow_type(field.type)) for chunk in column.chunks]
            column = pa.chunked_array(chunks) if chunks else pa.chunked_array([], arrow_type(field.type))
        if "timestamp" in field.type and holds_nanoseconds(column.type):
            self._judge_times(field, too_fine(column))
        values = _as_declared(column, field.type)
        if "string" in field.type:
            self._judge_texts(field, values)
        return values

    def make_missing(self, field: Field, rows: int) -> pa.ChunkedArray:
        """Return NULLs for a column that the file lacks."""
        return pa.chunked_array([pa.nulls(rows, arrow_type(field.type))])

    def _judge_times(self, field: Field, fine: npt.NDArray[np.bool_]) -> None:
        if not fine.any():
            return
        if not self._quarantines:
            record = self._split.first_row + 1 + int(fine.argmax())
            raise TooFineTimeError(self._split.file.path, record, field.name, field.type)
        self.reasons.append(reason_where(fine, f"column {field.name!r}: a time has digits below the microsecond"))

    def _judge_texts(self, field: Field, values: pa.ChunkedArray) -> None:
        if not self._quarantines:
            require_text(self._split.file.path, field.name, values, self._split.first_row + 1)
        elif (bad := bad_texts(values)).any():
            self.reasons.append(reason_where(bad, not_text(field.name)))


def read_split(
    split: Split, columns: Sequence[int], fields: Sequence[Field], options: Mapping[str, str], width: int | None = None
) -> SplitRows:
    """Read a split's rows.

    Args:
        split: from `cut_splits`, or `Split(file)` for a whole file.
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
        NotPlain: only Spark reads the file.

    Cost: two HEAD requests, the footer, and one coalesced read of the columns' chunks. Memory: the decoded columns.
    """
    file, declared_columns = split.file, _DeclaredColumns(split, options)
    verify_pin(file, options)
    with _open_file(file, options) as reader:
        schema = reader.schema_arrow
        columns_to_read = _columns_to_read(
            file, schema, columns, fields, options, len(fields) if width is None else width
        )
        groups = list(range(reader.metadata.num_row_groups)) if split.row_groups is None else list(split.row_groups)
        rows = split.rows
        if rows is None:
            rows = sum(reader.metadata.row_group(g).num_rows for g in groups) - split.skipped
        try:
            names = [name for name, _ in columns_to_read if name is not None]
            table = _read_rows(reader, groups, names, split.skipped, split.rows)
            _require_near_years(reader, table)
            typed = [
                declared_columns.make_missing(fields[c], rows)
                if name is None
                else declared_columns.read_as(fields[c], table[name])
                for name, c in columns_to_read
            ]
        except (pa.ArrowException, OSError) as err:
            raise _error_of_read(file, err, options) from err
    verify_pin(file, options)
    row_ids = pack_row_ids(file.number, np.arange(split.first_row, split.first_row + rows, dtype=np.int64))
    table = pa.Table.from_arrays(
        [*typed[: len(columns)], row_ids], names=[*(fields[c].name for c in columns), ROW_ID_NAME]
    )
    table = mark_rejects(table, file, split.first_row, first_reasons(*declared_columns.reasons))
    return SplitRows(table, tuple(_undeclared_columns(schema, columns_to_read, fields)))


def _columns_to_read(
    file: PinnedFile,
    schema: pa.Schema,
    columns: Sequence[int],
    fields: Sequence[Field],
    options: Mapping[str, str],
    width: int,
) -> list[tuple[str | None, int]]:
    """Return the wanted columns, and those that may make a record a reject, each with its name in the file or None."""
    is_wanted, quarantines = frozenset(columns).__contains__, options.get(ON_ERROR) == QUARANTINE
    judged = (*columns, *(c for c in range(width) if quarantines and not is_wanted(c)))
    names = iter(_require_columns(file, schema, fields, [c for c in judged if c < width], options))
    there = ((next(names) if c < width else None, c) for c in judged)
    return [(name, c) for name, c in there if is_wanted(c) or _may_be_bad(schema, name, fields[c].type, options)]


def _undeclared_columns(
    schema: pa.Schema, columns: Sequence[tuple[str | None, int]], fields: Sequence[Field]
) -> Iterator[str]:
    """Yield the columns of the file that the source does not declare, and such fields of the columns that are read."""
    declared = {field.name.lower() for field in fields}
    yield from (f"{f.name} {f.type}" for f in schema if f.name.lower() not in declared)
    for name, c in columns:
        if name is not None:
            yield from undeclared_fields(schema.field(name).type, arrow_type(fields[c].type), name)


def _require_near_years(reader: pq.ParquetFile, rows: pa.Table) -> None:
    """Require times of INT96 columns that Arrow reads as Spark does. Raises NotPlain.

    An INT96 contains a Julian day and the nanoseconds of that day. Spark counts days below zero, and overflows in far
    years. Arrow treats both parts as unsigned.
    """
    leaves = (reader.schema.column(i) for i in range(len(reader.schema)))
    int96 = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    for name in (name for name in rows.column_names if name in int96):
        bounds = pc.min_max(rows[name].cast(pa.int64())).as_py()
        if bounds["min"] is not None and max(-bounds["min"], bounds["max"]) > _FAR_MICROS:
            raise NotPlain(f"column {name!r} has times of far years in INT96")


@contextmanager
def _open_file(file: PinnedFile, options: Mapping[str, str]) -> Iterator[pq.ParquetFile]:
    try:
        opened = pq.ParquetFile(
            opened_bytes(file, options),
            metadata=footer_of(file, options),
            pre_buffer=True,
            coerce_int96_timestamp_unit="us",
            arrow_extensions_enabled=False,
        )
    except (pa.ArrowException, OSError) as err:
        raise _error_of_read(file, err, options) from err
    with opened:
        yield opened


def _read_rows(
    file: pq.ParquetFile, groups: Sequence[int], names: Sequence[str], first: int = 0, count: int | None = None
) -> pa.Table:
    """Read some columns of some row groups.

    Args:
        first, count: a non-empty range of the groups' rows, if there are columns; None: all from `first` on. Rows
            before it are decoded too.
    """
    if (count is None and not first) or not names:
        return file.read_row_groups(list(groups), columns=list(names), use_threads=False)
    # Rows before the first one are decoded too: no more of them at once than are wanted.
    most = _BATCH_ROWS if count is None else min(_BATCH_ROWS, count)
    batches = file.iter_batches(most, row_groups=list(groups), columns=list(names), use_threads=False)
    return pa.Table.from_batches(_rows_in_range(batches, first, count))


def _rows_in_range(batches: Iterator[pa.RecordBatch], first: int, count: int | None) -> Iterator[pa.RecordBatch]:
    """Yield a range of rows. Stops reading at its end."""
    for batch in batches:
        part = batch.slice(first, count)
        first = max(0, first - len(batch))
        if len(part):
            yield part
        if count is not None and (count := count - len(part)) == 0:
            return


def _error_of_read(file: PinnedFile, err: Exception, options: Mapping[str, str]) -> TussockError:
    """Return the error of a failed read: an unavailable store or a damaged file. Raises ChangedFileError."""
    verify_pin(file, options)
    return err if isinstance(err, TussockError) else UnreadableFileError(file.path, "parquet", str(err).split("\n")[0])


def _require_columns(
    file: PinnedFile, schema: pa.Schema, fields: Sequence[Field], columns: Sequence[int], options: Mapping[str, str]
) -> list[str | None]:
    """Return the file's name of each wanted column; None for a missing column, if the source allows that.

    Raises SchemaMismatchError.
    """
    column_names: list[str | None] = []
    by_name = fields_by_name(schema)
    for declared in (fields[c] for c in columns):
        same = by_name.get(declared.name.lower(), [])
        if not same and options.get(MISSING) == "null":
            column_names.append(None)
            continue
        if len(same) != 1:
            there = "no such column" if not same else "several columns of this name"
            raise SchemaMismatchError(
                file.path, declared.name, f"{there} (the file has {', '.join(schema.names)})", declared.type
            )
        one_by_one = options.get(ON_ERROR) == QUARANTINE and may_narrow(same[0].type, arrow_type(declared.type))
        place = find_misfit(
            same[0].type, arrow_type(declared.type), declared.name, may_lack=options.get(MISSING) == "null"
        )
        if place is not None and not one_by_one:
            raise SchemaMismatchError(
                file.path, *(place if is_nested(same[0].type) else (declared.name, place.finding, declared.type))
            )
        column_names.append(same[0].name)
    return column_names


def fields_by_name(schema: pa.Schema) -> dict[str, list[pa.Field]]:
    """Group the columns of a file by lower-case name. Names may differ only in case."""
    fields_by_lower_name: dict[str, list[pa.Field]] = {}
    for field in schema:
        fields_by_lower_name.setdefault(field.name.lower(), []).append(field)
    return fields_by_lower_name


def _may_be_bad(schema: pa.Schema, name: str | None, declared: str, options: Mapping[str, str]) -> bool:
    """Return whether some values of a file's column may not fit the declared type."""
    if name is None:
        return False
    kind = schema.field(name).type
    return "string" in declared or holds_nanoseconds(kind) or not _reads_as(kind, declared, options)


def _reads_as(file_type: pa.DataType, declared: str, options: Mapping[str, str]) -> bool:
    return find_misfit(file_type, arrow_type(declared), "", may_lack=options.get(MISSING) == "null") is None


def _as_declared(column: pa.ChunkedArray, declared: str) -> pa.ChunkedArray:
    """Convert a column to exactly the declared type. The caller checks strings and digits below the microsecond."""
    target = arrow_type(declared)
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(column), target)], target)
    if is_nested(target):
        return pa.chunked_array([_nested_as_declared(chunk, target) for chunk in column.chunks], target)
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns" and target != pa.int64():
        column = pc.floor_temporal(column, unit="microsecond")
    if pa.types.is_timestamp(column.type) and column.type.tz not in (None, "UTC"):
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    if pa.types.is_string(target):
        column = as_text(column)
    elif pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    return relabel_column(column, target)


def _nested_as_declared(array: pa.Array, target: pa.DataType) -> pa.Array:
    def convert_leaf(values: pa.Array, kind: pa.DataType) -> pa.Array:
        return one_array(_as_declared(pa.chunked_array([values]), type_name(kind)))

    return rebuild_leaves(array, target, convert_leaf)
