"""What can be wrong with a source's files. No row of such a file is taken in; what else goes on, says tussock.jobs.driver.source_holds."""

import shlex

from tussock.jobs.flow.failure import SourceFileError
from tussock.jobs.logical.quoting import string_text
from tussock.statestore.errors import InputError


def ways_on(path: str) -> str:
    """The end of a message about a file: how to go on without it, or with it as it will be."""
    path = shlex.quote(path)
    return (
        f"`tussock barrier abandon --skip-file {path}` goes on without it (rows that an epoch took from it before stay); "
        f"`tussock barrier abandon --repin-file {path}` has it tried again as it is then, if no epoch has taken it"
    )


class BadPathError(InputError):
    """The `path` option is not a path, glob or interval template."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return (
            f"source path {self.path!r}: {self.reason}. A path is a file, a directory, a glob (*, ?, [], **) or a template with "
            "{start:%Y-%m-%d} and {end:…}, on the local file system, file:// or s3://bucket/. A backslash makes a character plain: \\[."
        )


class BadFileNameError(InputError):
    """The name of a file is not UTF-8. `shown`: its path, with those bytes as `\\xe9`."""

    def __init__(self, shown: str) -> None:
        super().__init__(shown)
        self.shown = shown

    def __str__(self) -> str:
        return (
            f"the name of file {self.shown} is not UTF-8, so that neither Spark nor the store's records can name it. Rename the file "
            "(`mv`, or `convmv` for many), and the next run takes it in; or move it out of the source's folder."
        )


class MissingPathError(InputError):
    """No file is where the source says. `source` names a source that exists; None while it is being created."""

    def __init__(self, path: str, near: tuple[str, ...], source: str | None = None) -> None:
        super().__init__(path, near, source)
        self.path, self.near, self.source = path, near, source

    def __str__(self) -> str:
        near = f"what exists near it: {', '.join(self.near)}" if self.near else "nothing exists near it either"
        found = f"no file at {self.path!r}; {near}. Files whose name starts with `.` or `_` do not count."
        if self.source is None:
            return (
                f"{found} Put the file there, correct the source's path, or create a source that waits for its files: OPTIONS (…, "
                "may_be_missing 'true')."
            )
        return (
            f"source {self.source!r}: {found} Put the file there; or DROP SOURCE {self.source} "
            "(CASCADE drops its readers too) and create it with another path, or with OPTIONS (…, may_be_missing 'true')."
        )


class NoFilesError(InputError):
    """A source whose columns its files should say, and there is no file."""

    def __init__(self, name: str, path: str, format: str) -> None:
        super().__init__(name, path, format)
        self.name, self.path, self.format = name, path, format

    def __str__(self) -> str:
        return (
            f"source {self.name!r}: {self.path} holds no file that could say its columns (a file of 0 bytes does not count). "
            f"Put a file there first, or declare them: CREATE SOURCE {self.name} (column type, …) USING {self.format} …"
        )


class PartitionFoldersError(InputError):
    """A source above folders called `name=value`. `spelled` is a path that says so."""

    def __init__(self, name: str, path: str, spelled: str) -> None:
        super().__init__(name, path, spelled)
        self.name, self.path, self.spelled = name, path, spelled

    def __str__(self) -> str:
        return (
            f"source {self.name!r}: below {self.path} are folders called name=value, as in {self.spelled}. No column is made of a folder's "
            f"name. Spell the folders out to read the columns that their files hold: OPTIONS (path {string_text(self.spelled)}). If the "
            "value in the name is wanted, write it into the files as a column, or create one source a folder and let a view add it."
        )


class UndeclaredColumnsError(InputError):
    """A source of texts without declared columns."""

    def __init__(self, name: str, format: str) -> None:
        super().__init__(name, format)
        self.name, self.format = name, format

    def __str__(self) -> str:
        return (
            f"source {self.name!r}: a {self.format} source needs its columns, since its files do not say their types: "
            f"CREATE SOURCE {self.name} (column type, …) USING {self.format} …"
        )


class TextColumnsError(InputError):
    """A source of text files with other columns than one of strings."""

    def __init__(self, name: str, found: str) -> None:
        super().__init__(name, found)
        self.name, self.found = name, found

    def __str__(self) -> str:
        return (
            f"source {self.name!r}: a text source has one column, a string, and ({self.found}) are declared. Declare one, or none (it is "
            "called value), and take it apart in a view: split(value, ','), from_json(value, '…')."
        )


class MissingOptionError(InputError):
    """A source without an option that its format needs."""

    def __init__(self, source: str, option: str, expected: str) -> None:
        super().__init__(source, option, expected)
        self.source, self.option, self.expected = source, option, expected

    def __str__(self) -> str:
        return f"source {self.source!r}: OPTIONS lacks {self.option}: {self.expected}."


class ChangedFileError(SourceFileError):
    """A file is not the one that was recorded. `taken`: an earlier epoch has taken it; else a barrier has pinned it. `kept_by`: the source
    that has kept what was taken; empty where none has."""

    def __init__(self, path: str, recorded: str, found: str, taken: bool = False, kept_by: str = "") -> None:
        super().__init__(path, recorded, found, taken, kept_by)
        self.path, self.recorded, self.found, self.taken, self.kept_by = path, recorded, found, taken, kept_by

    def __str__(self) -> str:
        changed = f"file {self.path} has changed: recorded {self.recorded}, found {self.found}."
        if self.taken:
            path = shlex.quote(self.path)
            restate = f"`tussock restate {self.kept_by} --file {path}` has its rows of now take the place of those that were taken; "
            return (
                f"{changed} {restate if self.kept_by else ''}`tussock barrier abandon --skip-file {path}` goes on with those that "
                "were taken; or put its bytes back, and write the change as a new file."
            )
        return f"{changed} Once it rests, the next run takes it as it is; or go on: {ways_on(self.path)}."


class CannotRestateError(InputError):
    """What a person wants taken in once more, and cannot be."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(source, reason)
        self.source, self.reason = source, reason

    def __str__(self) -> str:
        return f"source {self.source!r} cannot be restated so: {self.reason}. Nothing was changed."


