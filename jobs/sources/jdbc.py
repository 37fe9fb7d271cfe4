"""Tables and queries of databases as sources: a barrier stores a dump, and the epoch reads it.

    CREATE SOURCE customers (id bigint, …, PRIMARY KEY (id)) USING jdbc
        OPTIONS (path 'dumps/customers', url 'jdbc:…', dbtable 'customers', changes 'snapshot')

A read of a database cannot be repeated, but an epoch must be a function of its barrier. So before a run pins input,
Spark's JDBC reader writes the rows as Parquet files into a new folder below `path` (`storing_dumps`):

    <path>/0000000007/part-….parquet, _SUCCESS, _digest

From there on, the source is a Parquet source with whole deliveries (deliveries.py), and no epoch reads the database. A
dump with the rows of the dump before is removed at once, so a run without changes has no epoch. The digest of a dump
is independent of the order of its rows.

With `changes 'upsert'`, a dump contains only the rows whose `watermark_column` is not smaller than the greatest value
of the dump before, which `_watermark` records. Rows with this value are read again, because the database may have
committed more of them since. As upserts they change nothing. Deleted rows are not seen.

With `keep_dumps`, a run removes older dumps that committed epochs have taken.

A folder gets its number by a rename. If two runs store a dump at once, one rename fails, and its dump is dropped. If
the database cannot be read, the file `_failed` contains the reason, and holds the source until a later dump succeeds.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec
from xxhash import xxh3_128_hexdigest

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quote_name, string_text
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.settings.redaction import without_secrets
from tussock.jobs.sources.base import OptionEffect, PinRequest, Pins
from tussock.jobs.sources.credentials import REFERENCES_LOGIN, MissingReferenceError, resolve_references
from tussock.jobs.sources.deliveries import SNAPSHOT_DONE
from tussock.jobs.sources.errors import BadOptionError, MissingOptionError, require_count
from tussock.jobs.sources.file_options import RETAIN
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.keyed import CHANGES, JDBC, WATERMARK, RecordKind
from tussock.jobs.sources.listing import RECURSIVE, literal_folder, split_bucket
from tussock.jobs.sources.parquet import ParquetFiles
from tussock.jobs.sources.spark_files import spark_errors
from tussock.jobs.sources.taken import taken_files
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import InputError
from tussock.statestore.table.storage_table import StorageTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_URL, _TABLE, _QUERY = "url", "dbtable", "query"
_PARTITIONS = ("partitionColumn", "lowerBound", "upperBound", "numPartitions")
#: Options that Spark's JDBC reader gets.
OPTIONS = (
    _URL,
    _TABLE,
    _QUERY,
    "user",
    "password",
    "driver",
    *_PARTITIONS,
    "fetchsize",
    "queryTimeout",
    "sessionInitStatement",
    "customSchema",
)
KEEP = "keep_dumps"
_OWN = (WATERMARK, KEEP)
_DIGEST, _FAILED, _NEWEST = "_digest", "_failed", "_watermark"
_DRIVERS = {
    "mariadb": "org.mariadb.jdbc.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "oracle": "oracle.jdbc.OracleDriver",
    "postgresql": "org.postgresql.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
}
_DUMP = re.compile(r"\d{10}")
_MICROSECONDS = "yyyy-MM-dd HH:mm:ss.SSSSSS"


class DatabaseReadError(InputError):
    """The table of a jdbc source cannot be read."""

    source: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: its database cannot be read: {self.reason.rstrip('.')}. Its rows stay as they "
            "are, and everything else continues. The next run reads the table again. If an option is the cause, change "
            f"it by ALTER SOURCE {self.source} SET OPTIONS (…)."
        )


class JdbcTables(ParquetFiles):
    """Tables of databases, by dumps that Spark writes as Parquet files."""

    login: ClassVar[str] = REFERENCES_LOGIN

    def default_options(self, options: Mapping[str, str]) -> dict[str, str]:
        marked = {RECURSIVE: "true"}
        if options.get(CHANGES) == RecordKind.SNAPSHOT:
            marked[SNAPSHOT_DONE] = "_SUCCESS"
        return marked | ({} if RETAIN in options else {RETAIN: "none"})

    def effect_of(self, option: str) -> OptionEffect:
        return OptionEffect.AT_ONCE if option in (*OPTIONS, *_OWN) else super().effect_of(option)

    def check(self, source: CreateSource) -> None:
        options = source.options
        if not options.get(_URL, "").startswith("jdbc:"):
            reason = "the address of the database, such as 'jdbc:postgresql://host/shop'"
            raise MissingOptionError(source.name, _URL, reason)
        if (_TABLE in options) == (_QUERY in options):
            reason = f"a jdbc source needs the name of a table in {_TABLE}, or a SELECT in {_QUERY}, and not both"
            raise MissingOptionError(source.name, _TABLE, reason)
        require_count(source.name, options, KEEP)
        bucket, name = split_bucket(options["path"])
        if bucket or literal_folder(options["path"], options) != f"/{name}":
            reason = (
                "expected a folder of a file system that the epochs reach, without wildcards: dumps are stored there"
            )
            raise BadOptionError(source.name, "path", options["path"], reason)
        _require_watermark_of_one_order(source, source.fields)
        super().check(_files_of(source))

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        """Return the declared columns, or those of the table. Raises DatabaseReadError."""
        with _database_errors(source):
            columns = _read_table(source, spark()).schema
        found = tuple(Field(column.name, column.dataType.simpleString()) for column in columns)
        there = {field.name.lower() for field in found}
        if (unknown := next((f for f in source.fields if f.name.lower() not in there), None)) is not None:
            reason = f"it has no column {unknown.name!r}; its columns: {', '.join(f.name for f in found)}"
            raise BadOptionError(source.name, *_place_of(source), reason)
        fields = source.fields or found
        watermark = source.options.get(WATERMARK)
        if watermark is not None and watermark.lower() not in {f.name.lower() for f in fields}:
            reason = f"it is no column of the source; its columns: {', '.join(f.name for f in fields)}"
            raise BadOptionError(source.name, WATERMARK, watermark, reason)
        _require_watermark_of_one_order(source, fields)
        _folder_of(source).mkdir(parents=True, exist_ok=True)
        return fields

    def pin(self, source: CreateSource, taken: StorageTable | None, request: PinRequest, keeper: Keeper) -> Pins:
        """See SourcePinner. Raises DatabaseReadError if the newest dump failed."""
        if _store_first_dump(source):
            remove_old_dumps(source, taken)
        failed = _folder_of(source) / _FAILED
        if failed.exists():
            raise DatabaseReadError(source.name, failed.read_text())
        return super().pin(_files_of(source), taken, request, keeper)


@dataclass(frozen=True, slots=True)
class _Dumping:
    """How a run stores dumps, and the sources whose dump it has stored."""

    open_spark: "Callable[[], AbstractContextManager[SparkSession]]"
    stored: set[str] = field(default_factory=set)


_dumping: ContextVar[_Dumping | None] = ContextVar("_dumping", default=None)


@contextmanager
def storing_dumps(open_spark: "Callable[[], AbstractContextManager[SparkSession]]") -> Iterator[None]:
    """Within the block, the first pin of a source's database stores a dump before it looks for deliveries.

    Args:
        open_spark: opens the Spark application that reads the databases; called only if there is such a source.
    """
    token = _dumping.set(_Dumping(open_spark))
    try:
        yield
    finally:
        _dumping.reset(token)


def store_first_dumps(sources: Iterable[CreateSource]) -> None:
    """Within `storing_dumps`, store the dumps of databases that no pin has stored, for epochs after the block."""
    for source in sources:
        if source.format == JDBC:
            _store_first_dump(source)


def _store_first_dump(source: CreateSource) -> bool:
    """Store a dump if this is the source's first call within `storing_dumps`. Returns whether it is."""
    if (dumping := _dumping.get()) is None or source.name in dumping.stored:
        return False
    dumping.stored.add(source.name)
    with dumping.open_spark() as spark:
        store_dump(source, spark)
    return True


