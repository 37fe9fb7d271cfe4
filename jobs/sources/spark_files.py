"""Files through Spark's own reader, with the user's options: what a file means is what Spark says it means.

This is the first stage of level 0. Each file is read by one task from its first byte to its last, so that a record's position in
its file is known and the same in every attempt; the task's Python side numbers the records and packs them into chunks:

    part int         number of the file (PinnedFile.number)
    chunk binary     Arrow IPC stream: the wanted columns as declared, `_row_id`, weights (jobs/flow/chunk.py); NULL where `failure` is set
    failure binary   an error that stops the epoch (tussock.jobs.flow.failure); a retry would meet it again, so the task does not fail

Texts are read in PERMISSIVE mode with a corrupt-record column, and any record that lands there is an error: that is FAILFAST, but it
knows the record's place and text. Where the source quarantines, it is a reject (jobs/sources/rejects.py). All declared columns are always
parsed: whether a record is bad never depends on which views exist.
"""

import csv
import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import unquote
from xml.etree import ElementTree

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.flow.chunk import encode
from tussock.jobs.flow.failure import encode_failure
from tussock.jobs.logical.months import as_carried
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quoted
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.sources.boundary import boundary
from tussock.jobs.sources.errors import (
    BadOptionError,
    BadRowError,
    MissingSparkModuleError,
    UndeclaredColumnsError,
    UnreadableFileError,
)
from tussock.jobs.sources.files import OWN_OPTIONS, FileSource, files_of
from tussock.jobs.sources.kept import hadoop_options, place_of_bytes
from tussock.jobs.sources.listing import server_options
from tussock.jobs.sources.parquet_schema import UnreadableSchemaError
from tussock.jobs.sources.pins import PinnedFile, verify_pin
from tussock.jobs.sources.rejects import chunk_of, first_reasons, marked, not_text, quarantines, reason_where
from tussock.jobs.sources.row_ids import ROW_ID_NAME, pack
from tussock.jobs.sources.text import bad_texts, require_text, with_shown_bytes
from tussock.jobs.spark.type_names import name_of_type
from tussock.statestore.errors import TussockError
from tussock.statestore.nested import relabelled
from tussock.statestore.types import arrow_type

if TYPE_CHECKING:  # Spark is imported by those who have a session
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

CHUNK_ROWS = 1 << 16
OUTPUT_DDL = "part int, chunk binary, failure binary"
_OUTPUT = pa.schema([("part", pa.int32()), ("chunk", pa.binary()), ("failure", pa.binary())])
_CORRUPT = "_tussock_corrupt_record"
_REFUSED = {
    "ignorecorruptfiles": "a file is never passed over silently",
    "ignoremissingfiles": "a file is never passed over silently",
    "pathglobfilter": "which files are read is decided by the path alone",
    "modifiedbefore": "which files are read is decided by the path alone",
    "modifiedafter": "which files are read is decided by the path alone",
}
# what Spark's JSON reader takes and its own list of options lacks
_UNLISTED = ("maxNestingDepth", "maxNumLen", "maxStringLen")
_INHERITED = (
    "spark.sql.ansi.enabled",
    "spark.sql.timeType.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy",
)
_PLAIN = frozenset({"boolean", "int", "bigint", "double", "string", "date", "timestamp", "timestamp_ntz"})
TIME_ZONE = "timeZone"  # the option of Spark's readers of text: the zone of times without an offset
_SHOWN_CHARACTERS = 200