class LostCopyError(SourceFileError):
    """The copy that the store kept of a file which was taken is gone, or cut short."""

    def __init__(self, path: str, copy: str) -> None:
        super().__init__(path, copy)
        self.path, self.copy = path, copy

    def __str__(self) -> str:
        return (
            f"file {self.path} is not as it was when it was taken, and the copy of those bytes that the store kept, {self.copy}, is gone "
            "or damaged. Put the file back as it was, or restore that object from a copy of the bucket."
        )


class UnreadableFileError(SourceFileError):
    """A file cannot be read as what the source says it is."""

    def __init__(self, path: str, format: str, reason: str) -> None:
        super().__init__(path, format, reason)
        self.path, self.format, self.reason = path, format, reason

    def __str__(self) -> str:
        return (
            f"file {self.path} cannot be read as {self.format}: {self.reason.rstrip('.')}. "
            f"Repair it, and the next run takes it in; or go on: {ways_on(self.path)}."
        )


class SchemaMismatchError(SourceFileError):
    """A column of a file is missing or of a type that does not read as the declared one."""

    def __init__(self, path: str, column: str, found: str, expected: str) -> None:
        super().__init__(path, column, found, expected)
        self.path, self.column, self.found, self.expected = path, column, found, expected

    def __str__(self) -> str:
        return (
            f"file {self.path}, column {self.column!r}: found {self.found}, expected {self.expected}. "
            f"Write it with the source's declared columns, and the next run takes it in; or go on: {ways_on(self.path)}."
        )


class BadRowError(SourceFileError):
    """A record does not parse as the declared columns. `record` counts from 1 within the file, a header not counted."""

    def __init__(self, path: str, record: int, text: str, reason: str) -> None:
        super().__init__(path, record, text, reason)
        self.path, self.record, self.text, self.reason = path, record, text, reason

    def __str__(self) -> str:
        return (
            f"file {self.path}, record {self.record}: {self.text!r} does not parse: {self.reason}. "
            f"Repair the record, and the next run takes the file in; or go on: {ways_on(self.path)}."
        )


class BadTextError(SourceFileError):
    """A string whose bytes are not UTF-8. `record` counts from 1 within the file, a header not counted."""

    def __init__(self, path: str, record: int, column: str, found: str) -> None:
        super().__init__(path, record, column, found)
        self.path, self.record, self.column, self.found = path, record, column, found

    def __str__(self) -> str:
        return (
            f"file {self.path}, row {self.record}, column {self.column!r}: the bytes {self.found} are not UTF-8, and a string has to be. "
            "Write the file with the text in UTF-8, declare the column as binary, or go on: "
            f"{ways_on(self.path)}."
        )


class TooFineTimeError(SourceFileError):
    """A time with digits below the microsecond, which no type of Spark holds. `record` counts from 1 within the file."""

    def __init__(self, path: str, record: int, column: str, expected: str) -> None:
        super().__init__(path, record, column, expected)
        self.path, self.record, self.column, self.expected = path, record, column, expected

    def __str__(self) -> str:
        return (
            f"file {self.path}, row {self.record}, column {self.column!r}: the time has digits below the microsecond, and {self.expected} "
            "holds microseconds. Spark reads no times in nanoseconds. Write the file with times in microseconds, declare the column as "
            f"bigint (nanoseconds since 1970-01-01), or go on: {ways_on(self.path)}."
        )


class BadInsertTextError(InputError):
    """A string of an INSERT whose bytes are not UTF-8. `row` counts from 1 among the rows of the statement."""

    def __init__(self, table: str, row: int, column: str, found: str) -> None:
        super().__init__(table, row, column, found)
        self.table, self.row, self.column, self.found = table, row, column, found

    def __str__(self) -> str:
        return (
            f"INSERT INTO {self.table}, row {self.row}, column {self.column!r}: the bytes {self.found} are not UTF-8, and a string has to "
            "be. Nothing was logged. Correct the text, or declare the column as binary."
        )


class UnsupportedFormatError(InputError):
    """A format that no reader takes."""

    def __init__(self, source: str, found: str, supported: tuple[str, ...]) -> None:
        super().__init__(source, found, supported)
        self.source, self.found, self.supported = source, found, supported

    def __str__(self) -> str:
        return f"source {self.source!r}: format {self.found!r} is not supported; expected USING {' | '.join(self.supported)}"


class MissingSparkModuleError(InputError):
    """A format whose reader is a module that this Spark session was started without."""

    def __init__(self, source: str, format: str, package: str) -> None:
        super().__init__(source, format, package)
        self.source, self.format, self.package = source, format, package

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: Spark reads {self.format} by a module that this session was started without. Start Spark with the "
            f"setting spark.jars.packages = {self.package} (spark-submit --packages {self.package}); Spark downloads it once."
        )


class BadOptionError(InputError):
    """An option of a source that cannot be honoured."""

    def __init__(self, source: str, option: str, value: str, reason: str) -> None:
        super().__init__(source, option, value, reason)
        self.source, self.option, self.value, self.reason = source, option, value, reason

    def __str__(self) -> str:
        return f"source {self.source!r}, option {self.option} = {self.value!r}: {self.reason}. Create the source without it."
