"""Read files with Spark's own reader and the user's options, so that they mean the same as in Spark.

This is the first stage of level 0. Its tasks return the records in chunks (jobs/sources/file_chunks.py).

Texts are read in PERMISSIVE mode with a corrupt-record column, and any record in that column is an error. This is
FAILFAST, with the record's place and text. If the source quarantines, the record becomes a reject
(jobs/sources/rejects.py). All declared columns are always parsed, so whether a record is bad never depends on the
existing views.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

import msgspec

from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.months import as_carried
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.settings.object_ticket import with_object_names
from tussock.jobs.sources.base import EngineReader
from tussock.jobs.sources.errors import (
    BadOptionError,
    MissingSparkModuleError,
    SchemaMismatchError,
    UndeclaredColumnsError,
    UnreadableFileError,
)
from tussock.jobs.sources.file_chunks import CHUNK_ROWS, OUTPUT_DDL, make_packer
from tussock.jobs.sources.file_documents import files_of
from tussock.jobs.sources.file_facts import fact_of_file, spark_uri
from tussock.jobs.sources.file_options import OWN_OPTIONS, spark_options
from tussock.jobs.sources.files import FileSource
from tussock.jobs.sources.kept import hadoop_options, map_in_threads, place_of_bytes
from tussock.jobs.sources.listing import ListedFile, open_file, server_options
from tussock.jobs.sources.parquet_schema import UnreadableSchemaError
from tussock.jobs.sources.pins import PinnedFile, verify_pin
from tussock.jobs.sources.rejects import quarantines_rejects
from tussock.jobs.sources.spark_paths import is_served, spark_path, spark_paths_of
from tussock.jobs.spark.type_names import name_of_type
from tussock.statestore.errors import TussockError

if TYPE_CHECKING:  # only processes with a session import Spark
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_CORRUPT = "_tussock_corrupt_record"
_PATH = "_tussock_path"
_POSITION = "_tussock_position"
_BATCH_BYTES = 64 << 20  # of rows that Spark passes to Python at once
_REFUSED = {
    "ignorecorruptfiles": "files are never skipped silently",
    "ignoremissingfiles": "files are never skipped silently",
    "pathglobfilter": "only the path selects files",
    "modifiedbefore": "only the path selects files",
    "modifiedafter": "only the path selects files",
}
_OF_FOLDERS = ("basepath",)  # an option of Spark's readers of every format; no source has it
# options of Spark's JSON reader that its own list of options lacks
_UNLISTED = ("maxNestingDepth", "maxNumLen", "maxStringLen")
_INHERITED = (
    "spark.sql.ansi.enabled",
    "spark.sql.timeType.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy",
)
_PLAIN = frozenset({"boolean", "int", "bigint", "double", "string", "date", "timestamp", "timestamp_ntz"})
TIME_ZONE = "timeZone"  # an option of Spark's text readers: the zone of times without an offset


class SparkFiles(FileSource):
    """Files that Spark's reader of the data source `format` reads. One task reads a whole file."""

    engine: EngineReader | None = None
    missing_columns: ClassVar[tuple[str, ...]] = ("null",)
    why_missing: ClassVar[str] = (
        "expected 'null': Spark's reader fills a column that a file lacks with NULL, as does this source by default"
    )
    format: ClassVar[str]
    options_class: ClassVar[str]  # Spark's class that lists the format's options, in org.apache.spark.sql
    corrupt_records: ClassVar[bool] = False  # whether Spark can put an unparsable record into a separate column
    raw_column: ClassVar[int | None] = None  # the column that contains the file's whole record, if any

    def check(self, source: CreateSource) -> None:
        super().check(source)
        for option, value in source.options.items():
            if option.lower() == "mode" and value.upper() != "FAILFAST":
                raise BadOptionError(
                    source.name, option, value, "an unparsable record always stops the epoch (FAILFAST)"
                )
            if (reason := _REFUSED.get(option.lower())) is not None:
                raise BadOptionError(source.name, option, value, reason)

    def ignored_options(self, options: Iterable[str], spark: "SparkSession") -> list[str]:
        """Return the options that Spark's reader ignores. Others that a source refuses change the rows."""
        known = {*self._known_options(spark), *_REFUSED, *_OF_FOLDERS}
        return [name for name in options if name.lower() not in known and not name.startswith("fs.")]

    def _known_options(self, spark: "SparkSession") -> dict[str, str]:
        """The options of the format and of its source, by their names in lower case."""
        listed: Any = getattr(spark._jvm, f"org.apache.spark.sql.{self.options_class}")
        known = [*OWN_OPTIONS, *str(listed.getAllOptions().mkString(",")).split(","), *_UNLISTED]
        return {name.lower(): name for name in known}

    def require_known_options(self, source: CreateSource, spark: "SparkSession") -> None:
        """Raise BadOptionError for unknown options. Spark ignores them, so a mistyped option would change the rows."""
        known = self._known_options(spark)
        for option, value in source.options.items():
            if option.lower() not in known and not option.startswith("fs."):  # Hadoop's settings
                near = [known[n] for n in difflib.get_close_matches(option.lower(), known, n=3)] or sorted(
                    known.values(), key=str.lower
                )
                reason = (
                    f"format {self.format} has no such option; "
                    f"{'similar options' if len(near) < 4 else 'its options'}: {', '.join(near)}"
                )
                raise BadOptionError(source.name, option, value, reason)

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        """See SourceReader: pinned files as chunks, OUTPUT_DDL.

        One task reads one file or a few small ones. The chunks of a file are in order.

        Args:
            spark: a session in the store's time zone.
            columns: declared ones, then hidden ones.

        Raises: ChangedFileError if a file differs from its pin. `translate` translates errors of actions on the result.

        Cost: two HEAD requests per file, before and after its rows; reading is lazy.
        """
        files = files_of(document)
        map_in_threads(lambda file: verify_pin(file, source.options), files)
        session = _session_of(spark, max(f.size for f in files))
        from tussock.jobs.spark.session import zone_of

        zone = zone_of(spark)
        alike: dict[int, list[PinnedFile]] = {}
        for file in files:
            alike.setdefault(source.width_of(file.number), []).append(file)
        frames = [
            self._read_group(session, source, width, zone, tuple(some), tuple(columns))
            for width, some in sorted(alike.items())
        ]
        return handed_over(reduce(lambda before, more: before.unionAll(more), frames), spark)

    def _read_group(
        self,
        session: "SparkSession",
        source: CreateSource,
        width: int,
        time_zone: str,
        files: tuple[PinnedFile, ...],
        columns: tuple[int, ...],
    ) -> "DataFrame":
        """Read files by their first `width` columns, the others NULL, with times in `time_zone`."""
        from pyspark.sql.functions import expr

        fields = [(f.name, f.type) for f in source.fields[:width]]
        if self.corrupt_records:
            fields.append((_CORRUPT, "string"))
        declared = ", ".join(f"{quote_name(name)} {kind}" for name, kind in fields)
        options = self.reader_options(source)
        if self.corrupt_records and TIME_ZONE.lower() not in {option.lower() for option in options}:
            options[TIME_ZONE] = time_zone
        portions: dict[str, list[PinnedFile]] = {}
        for file in files:
            portions.setdefault(place_of_bytes(file), []).append(file)
        files = tuple(some[0] for some in portions.values())
        addresses = spark_paths_of(session, files, source.options)
        read = self.load_files(session, options, files, addresses, declared)
        path = read.metadataColumn("_metadata")["file_path"].alias(_PATH)
        texts = ((quote_name(name), as_carried(quote_name(name), kind)) for name, kind in fields)
        values = (read[name] if text == name else expr(text) for name, text in texts)
        # mapInArrow finds columns by unquoted names, so a name with a dot would fail.
        rows = read.select(*(value.alias(f"c{n}") for n, value in enumerate(values)), path)
        by_address = {
            address if is_served(address) else place: [
                msgspec.structs.replace(f, served=address if is_served(address) else "") for f in some
            ]
            for address, (place, some) in zip(addresses, portions.items(), strict=True)
        }
        return rows.mapInArrow(
            make_packer(by_address, source, width, columns, self.require_types, self.raw_column), OUTPUT_DDL
        )

    def require_types(self, file: PinnedFile, fields: Sequence[Field], options: Mapping[str, str]) -> None:
        """Reject a file whose values Spark's reader would change silently, by its types.

        Runs in a task. Raises SchemaMismatchError.
        """

    def load_files(
        self,
        session: "SparkSession",
        options: Mapping[str, str],
        files: Sequence[PinnedFile],
        addresses: Sequence[str],
        declared: str | None = None,
    ) -> "DataFrame":
        """Read pinned files with the declared columns, or the columns that Spark infers.

        Args:
            options: of Spark's reader.
            addresses: of the files, from `spark_paths_of`.
        """
        reader = session.read.format(self.format).options(**{**options, **hadoop_options(files)})
        typed = reader if declared is None else reader.schema(declared)
        return typed.load(list(addresses))

    def by_spark(
        self, session: "SparkSession", source: CreateSource, document: msgspec.Raw, hidden: Sequence[HiddenColumn] = ()
    ) -> "DataFrame":
        """See InputReader. Unparsable records raise an error, or are omitted if the source quarantines them."""
        apart = self.corrupt_records and quarantines_rejects(source)
        options = self.reader_options(source)
        if self.corrupt_records and not apart:
            options = {k: v for k, v in options.items() if k != "columnNameOfCorruptRecord"} | {"mode": "FAILFAST"}
        more = [(_CORRUPT, "string")] if apart else []
        return read_by_spark(
            session,
            self.format,
            options,
            source,
            files_of(document),
            more,
            whole_records=self.corrupt_records,
            hidden=hidden,
        )

    def reader_options(self, source: CreateSource) -> dict[str, str]:
        """Return the options for Spark's reader."""
        options = spark_options(source)
        server = server_options(source.options["path"], source.options)
        if "endpoint" in server:  # Hadoop reads its settings from a reader's options
            options |= {
                "fs.s3a.endpoint": server["endpoint"],
                "fs.s3a.path.style.access": server.get("path_style", "true"),
            }
        return options | ({"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT} if self.corrupt_records else {})

    def translate(self, error: Exception, source: CreateSource, document: msgspec.Raw) -> TussockError | None:
        """Return an error of the pinned file that Spark's error names; None if it names none.

        The result is a ChangedFileError, an UnreadableFileError or the error of `mismatch`.
        """
        if not isinstance(error, spark_errors()):
            return None
        text = with_object_names(unquote(str(error)))
        # Longest first: one path may be a prefix of another.
        for file in sorted(files_of(document), key=lambda f: -len(place_of_bytes(f))):
            if re.sub(r"^\w+://", "", place_of_bytes(file)) in text:
                try:
                    verify_pin(file, source.options)
                except TussockError as changed:
                    return changed
                cause = cause_of(error)
                return self.mismatch(file.path, cause) or UnreadableFileError(file.path, source.format, cause)
        return None

    def mismatch(self, path: str, cause: str) -> SchemaMismatchError | None:
        """Return the error of a file whose type Spark's reader refused; None if the cause is another one."""
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
    hidden: Sequence[HiddenColumn],
) -> "DataFrame":
    """Read pinned files with Spark's reader only, as a table with the source's columns and the hidden ones.

    Args:
        more: columns that mark records to omit: those with a non-NULL value in one of them.
        whole_records: parse all columns, whichever are selected. Otherwise the selection decides which records Spark
            considers bad.

    Raises: ChangedFileError. Cost: one HEAD request per file; reading is lazy.
    """
    map_in_threads(lambda file: verify_pin(file, source.options), files)
    alike: dict[tuple[int, int], list[PinnedFile]] = {}
    for file in files:  # a portion is read alone
        key = source.width_of(file.number), -1 if file.portions is None else file.number
        alike.setdefault(key, []).append(file)
    frames = []
    for (width, _), some in sorted(alike.items()):
        declared = ", ".join(
            f"{quote_name(name)} {kind}" for name, kind in [*((f.name, f.type) for f in source.fields[:width]), *more]
        )
        reader = session.read.format(format).options(**{**options, **hadoop_options(some)}).schema(declared)
        addresses = spark_paths_of(session, some, source.options)
        frame = with_facts(session, reader.load(addresses), some, addresses, hidden)
        frame = handed_over(frame, session) if whole_records else frame
        frame = rows_of_portion(frame, some[0])
        if quarantines_rejects(source):
            texts = [
                is_text(quote_name(f.name), field.dataType)
                for f, field in zip(source.fields, frame.schema, strict=False)
            ]
            conditions = [f"{quote_name(name)} IS NULL" for name, _ in more] + [text for text in texts if text]
            frame = frame.where(" AND ".join(conditions)) if conditions else frame
        missing = (f"CAST(NULL AS {f.type}) AS {quote_name(f.name)}" for f in source.fields[width:])
        facts = (quote_name(column.column) for column in hidden)
        frames.append(frame.selectExpr(*(quote_name(f.name) for f in source.fields[:width]), *missing, *facts))
    return reduce(lambda before, after: before.unionAll(after), frames)


def rows_of_portion(frame: "DataFrame", file: PinnedFile) -> "DataFrame":
    """Return the rows of a portion from a frame with all rows of its file; the rows of a whole file unchanged."""
    if file.portions is None:
        return frame
    from pyspark.sql import functions as F

    # In one partition, which has them in the order of the file, these numbers are positions.
    placed = frame.coalesce(1).withColumn(_POSITION, F.monotonically_increasing_id())
    first, count = file.first_record, file.record_count
    inside = F.col(_POSITION) >= first
    if count is not None:
        inside &= F.col(_POSITION) < first + count
    return placed.where(inside).drop(_POSITION)


def with_facts(
    session: "SparkSession",
    frame: "DataFrame",
    files: Sequence[PinnedFile],
    addresses: Sequence[str],
    hidden: Sequence[HiddenColumn],
) -> "DataFrame":
    """Append hidden columns to a frame over the bytes of pinned files, which Spark reads at these addresses.

    Spark determines the file of each row, and its index in the file. The other values come from the files' records,
    since the bytes may be read from a copy.
    """
    if not hidden:
        return frame
    from pyspark.sql import functions as F

    of_files = [c for c in hidden if c is not HiddenColumn.ROW_INDEX]
    kinds = ["bigint" if c.type == "timestamp" else c.type for c in of_files]
    facts = session.createDataFrame(
        [
            (
                address if is_served(address) else spark_uri(place_of_bytes(file)),
                *(fact_of_file(file, c) for c in of_files),
            )
            for file, address in zip(files, addresses, strict=True)
        ],
        ", ".join([f"{_PATH} string", *(f"h{n} {kind}" for n, kind in enumerate(kinds))]),
    )
    typed = [
        (F.timestamp_micros(f"h{n}") if c.type == "timestamp" else F.col(f"h{n}")).alias(c.column)
        for n, c in enumerate(of_files)
    ]
    spark_own = frame.metadataColumn("_metadata")
    index = [spark_own["row_index"].alias(HiddenColumn.ROW_INDEX.column)] if len(of_files) < len(hidden) else []
    placed = frame.select("*", spark_own["file_path"].alias(_PATH), *index)
    return placed.join(F.broadcast(facts.select(_PATH, *typed)), _PATH, "left").drop(_PATH)


def is_text(text: str, kind: "DataType", depth: int = 0) -> str:
    """Return the SQL condition that all strings of a value are UTF-8; empty if its type contains no strings."""
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
            conditions = ((side, is_text(x, of_side, depth + 1)) for side, of_side in of)
            parts = [
                f"coalesce(forall(map_{side}({text}), {x} -> {inner}), true)" for side, inner in conditions if inner
            ]
        case StructType():
            parts = [inner for f in kind if (inner := is_text(f"{text}.{quote_name(f.name)}", f.dataType, depth))]
    return " AND ".join(parts)


class SparkTexts(SparkFiles):
    """Text formats: their files do not define columns, and a record may be unparsable."""

    corrupt_records: ClassVar[bool] = True

    def sample(self, source: CreateSource, value: str) -> str:
        """Return a record with this text in each column, as a file of the source could contain it."""
        raise NotImplementedError

    def require_good_values(self, source: CreateSource, spark: "SparkSession") -> None:
        """Reject option values that Spark rejects, before they can be blamed on a file. Raises BadOptionError.

        Cost: one job over one record; if it fails, one more per option.
        """
        # The format may not support other types.
        plain = [f for f in source.fields if f.type in _PLAIN] or [Field("value", "string")]
        source = msgspec.structs.replace(source, fields=tuple(plain))
        if (refused := self._why_refused(source, spark)) is None:
            return
        for option in source.options:
            rest = {name: value for name, value in source.options.items() if name != option}
            if (
                option not in OWN_OPTIONS
                and self._why_refused(msgspec.structs.replace(source, options=rest), spark) is None
            ):
                raise BadOptionError(source.name, option, source.options[option], f"Spark rejects it: {refused}")
        raise BadOptionError(
            source.name, "OPTIONS", ", ".join(source.options), f"Spark rejects their combination: {refused}"
        )

    def _why_refused(self, source: CreateSource, spark: "SparkSession") -> str | None:
        """Return Spark's error for the options when it reads a record with them; None if it reads the record."""
        jvm: Any = spark._jvm
        # No parser of dates accepts this text, not even the legacy one, so a failure is due to the options.
        # Two records, because the first may be a header.
        records = spark._jsparkSession.createDataset(
            [self.sample(source, "\u2603")] * 2, jvm.org.apache.spark.sql.Encoders.STRING()
        )
        declared = ", ".join(f"{quote_name(f.name)} {f.type}" for f in source.fields)
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
    """Formats whose files define their columns."""

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        self.require_known_options(source, spark())
        first = self.first_file(source)
        if source.fields:
            return source.fields
        return inferred_fields(self, source, self.require_file(source, first), session=spark())


def inferred_fields(
    reader: SparkFiles, source: CreateSource, file: ListedFile, session: "SparkSession"
) -> tuple[Field, ...]:
    """Return the columns that Spark infers from a file. Raises UnreadableSchemaError."""
    try:
        schema = (
            session.read.format(reader.format)
            .options(**reader.reader_options(source))
            .load(spark_path(session, file.path, *open_file(file.path, source.options)))
            ._jdf.schema()
        )
    except spark_errors() as err:
        raise UnreadableSchemaError(file.path, reader.format, cause_of(err)) from err
    return tuple(Field(f.name(), name_of_type(f.dataType())) for f in schema.fields())


def _session_of(spark: "SparkSession", largest: int) -> "SparkSession":
    """Return a new session whose scans never split a file of up to `largest` bytes.

    Small files share tasks as usual.
    """
    from tussock.jobs.spark.session import sql_session, zone_of

    session = sql_session(spark, zone_of(spark), {name: str(spark.conf.get(name)) for name in _INHERITED})
    whole = str(max(largest, 4 << 20) + 1)
    session.conf.set("spark.sql.files.maxPartitionBytes", str(max(int(whole), 128 << 20)))
    session.conf.set("spark.sql.files.openCostInBytes", whole)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(CHUNK_ROWS))
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(_BATCH_BYTES))
    session.conf.set("spark.sql.csv.parser.columnPruning.enabled", "false")
    session.conf.set("spark.sql.files.ignoreCorruptFiles", "false")
    session.conf.set("spark.sql.files.ignoreMissingFiles", "false")
    return session


def require_module(source: CreateSource, spark: "SparkSession", package: str) -> None:
    """Require that the session was started with Spark's module for a source's format. Raises MissingSparkModuleError.

    Args:
        package: its Maven name without the version, which is Spark's.
    """
    jvm = spark._jvm
    assert jvm is not None
    data_source = getattr(jvm, "org.apache.spark.sql.execution.datasources.DataSource")
    try:
        data_source.lookupDataSource(source.format, spark._jsparkSession.sessionState().conf())
    except spark_errors() as err:
        raise MissingSparkModuleError(source.name, source.format, f"{package}:{spark.version}") from err


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that a call of Spark may raise."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return Py4JJavaError, PySparkException


def handed_over(frame: "DataFrame", spark: "SparkSession") -> "DataFrame":
    """Move a frame into another session, with the plan and settings of its original one.

    An epoch's session uses tiny Arrow batches, for cells; this one uses large batches, for rows. Spark passes a
    micro-batch to foreachBatch in the same way.
    """
    from pyspark.sql import DataFrame

    java = frame._jdf
    inner = spark._jsparkSession.internalCreateDataFrame(java.queryExecution().toRdd(), java.schema(), False)
    return DataFrame(inner, spark)
