"""Errors in the files of a source.

No row of a faulty file is processed; `barriers/source_holds.py` decides how the run continues.
"""

import re
import shlex
from collections.abc import Mapping, Sequence

from tussock.jobs.chunks.failure import SourceFileError
from tussock.jobs.logical.quoting import string_text
from tussock.jobs.logical.statements import CreateSource
from tussock.statestore.errors import InputError


def ways_on(path: str) -> str:
    """The remedies for a faulty file, as the end of an error message: skip the file, or retry its current content."""
    return (
        f"To continue without it, run `tussock barrier abandon --skip-file {shlex.quote(path)}`; rows that earlier "
        f"epochs read from it stay. If no epoch has read it yet, {repin_command(path)} retries the file in its current "
        "state"
    )


def repin_command(path: str) -> str:
    """The command that retries an item of an open barrier in its current state."""
    return f"`tussock barrier abandon --repin-file {shlex.quote(path)}`"


def only_anew(source: str) -> str:
    """The remedy if the history that a source has read is gone, or another one."""
    return (
        f"Its rows can only be read from the beginning: DROP SOURCE {source} (CASCADE also drops its readers), and "
        "create it and them again. Until then the source is held, and views keep the rows that were already read."
    )


def with_other_columns(source: str, place: str) -> str:
    """The remedy if the columns of a relation no longer fit a source. `place`: where they are, as in "in the table"."""
    return f"Restore the column {place}; or {anew_with_present_columns(source)}"


def anew_with_present_columns(source: str) -> str:
    """The remedy if a column cannot be restored."""
    return (
        f"DROP SOURCE {source} (CASCADE also drops its readers), and create it with the present columns, and its "
        "readers again. Until then the source is held, and views keep the rows that were already read."
    )


def without_path(reason: str, path: str) -> str:
    """Return a library's reason without the path of the file, which the message already contains."""
    place = re.escape(path.partition("://")[2] or path)
    return re.sub(rf" *(?:\b(?:file|s3a?):)?/{{0,2}}{place}(?![\w/])", "", reason)


class BadPathError(InputError):
    """The `path` option is not a path, glob or interval template."""

    path: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source path {self.path!r}: {self.reason}. A path is a file, a directory, a glob (*, ?, [], **) or a "
            "template with {start:%Y-%m-%d} and {end:…}. It is on this machine, or begins with file://, s3://, gs://, "
            "az:// or hdfs://. "
            "A backslash escapes a character: \\[."
        )


class BadFileNameError(InputError, hides_row_values=True):
    """A file name is not UTF-8.

    Args:
        shown: the path; bytes that are not UTF-8 are written as `\\xe9`.
    """

    shown: str

    def __str__(self) -> str:
        return (
            f"the name of file {self.shown} is not UTF-8; neither Spark nor the store can record it. Rename the file "
            "(`mv`, or `convmv` for many), and the next run reads it; or move it out of the source's folder."
        )


class MissingPathError(InputError):
    """A source's path matches no file.

    Args:
        source: the name of an existing source; None while the source is being created.
    """

    path: str
    near: tuple[str, ...]
    source: str | None = None

    def __str__(self) -> str:
        near = f"nearby paths: {', '.join(self.near)}" if self.near else "nothing exists near it either"
        finding = f"no file at {self.path!r}; {near}. Files whose names start with `.` or `_` are ignored."
        if self.source is None:
            return (
                f"{finding} Put the file there, correct the source's path, or create the source with OPTIONS (…, "
                "may_be_missing 'true'), which waits for its files."
            )
        return (
            f"source {self.source!r}: {finding} Put the file there; or run ALTER SOURCE {self.source} SET OPTIONS "
            "(path '…') with another path, or with may_be_missing 'true', which waits for its files."
        )


class NoFilesError(InputError, hides_row_values=True):
    """A source declares no columns, and no file exists to infer them from."""

    name: str
    path: str
    format: str

    def __str__(self) -> str:
        return (
            f"source {self.name!r}: {self.path} contains no file to infer the columns from (files of 0 bytes are "
            "ignored). "
            f"Put a file there first, or declare them: CREATE SOURCE {self.name} (column type, …) "
            f"USING {self.format} …"
        )