class SparkFiles(FileSource):
    """Files that Spark's reader of the data source `format` reads. A file is read whole by one task."""

    needs_spark: ClassVar[Literal[True]] = True
    missing_columns: ClassVar[tuple[str, ...]] = ("null",)
    why_missing: ClassVar[str] = (
        "expected 'null': Spark's reader has a column that a file lacks as NULL, and so has this source anyway"
    )
    format: ClassVar[str]
    options_class: ClassVar[str]  # Spark's class that lists the format's options, below org.apache.spark.sql
    corrupt_records: ClassVar[bool] = (
        False  # whether Spark can put a record that does not parse into a column of its own
    )
    raw_column: ClassVar[int | None] = None  # the column that is the whole record as it stands in the file, if one is

    def check(self, source: CreateSource) -> None:
        super().check(source)
        for option, value in source.options.items():
            if option.lower() == "mode" and value.upper() != "FAILFAST":
                raise BadOptionError(
                    source.name, option, value, "a record that does not parse always stops the epoch (FAILFAST)"
                )
            if (reason := _REFUSED.get(option.lower())) is not None:
                raise BadOptionError(source.name, option, value, reason)

    def require_known_options(self, source: CreateSource, spark: "SparkSession") -> None:
        """Spark passes over an option that it does not know, so that a mistyped one would change what is read. Raises BadOptionError."""
        listed: Any = getattr(spark._jvm, f"org.apache.spark.sql.{self.options_class}")
        known = [*OWN_OPTIONS, *str(listed.getAllOptions().mkString(",")).split(","), *_UNLISTED]
        folded = {name.lower(): name for name in known}
        for option, value in source.options.items():
            if option.lower() not in folded and not option.startswith("fs."):  # Hadoop's settings
                near = [folded[n] for n in difflib.get_close_matches(option.lower(), folded, n=3)] or sorted(
                    known, key=str.lower
                )
                reason = f"a {self.format} source has no such option; those {'like it' if len(near) < 4 else 'it has'}: {', '.join(near)}"
                raise BadOptionError(source.name, option, value, reason)

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        """Rows of pinned files as chunks, OUTPUT_DDL; see the module. One task per file, or per few small files; chunks of a file come in
        order.

        Args:
            spark: a session in the store's time zone.

        Raises: ChangedFileError when a pin does not hold; errors of the action on the result are translated by `translate`.

        Cost: a HEAD per file here, one more after its rows; reading is lazy.
        """
        files = files_of(document)
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda f: verify_pin(f, source.options), files))
        session = _session_of(spark, max(f.size for f in files))
        from tussock.jobs.spark.session import zone_of

        zone = zone_of(spark)
        alike: dict[tuple[int, str], list[PinnedFile]] = {}
        for file in files:
            alike.setdefault((source.width_of(file.number), source.zone_of(file.number, zone)), []).append(file)
        frames = [self._read(session, source, key, tuple(some), tuple(columns)) for key, some in sorted(alike.items())]
        return _handed_over(reduce(lambda before, more: before.unionAll(more), frames), spark)

    def _read(
        self,
        session: "SparkSession",
        source: CreateSource,
        alike: tuple[int, str],
        files: tuple[PinnedFile, ...],
        columns: tuple[int, ...],
    ) -> "DataFrame":
        """Files that are read by their first columns, the others NULL, with times in one zone. `alike`: (how many columns, the zone)."""
        from pyspark.sql.functions import expr

        width, time_zone = alike
        fields = [(f.name, f.type) for f in source.fields[:width]]
        if self.corrupt_records:
            fields.append((_CORRUPT, "string"))
        declared = ", ".join(f"{quoted(name)} {kind}" for name, kind in fields)
        options = self.reader_options(source)
        if self.corrupt_records and TIME_ZONE.lower() not in {option.lower() for option in options}:
            options[TIME_ZONE] = time_zone
        read = self.load(session, options, files, declared)
        path = read.metadataColumn("_metadata")["file_path"].alias("_tussock_path")
        texts = ((quoted(name), as_carried(quoted(name), kind)) for name, kind in fields)
        values = (read[name] if text == name else expr(text) for name, text in texts)
        # mapInArrow finds the columns by their names without quotes, so a name with a dot would fail.
        rows = read.select(*(value.alias(f"c{n}") for n, value in enumerate(values)), path)
        return rows.mapInArrow(_packer(files, source, width, columns, self), OUTPUT_DDL)

    def require_types(self, file: PinnedFile, fields: Sequence[Field], options: Mapping[str, str]) -> None:
        """In a task: refuse a file of which Spark's reader would change values silently, by its own types. Raises SchemaMismatchError."""

    def load(
        self,
        session: "SparkSession",
        options: Mapping[str, str],
        files: Sequence[PinnedFile],
        declared: str | None = None,
    ) -> "DataFrame":
        """The rows of pinned files, by the declared columns or by those that Spark infers."""
        reader = session.read.format(self.format).options(**{**options, **hadoop_options(files)})
        typed = reader if declared is None else reader.schema(declared)
        return typed.load([_spark_path(place_of_bytes(f)) for f in files])

    def by_spark(self, session: "SparkSession", source: CreateSource, document: msgspec.Raw) -> "DataFrame":
        """Records that do not parse raise, and are left out where the source puts them aside."""
        apart = self.corrupt_records and quarantines(source)
        options = self.reader_options(source)
        if self.corrupt_records and not apart:
            options = {k: v for k, v in options.items() if k != "columnNameOfCorruptRecord"} | {"mode": "FAILFAST"}
        more = [(_CORRUPT, "string")] if apart else []
        return read_by_spark(
            session, self.format, options, source, files_of(document), more, whole_records=self.corrupt_records
        )

    def reader_options(self, source: CreateSource) -> dict[str, str]:
        """What Spark's reader is given."""
        kept = {k: v for k, v in source.options.items() if k not in OWN_OPTIONS}
        server = server_options(source.options["path"], source.options)
        if "endpoint" in server:  # Hadoop reads its own settings among a reader's options
            kept |= {
                "fs.s3a.endpoint": server["endpoint"],
                "fs.s3a.path.style.access": server.get("path_style", "true"),
            }
        return kept | ({"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT} if self.corrupt_records else {})

    def translate(self, error: Exception, source: CreateSource, document: msgspec.Raw) -> TussockError | None:
        """ChangedFileError or UnreadableFileError naming the file. None where the error names none of the files."""
        if not isinstance(error, spark_errors()):
            return None
        text = unquote(str(error))
        for file in sorted(
            files_of(document), key=lambda f: -len(place_of_bytes(f))
        ):  # one's path may begin like another's
            if place_of_bytes(file).removeprefix("s3://") in text:
                try:
                    verify_pin(file, source.options)
                except TussockError as changed:
                    return changed
                return UnreadableFileError(file.path, source.format, cause_of(error))
        return None


def read_by_spark(
    session: "SparkSession",
    format: str,
    options: Mapping[str, str],
    source: CreateSource,
    files: Sequence[PinnedFile],
    more: Sequence[tuple[str, str]] = (),
    *,
    whole_records: bool = False,
) -> "DataFrame":
    """Pinned files by Spark's reader alone, as a table with the source's columns.

    Args:
        more: columns that mark records to be left out: those in which one of them is not NULL.
        whole_records: all columns are parsed, whatever is selected: else what Spark calls a bad record depends on that.

    Raises: ChangedFileError. Cost: a HEAD per file; reading is lazy.
    """
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda f: verify_pin(f, source.options), files))
    by_width: dict[int, list[PinnedFile]] = {}
    for file in files:
        by_width.setdefault(source.width_of(file.number), []).append(file)
    frames = []
    for width, some in sorted(by_width.items()):
        declared = ", ".join(
            f"{quoted(name)} {kind}" for name, kind in [*((f.name, f.type) for f in source.fields[:width]), *more]
        )
        reader = session.read.format(format).options(**{**options, **hadoop_options(some)}).schema(declared)
        frame = reader.load([_spark_path(place_of_bytes(f)) for f in some])
        frame = _handed_over(frame, session) if whole_records else frame
        if quarantines(source):
            texts = [
                is_text(quoted(f.name), field.dataType) for f, field in zip(source.fields, frame.schema, strict=False)
            ]
            kept = [f"{quoted(name)} IS NULL" for name, _ in more] + [text for text in texts if text]
            frame = frame.where(" AND ".join(kept)) if kept else frame
        missing = (f"CAST(NULL AS {f.type}) AS {quoted(f.name)}" for f in source.fields[width:])
        frames.append(frame.selectExpr(*(quoted(f.name) for f in source.fields[:width]), *missing))
    return reduce(lambda before, after: before.unionAll(after), frames)