def store_dump(source: CreateSource, spark: "SparkSession") -> Path | None:
    """Store the present rows of a source's table as a new dump.

    None: they are those of the newest one, or the database cannot be read. Then the source is held.
    """
    folder = _folder_of(source)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        dump = _write_dump(source, spark, folder)
    except DatabaseReadError as err:
        (folder / _FAILED).write_text(err.reason)
        return None
    (folder / _FAILED).unlink(missing_ok=True)
    return dump


def _write_dump(source: CreateSource, spark: "SparkSession", folder: Path) -> Path | None:
    newest = max((p.name for p in folder.iterdir() if _DUMP.fullmatch(p.name)), default=None)
    writing = folder / f".writing-{os.getpid()}"
    try:
        with _database_errors(source):
            columns = [quote_name(field.name) for field in source.fields]
            rows = _read_table(source, spark).select(*columns)
            before = None if newest is None else folder / newest
            if before is not None and (since := _since(source, before)) is not None:
                rows = rows.where(since)
            rows.write.mode("overwrite").parquet(str(writing))
            written = spark.read.parquet(str(writing))
            if WATERMARK in source.options and not _note_watermark(source, written, writing, before):
                return None
            digest = _digest_of(written)
        (writing / _DIGEST).write_text(digest)
        if newest is not None and (folder / newest / _DIGEST).read_text() == digest:
            return None
        dump = folder / f"{0 if newest is None else int(newest) + 1:010}"
        try:
            writing.rename(dump)
        except OSError:
            if not dump.is_dir():
                raise
            return None  # another run stored its dump first
        return dump
    finally:
        shutil.rmtree(writing, ignore_errors=True)