class PartitionFoldersError(InputError):
    """A source's path contains folders called `name=value`.

    Args:
        spelled: a path that names these folders explicitly.
    """

    name: str
    path: str
    spelled: str

    def __str__(self) -> str:
        return (
            f"source {self.name!r}: {self.path} contains folders called name=value, such as {self.spelled}. Folder "
            "names do not become columns. To read the columns in the files, include the folders in the path: OPTIONS "
            f"(path {string_text(self.spelled)}). If you need the value in the name, write it into the files as a "
            "column, or create one source per folder and add the value in a view."
        )


class UndeclaredColumnsError(InputError, hides_row_values=True):
    """A source of a text format without declared columns."""

    name: str
    format: str

    def __str__(self) -> str:
        return (
            f"source {self.name!r}: a {self.format} source needs declared columns, because its files contain no types: "
            f"CREATE SOURCE {self.name} (column type, …) USING {self.format} …"
        )


class TextColumnsError(InputError, hides_row_values=True):
    """A text source declares columns other than one string."""

    name: str
    columns: str

    def __str__(self) -> str:
        return (
            f"source {self.name!r}: a text source has exactly one string column, and ({self.columns}) are declared. "
            "Declare one column, or none (it is then called value), and split the text in a view: split(value, ','), "
            "from_json(value, '…')."
        )


class MissingOptionError(InputError):
    """A source lacks an option that its format needs."""

    source: str
    option: str
    expected: str

    def __str__(self) -> str:
        return f"source {self.source!r}: OPTIONS lacks {self.option}: {self.expected}."


class ChangedFileError(SourceFileError, hides_row_values=True):
    """A file differs from its recorded size and ETag.

    Args:
        taken: True if an earlier epoch has taken the file; False if a barrier has pinned it.
        kept_by: the source that kept the taken content; empty if none did.
    """

    path: str
    recorded: str
    current: str
    taken: bool = False
    kept_by: str = ""

    def __str__(self) -> str:
        changed = f"file {self.path} has changed: recorded {self.recorded}, found {self.current}."
        if self.taken:
            path = shlex.quote(self.path)
            restate = f"To read the new content instead, run `tussock restate {self.kept_by} --file {path}`. "
            return (
                f"{changed} {restate if self.kept_by else ''}To keep the rows already read, run `tussock barrier "
                f"abandon --skip-file {path}`; or restore the old content, and write the change as a new file."
            )
        return f"{changed} The next run reads the new content once the file no longer changes. {ways_on(self.path)}."


class CannotRestateError(InputError):
    """An item of a source cannot be restated as requested."""

    source: str
    reason: str

    def __str__(self) -> str:
        return f"source {self.source!r} cannot be restated this way: {self.reason}. Nothing was changed."


class LostCopyError(SourceFileError):
    """The store's copy of a taken file is missing or cut short."""

    path: str
    copy: str

    def __str__(self) -> str:
        return (
            f"file {self.path} has changed since it was read, and the store's copy of the old content, {self.copy}, is "
            "missing or damaged. Restore the old content of the file, or restore that object from a copy of the "
            "bucket."
        )


class TableReplacedError(InputError, hides_row_values=True):
    """Another table has replaced the one that a source reads."""

    source: str
    table: str
    recorded: str
    current: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.table} was dropped and created again: the source read {self.recorded}, and "
            f"found {self.current}. The rows of the two tables cannot be matched. {only_anew(self.source)}"
        )


class TableColumnsChangedError(InputError, hides_row_values=True):
    """A table lacks a declared column, or has it in a type that cannot be read as the declared type.

    Args:
        table: the table at one time, such as `version 7 of the Delta table /lake/orders`.
    """

    source: str
    table: str
    column: str
    finding: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.table}, column {self.column!r}: found {self.finding}, expected "
            f"{self.expected}. {self.remedy}"
        )


class BadTableKeyError(InputError, hides_row_values=True):
    """The option `key` names columns that cannot be a key, or do not identify the rows."""

    source: str
    columns: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}, option key: {self.columns!r} {self.reason}. Name the columns that identify a "
            "row, separated by commas; or omit the option: rows are then identified by all their values, and equal "
            "rows are counted."
        )