def is_text(text: str, kind: "DataType", depth: int = 0) -> str:
    """The SQL condition that all strings of a value are UTF-8; empty if it holds no strings."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    x, parts = f"s{depth}", list[str]()
    match kind:
        case StringType():
            return f"coalesce(is_valid_utf8({text}), true)"
        case ArrayType():
            inner = is_text(x, kind.elementType, depth + 1)
            parts = [f"coalesce(forall({text}, {x} -> {inner}), true)"] if inner else []
        case MapType():
            of = (("keys", kind.keyType), ("values", kind.valueType))
            found = ((side, is_text(x, of_side, depth + 1)) for side, of_side in of)
            parts = [f"coalesce(forall(map_{side}({text}), {x} -> {inner}), true)" for side, inner in found if inner]
        case StructType():
            parts = [inner for f in kind if (inner := is_text(f"{text}.{quoted(f.name)}", f.dataType, depth))]
    return " AND ".join(parts)


class SparkTexts(SparkFiles):
    """Text formats: their files do not say their columns, and a record may not parse."""

    corrupt_records: ClassVar[bool] = True

    def sample(self, source: CreateSource, value: str) -> str:
        """A record with this text in each column, as one file of the source could hold it."""
        raise NotImplementedError

    def require_good_values(self, source: CreateSource, spark: "SparkSession") -> None:
        """Refuse what Spark refuses of an option's value, before a file is there that would be blamed for it. Raises BadOptionError.

        Cost: a job over one record; where it fails, one for each option.
        """
        plain = [f for f in source.fields if f.type in _PLAIN] or [
            Field("value", "string")
        ]  # other types may not be of the format
        source = msgspec.structs.replace(source, fields=tuple(plain))
        if (refused := self._refusal(source, spark)) is None:
            return
        for option in source.options:
            rest = {name: value for name, value in source.options.items() if name != option}
            if (
                option not in OWN_OPTIONS
                and self._refusal(msgspec.structs.replace(source, options=rest), spark) is None
            ):
                raise BadOptionError(source.name, option, source.options[option], f"Spark refuses it: {refused}")
        raise BadOptionError(
            source.name, "OPTIONS", ", ".join(source.options), f"Spark refuses them together: {refused}"
        )

    def _refusal(self, source: CreateSource, spark: "SparkSession") -> str | None:
        """What Spark says against the options when it reads a record with them; None if it reads one."""
        jvm: Any = spark._jvm
        # no parser of dates, an older one neither, takes this text; so what is refused is refused for the options alone
        # (two records: one may be a header)
        records = spark._jsparkSession.createDataset(
            [self.sample(source, "\u2603")] * 2, jvm.org.apache.spark.sql.Encoders.STRING()
        )
        declared = ", ".join(f"{quoted(f.name)} {f.type}" for f in source.fields)
        try:
            reader: Any = spark.read.options(**self.reader_options(source)).schema(declared)._jreader
            getattr(reader, self.format)(records).collectToPython()
        except spark_errors() as err:
            return cause_of(err)
        return None

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        if not source.fields:
            raise UndeclaredColumnsError(source.name, source.format)
        self.require_known_options(source, spark())
        self.require_good_values(source, spark())
        self.first_file(source)
        return source.fields


class SparkTypedFiles(SparkFiles):
    """Formats whose files say their columns."""

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        self.require_known_options(source, spark())
        first = self.first_file(source)
        if source.fields:
            return source.fields
        file = self.require_file(source, first)
        try:
            found = (
                spark()
                .read.format(self.format)
                .options(**self.reader_options(source))
                .load(_spark_path(file.path))
                ._jdf.schema()
            )
        except spark_errors() as err:
            raise UnreadableSchemaError(file.path, self.format, cause_of(err)) from err
        return tuple(Field(f.name(), name_of_type(f.dataType())) for f in found.fields())


def _session_of(spark: "SparkSession", largest: int) -> "SparkSession":
    """A session of its own whose scans never split a file of up to `largest` bytes; small files share tasks as usual."""
    from tussock.jobs.spark.session import sql_session, zone_of

    session = sql_session(spark, zone_of(spark), {name: str(spark.conf.get(name)) for name in _INHERITED})
    whole = str(max(largest, 4 << 20) + 1)
    session.conf.set("spark.sql.files.maxPartitionBytes", str(max(int(whole), 128 << 20)))
    session.conf.set("spark.sql.files.openCostInBytes", whole)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(CHUNK_ROWS))
    session.conf.set("spark.sql.csv.parser.columnPruning.enabled", "false")
    session.conf.set("spark.sql.files.ignoreCorruptFiles", "false")
    session.conf.set("spark.sql.files.ignoreMissingFiles", "false")
    return session


def require_module(source: CreateSource, spark: "SparkSession", package: str) -> None:
    """Raises MissingSparkModuleError where the session was started without Spark's module for a source's format. `package`: its name in
    Maven, without the version, which is Spark's."""
    jvm = spark._jvm
    assert jvm is not None
    found = getattr(jvm, "org.apache.spark.sql.execution.datasources.DataSource")
    try:
        found.lookupDataSource(source.format, spark._jsparkSession.sessionState().conf())
    except spark_errors() as err:
        raise MissingSparkModuleError(source.name, source.format, f"{package}:{spark.version}") from err