def _require_watermark_of_one_order(source: CreateSource, fields: Sequence[Field]) -> None:
    """Reject a watermark of texts: Spark finds the greatest one by bytes, and the database compares by its collation.

    In a German or English collation, 'a' precedes 'Z', so a run would miss rows. Raises BadOptionError.
    """
    watermark = source.options.get(WATERMARK, "")
    kind = next((field.type for field in fields if field.name.lower() == watermark.lower()), "")
    if kind.startswith(("string", "char", "varchar", "binary")):
        reason = (
            f"the column is a {kind}, and the database orders texts by its own collation, so a run could miss rows. "
            "Name a column with a number, a date or a time"
        )
        raise BadOptionError(source.name, WATERMARK, watermark, reason)


class _Watermark(msgspec.Struct, frozen=True):
    """The note of a dump of changed rows.

    Args:
        place: a digest of the column and of its table. A dump from elsewhere says nothing about the rows of this table.
        value: the greatest value; None: the dump has none.
        rows: a digest of the rows with this value.
    """

    place: str
    value: str | None = None
    rows: str = ""


_watermarks = decoder_of(_Watermark)


def _watermark_of(source: CreateSource, dump: Path | None) -> _Watermark:
    """The note of a dump; without a value if it has none, or one of another place."""
    named = [source.options.get(option, "") for option in (WATERMARK, _URL, _TABLE, _QUERY)]
    place = xxh3_128_hexdigest(repr(named).encode())
    if dump is None or not (dump / _NEWEST).exists():  # stored before the source had the option
        return _Watermark(place)
    noted = _watermarks.decode((dump / _NEWEST).read_bytes())
    return noted if noted.place == place else _Watermark(place)


def _value_texts(source: CreateSource) -> tuple[str, str]:
    """The column as SQL, and the SQL of a value of it with {} for its text. A local time may mean two instants."""
    column = source.options[WATERMARK]
    kind = next(field.type for field in source.fields if field.name.lower() == column.lower())
    return quote_name(column), "timestamp_micros({})" if kind == "timestamp" else f"CAST({{}} AS {kind})"