class UnskippableItemError(InputError):
    """A version, snapshot or epoch of a table that changes rows cannot be skipped.

    Args:
        later: the kind of the items, such as `versions of the table`.
    """

    source: str
    item: str
    later: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.item!r} cannot be skipped, because later {self.later} change the rows of "
            "earlier ones. Correct the rows there, or drop the source."
        )


class PinnedReadError(SourceFileError):
    """Pinned rows of a table or of another store cannot be read.

    Args:
        path: the pinned item, as the barrier names it.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.reason}\n  Once this is repaired, {repin_command(self.path)} retries it; otherwise "
            "drop the source and create it again."
        )


class UnreadableFileError(SourceFileError):
    """A file cannot be read in the format of its source."""

    path: str
    format: str
    reason: str

    def __str__(self) -> str:
        return (
            f"file {self.path} cannot be read as {self.format}: {without_path(self.reason, self.path).rstrip('.')}. "
            f"Repair it, and the next run reads it. {ways_on(self.path)}."
        )


class OnlySparkReadsError(InputError):
    """An actor met something that only Spark reads, in a file that the barrier had given to the engine.

    The same run supersedes the barrier by one that leaves the file to Spark.
    """

    source: str
    path: str
    reason: str

    def __str__(self) -> str:
        return (
            f"only Spark can read file {self.path} of source {self.source!r}: {self.reason}. Nothing of this epoch was "
            "committed, and the next epoch leaves the file to Spark."
        )


class LegacyZoneError(SourceFileError, hides_row_values=True):
    """A file has times in Spark's legacy calendar without their zone, and Spark's Java has another one."""

    source: str
    path: str
    wanted: str
    zone: str

    def __str__(self) -> str:
        return (
            f"file {self.path} has times in Spark's legacy calendar, and does not name their time zone. The source "
            f"expects {self.wanted}, but Spark reads them in the zone of its Java, {self.zone}. Start Spark with "
            f"-Duser.timezone={self.wanted} in spark.driver.extraJavaOptions and spark.executor.extraJavaOptions. If "
            f"the times are of {self.zone}, run ALTER SOURCE {self.source} SET OPTIONS (timeZone '{self.zone}'). "
            f"{ways_on(self.path)}."
        )


class SchemaMismatchError(SourceFileError, hides_row_values=True):
    """A file lacks a column, or has it in a type that cannot be read as the declared type."""

    path: str
    column: str
    finding: str
    expected: str

    def __str__(self) -> str:
        return (
            f"file {self.path}, column {self.column!r}: found {self.finding}, expected {self.expected}. "
            f"Write it with the source's declared columns, and the next run reads it. {ways_on(self.path)}."
        )


class BadRowError(SourceFileError):
    """A record does not parse as the declared columns.

    Args:
        record: its number within the file, from 1, without the header.
    """

    path: str
    record: int
    text: str
    reason: str

    def __str__(self) -> str:
        return (
            f"file {self.path}, record {self.record}: {self.text!r} does not parse: {self.reason}. "
            f"Repair the record, and the next run reads the file. {ways_on(self.path)}."
        )


class BadTextError(SourceFileError):
    """A string is not UTF-8.

    Args:
        record: its number within the file, from 1, without the header.
    """

    path: str
    record: int
    column: str
    octets: str

    def __str__(self) -> str:
        return (
            f"file {self.path}, row {self.record}, column {self.column!r}: the bytes {self.octets} are not UTF-8, "
            f"which a string must be. Write the file in UTF-8, or declare the column as binary. {ways_on(self.path)}."
        )


class TooFineTimeError(SourceFileError):
    """A time has digits below the microsecond, which no Spark type stores.

    Args:
        record: its number within the file, from 1.
    """

    path: str
    record: int
    column: str
    expected: str

    def __str__(self) -> str:
        return (
            f"file {self.path}, row {self.record}, column {self.column!r}: the time has digits below the microsecond, "
            f"and {self.expected} stores microseconds. Spark does not read times in nanoseconds. Write the file with "
            "times in microseconds, or declare the column as bigint (nanoseconds since 1970-01-01). "
            f"{ways_on(self.path)}."
        )


class FileTooLargeError(InputError, hides_row_values=True):
    """A file cannot be divided so that an epoch reads at most `max_bytes`.

    Args:
        size: bytes on storage.
        records: their number, or more; 1 if the file cannot be divided.
        nbytes: of all records, decoded.
        most: bytes that an epoch reads at most.
        least: bytes of the largest part that cannot be divided.
        of_table: whether it is a file of a table in a lake, without which the table cannot be read.
    """

    path: str
    size: int
    records: int
    nbytes: int
    most: int
    least: int
    of_table: bool = False

    def __str__(self) -> str:
        has = "one record" if self.records == 1 else f"a record of {self.least:,} bytes"
        skip = f" To continue without it, run `tussock barrier abandon --skip-file {shlex.quote(self.path)}`."
        return (
            f"file {self.path} has {self.size:,} bytes, {self.nbytes:,} when it is decoded, and {has}, which cannot "
            f"be divided. An epoch reads at most {self.most:,} bytes. To read it, set `max_bytes = {self.least}` in "
            "[epoch] of pipeline.toml; the epoch needs several times these bytes of memory."
            f"{'' if self.of_table else skip}"
        )


class BadInsertTextError(InputError):
    """A string in an INSERT is not UTF-8.

    Args:
        row: its number within the statement's rows, from 1.
    """

    table: str
    row: int
    column: str
    octets: str

    def __str__(self) -> str:
        return (
            f"INSERT INTO {self.table}, row {self.row}, column {self.column!r}: the bytes {self.octets} are not UTF-8, "
            "which a string must be. Nothing was logged. Correct the text, or declare the column as binary."
        )


class UnsupportedFormatError(InputError):
    """No reader supports the format."""

    source: str
    format: str
    supported: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: format {self.format!r} is not supported; expected USING "
            f"{' | '.join(self.supported)}"
        )


class MissingSparkModuleError(InputError):
    """A format needs a Spark module that this session was started without."""

    source: str
    format: str
    package: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: to read {self.format}, Spark needs a module that this session was started "
            f"without. Start Spark with the setting spark.jars.packages = {self.package} (spark-submit --packages "
            f"{self.package}); Spark downloads it once."
        )


class NeedsHadoopAwsError(InputError):
    """Spark's executors cannot read S3: they have no module for it, and the driver must not serve the files."""

    reason: str
    package: str

    def __str__(self) -> str:
        return (
            "Spark's executors cannot read files in S3: they have no module for it, and the driver does not serve the "
            f"files over HTTP, because {self.reason}. Start Spark with the setting spark.jars.packages = "
            f"{self.package} (spark-submit --packages {self.package}); Spark downloads it once, and reads S3 with the "
            "credentials of each executor."
        )