def spark_errors() -> tuple[type[Exception], ...]:
    """What a call of Spark may raise."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return Py4JJavaError, PySparkException


def _handed_over(frame: "DataFrame", spark: "SparkSession") -> "DataFrame":
    """The frame in another session, planned with the settings of its own: an epoch's session wants tiny Arrow batches, for cells, where
    this one wants large ones, for rows. It is the way Spark itself hands a micro-batch to foreachBatch."""
    from pyspark.sql import DataFrame

    java = frame._jdf
    inner = spark._jsparkSession.internalCreateDataFrame(java.queryExecution().toRdd(), java.schema(), False)
    return DataFrame(inner, spark)


def _spark_path(path: str) -> str:
    """A file's path as Spark wants it: s3a for S3, its own wildcards escaped."""
    literal = "".join("\\" + c if c in "*?[]{}\\" else c for c in path)
    return "s3a://" + literal.removeprefix("s3://") if path.startswith("s3://") else "file://" + literal


def _pinned_path(spark_path: str) -> str:
    """The path a PinnedFile has, from `_metadata.file_path` (an encoded URI)."""
    scheme, _, rest = spark_path.partition(":")
    return "s3:" + unquote(rest) if scheme == "s3a" else "/" + unquote(rest).lstrip("/")


_Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _packer(
    files: tuple[PinnedFile, ...], source: CreateSource, width: int, columns: tuple[int, ...], reader: SparkFiles
) -> _Stage:
    """The Python side: record batches of one task's files, file after file, into rows of OUTPUT_DDL."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        by_path = {place_of_bytes(f): f for f in files}
        current: _FileChunks | None = None
        for batch in batches:
            for path, rows in _by_file(batch):
                file = by_path[_pinned_path(path)]
                if current is None or current.file != file:
                    if current is not None:
                        yield from current.guarded(current.finish())
                    current = _FileChunks(file, source, width, columns, reader.raw_column)
                    yield from current.guarded(current.start(reader))
                yield from current.guarded(current.add(rows))
        if current is not None:
            yield from current.guarded(current.finish())

    return pack


def _by_file(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """A batch cut where its last column, the file's path, changes."""
    runs = pc.run_end_encode(batch.column(batch.num_columns - 1))
    start = 0
    for path, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield path, batch.slice(start, end - start)
        start = end