def _since(source: CreateSource, newest: Path) -> str | None:
    """The condition for the rows that a dump of changed rows reads; None for all rows."""
    if WATERMARK not in source.options or (value := _watermark_of(source, newest).value) is None:
        return None
    column, form = _value_texts(source)
    return f"{column} >= {_value_sql(form, value)}"


def _value_sql(form: str, value: str) -> str:
    return form.format(value if form.startswith("timestamp_micros") else string_text(value))


def _note_watermark(source: CreateSource, written: "DataFrame", dump: Path, newest: Path | None) -> bool:
    """Record the greatest watermark of a dump, and a digest of the rows that have it.

    Returns whether the dump has other rows than the rows that the dump before it has at its watermark.
    """
    column, form = _value_texts(source)
    greatest = f"unix_micros(max({column}))" if form.startswith("timestamp_micros") else f"max({column})"
    row = written.selectExpr(f"CAST({greatest} AS STRING) AS value").head()
    before = _watermark_of(source, newest)
    note = _Watermark(before.place)
    if row is not None and row["value"] is not None:
        same = written.where(f"{column} = {_value_sql(form, row['value'])}")
        note = _Watermark(before.place, row["value"], _digest_of(same))
    (dump / _NEWEST).write_bytes(msgspec.json.encode(note))
    return newest is None or note != before


def remove_old_dumps(source: CreateSource, taken: StorageTable | None) -> None:
    """Remove the dumps that committed epochs have taken, except the newest `keep_dumps`. Without it, all dumps stay."""
    if KEEP not in source.options or taken is None or taken.has_epochs_in_flight:
        return
    folder = _folder_of(source)
    names = {Path(file.path).parent.name for file in taken_files(taken)}
    dumps = sorted(path.name for path in folder.iterdir() if _DUMP.fullmatch(path.name) and path.name in names)
    for name in dumps[: -int(source.options[KEEP])]:
        shutil.rmtree(folder / name)


def _read_table(source: CreateSource, spark: "SparkSession") -> "DataFrame":
    """The rows of the table. Without partition options, one query in one connection reads them, so they are consistent.

    Requires: inside `_database_errors`.
    """
    options = resolve_references(source, OPTIONS)
    kind = options[_URL].split(":")[1]
    if (driver := _DRIVERS.get(kind)) is not None:  # Java finds no driver of `spark.jars.packages` by the address alone
        options.setdefault("driver", driver)
    return spark.read.format("jdbc").options(**options).load()


def _digest_of(frame: "DataFrame") -> str:
    """A digest of the rows in any order: their number, and the sum of their hashes.

    By default, the times in Spark's JSON end with the millisecond.
    """
    formats = ", ".join(
        map(string_text, ("timestampFormat", f"{_MICROSECONDS}XXX", "timestampNTZFormat", _MICROSECONDS))
    )
    text = f"to_json(struct(*), map({formats}))"
    row = frame.selectExpr("count(*) AS rows", f"sum(CAST(xxhash64({text}) AS DECIMAL(20, 0))) AS digest").head()
    assert row is not None
    return f"{row['rows']} {row['digest']}"


@contextmanager
def _database_errors(source: CreateSource) -> Iterator[None]:
    """Translate errors of Spark and of the database. The text of the error contains no credential."""
    try:
        yield
    except MissingReferenceError as err:
        raise DatabaseReadError(source.name, f"option {err.option} refers to {err.what}, which cannot be read") from err
    except spark_errors() as err:
        raise DatabaseReadError(source.name, without_secrets(cause_of(err))) from err


def _place_of(source: CreateSource) -> tuple[str, str]:
    option = _TABLE if _TABLE in source.options else _QUERY
    return option, source.options[option]


def _folder_of(source: CreateSource) -> Path:
    """The folder of the dumps."""
    return Path("/", split_bucket(source.options["path"])[1])


def _files_of(source: CreateSource) -> CreateSource:
    """The source as one of Parquet files."""
    options = {name: value for name, value in source.options.items() if name not in (*OPTIONS, *_OWN)}
    return msgspec.structs.replace(source, options=options)