class CredentialInOptionError(InputError, hides_row_values=True):
    """An option of a source contains a password, a key or a token. The message omits it."""

    source: str
    option: str
    login: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}, option {self.option}: it contains a credential. Options are stored and shown, so "
            f"they may contain none. {self.login}."
        )


class BadOptionError(InputError):
    """A source has an option that cannot be honoured."""

    source: str
    option: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"source {self.source!r}, option {self.option} = {self.value!r}: {self.reason}. Omit it."


def require_options(source: CreateSource, known: Sequence[str], prefix: str = "", prefix_text: str = "") -> None:
    """Require that all options are known. Raises BadOptionError.

    Args:
        prefix: of other known options. `prefix_text` describes them.
    """
    for option, value in source.options.items():
        if option not in known and not (prefix and option.startswith(prefix)):
            article = "an" if source.format[0] in "aeiou" else "a"
            names = f"{', '.join(known)}{prefix_text}"
            reason = f"{article} {source.format} source has no such option; its options are {names}"
            raise BadOptionError(source.name, option, value, reason)


def require_count(source: str, options: Mapping[str, str], option: str, most: int = 2**63 - 1) -> None:
    """Require that an option, if it is given, is a whole number from 1 to `most`. Raises BadOptionError."""
    text = options.get(option, "1")
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) <= most):
        raise BadOptionError(source, option, text, f"expected a whole number from 1 to {most}")