class _FileChunks:
    """Numbers one file's records and packs them into chunks; after a record that does not parse, the file yields nothing more."""

    def __init__(
        self, file: PinnedFile, source: CreateSource, width: int, columns: tuple[int, ...], raw_column: int | None
    ) -> None:
        self.file, self._raw_column = file, raw_column
        self._source, self._columns, self._read = source, columns, source.fields[:width]
        self._fields: tuple[Field, ...] = tuple(source.fields[c] for c in columns)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._position = 0
        self._failed = False
        self._quarantines = quarantines(source)
        self._declared = ", ".join(f"{f.name} {f.type}" for f in self._read)

    def guarded(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What a step yields; any exception in it is a failure of the file."""
        try:
            with boundary(self._source, self.file.path):
                yield from rows
        except TussockError as error:
            yield self._fail(error)

    def start(self, reader: SparkFiles) -> Iterator[pa.RecordBatch]:
        """Judge the file before its rows."""
        reader.require_types(self.file, self._read, self._source.options)
        yield from ()

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take the file's next records; yields chunks that are full."""
        if self._failed:
            return
        reasons = self._reasons(rows) if self._quarantines else None
        if not self._quarantines and (error := self._error(rows)) is not None:
            yield self._fail(error)
            return
        positions = np.arange(self._position, self._position + rows.num_rows, dtype=np.int64)
        typed = [self._typed(rows, c, arrow_type(f.type)) for c, f in zip(self._columns, self._fields, strict=True)]
        table = pa.table(
            [*typed, pack(self.file.number, positions)], names=[*(f"c{i}" for i in range(len(typed))), ROW_ID_NAME]
        )
        self._waiting.append(
            marked(table, self.file.path, self._position, reasons, None if reasons is None else self._raw(rows))
        )
        self._position += rows.num_rows
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= CHUNK_ROWS:
            yield from self._emit()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """What is left, and the check that the file is still the pinned one."""
        if self._failed:
            return
        verify_pin(self.file, self._source.options)
        if self._waiting:
            yield from self._emit()

    def _emit(self) -> Iterator[pa.RecordBatch]:
        table = pa.concat_tables(
            self._waiting, promote_options="default"
        )  # those without rejects have no column for them
        self._waiting, self._waiting_rows = [], 0
        for chunk in encode(chunk_of(table, self.file.weight)):
            yield self._row(memoryview(chunk), None)

    def _fail(self, error: TussockError) -> pa.RecordBatch:
        self._failed = True
        return self._row(None, encode_failure(error, self._source.name, 0))

    def _row(self, chunk: memoryview | None, failure: bytes | None) -> pa.RecordBatch:
        return pa.record_batch([[self.file.number], [chunk], [failure]], schema=_OUTPUT)

    def _typed(self, rows: pa.RecordBatch, column: int, kind: pa.DataType) -> pa.Array:
        return _as_declared(rows.column(column), kind) if column < len(self._read) else pa.nulls(rows.num_rows, kind)

    def _corrupt(self, rows: pa.RecordBatch) -> pa.Array | None:
        """The records that do not parse, NULL for the others; None where all do, or no such thing is known of the format."""
        if rows.num_columns == len(self._read) + 1:  # it would stand between the declared columns and the path
            return None
        corrupt = rows.column(len(self._read))
        return None if corrupt.null_count == len(corrupt) else corrupt

    def _error(self, rows: pa.RecordBatch) -> TussockError | None:
        """What is wrong with the first record that cannot be read."""
        if (corrupt := self._corrupt(rows)) is not None:
            return self._bad_row(corrupt, rows)
        try:
            for c, field in enumerate(self._read):
                if "string" in field.type:
                    require_text(self.file.path, field.name, pa.chunked_array([rows.column(c)]), self._position + 1)
        except TussockError as error:
            return error
        return None

    def _reasons(self, rows: pa.RecordBatch) -> pa.Array | None:
        """(rows,) why a record cannot be read; NULL of those that can, None where all can."""
        found: list[pa.Array | None] = []
        if (corrupt := self._corrupt(rows)) is not None:
            found.append(
                reason_where(corrupt.is_valid().to_numpy(zero_copy_only=False), f"does not parse as ({self._declared})")
            )
        for c, field in enumerate(self._read):
            if "string" in field.type and (bad := bad_texts(rows.column(c))).any():
                found.append(reason_where(bad, not_text(field.name)))
        return first_reasons(*found)

    def _raw(self, rows: pa.RecordBatch) -> pa.Array | None:
        """(rows,) the records that cannot be read, as they are in the file; NULL where that is not known."""
        raw = self._corrupt(rows) if self._raw_column is None else rows.column(self._raw_column)
        return None if raw is None else with_shown_bytes(raw)

    def _bad_row(self, corrupt: pa.Array, rows: pa.RecordBatch) -> BadRowError:
        first = pc.index(corrupt.is_valid(), True).as_py()
        text = corrupt[first].as_buffer().to_pybytes().decode(errors="backslashreplace")
        shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
        reason = f"the declared columns are ({self._declared})"
        if (bad := self._bad_value(text, rows, first)) is not None:
            field, value = bad
            reason = f"column {field.name!r} holds {value[:_SHOWN_CHARACTERS]!r}, expected {field.type}; {reason}"
        return BadRowError(self.file.path, self._position + first + 1, shown, reason)

    def _bad_value(self, text: str, rows: pa.RecordBatch, row: int) -> tuple[Field, str] | None:
        """The first column that Spark has as NULL although the record has a text for it, and that text; None if that is not known."""
        texts = raw_values(self._source, text, self._read)
        for c, field in enumerate(self._read):
            if (value := texts.get(c)) and not rows.column(c)[row].is_valid:
                return field, value
        return None


def raw_values(source: CreateSource, text: str, fields: Sequence[Field]) -> dict[int, str]:
    """The texts of a record's values by column, as far as a simple look at the record tells; for error messages alone."""
    if source.format == "json":
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        values = {name.lower(): value for name, value in record.items()} if isinstance(record, dict) else {}
        found = ((c, values.get(field.name.lower())) for c, field in enumerate(fields))
        return {c: value if isinstance(value, str) else json.dumps(value) for c, value in found if value is not None}
    if source.format == "csv":
        given = {option.lower(): value for option, value in source.options.items()}
        separator = given.get("sep", given.get("delimiter", ","))
        if len(separator) != 1:
            return {}
        try:
            parsed = next(csv.reader([text], delimiter=separator), [])
        except (csv.Error, ValueError):
            return {}
        return dict(enumerate(parsed)) if len(parsed) == len(fields) else {}
    if source.format == "xml":
        return _of_element(text, fields)
    return {}


def _of_element(text: str, fields: Sequence[Field]) -> dict[int, str]:
    """The texts of an XML record's attributes and of its children without children, by column."""
    try:
        record = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        return {}
    values = {f"_{name}".lower(): value for name, value in record.attrib.items()}
    values |= {
        child.tag.rpartition("}")[2].lower(): child.text.strip()
        for child in record
        if len(child) == 0 and child.text is not None
    }
    found = ((c, values.get(field.name.lower())) for c, field in enumerate(fields))
    return {c: value for c, value in found if value}


def _as_declared(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return relabelled(_utc(column), kind)


def _utc(column: pa.Array) -> pa.Array:
    """Instants relabelled from the session's time zone to UTC; other columns as they are."""
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.timestamp(column.type.unit, "UTC"))
    return column
