"""What can be wrong with a source's files. Each stops the epoch before anything of it is visible."""

from statestore.errors import InputError

_SKIP = "run `tussock barrier abandon` to go on without this file, or with the file as it is now"


class BadPathError(InputError):
    """The `path` option is not a path, glob or interval template."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return (
            f"source path {self.path!r}: {self.reason}. A path is a file, a directory, a glob (*, ?, [], **) or a template with "
            "{start:%Y-%m-%d} and {end:…}, on the local file system, file:// or s3://bucket/."
        )


class MissingPathError(InputError):
    """No file is where the source says."""

    def __init__(self, path: str, near: tuple[str, ...]) -> None:
        super().__init__(path, near)
        self.path, self.near = path, near

    def __str__(self) -> str:
        near = f"what exists near it: {', '.join(self.near)}" if self.near else "nothing exists near it either"
        return (
            f"no file at {self.path!r}; {near}. Files whose name starts with `.` or `_` do not count. Put the file there, "
            "or correct the source's path."
        )


class ChangedFileError(InputError):
    """A file is not the one that was recorded."""

    def __init__(self, path: str, recorded: str, found: str) -> None:
        super().__init__(path, recorded, found)
        self.path, self.recorded, self.found = path, recorded, found

    def __str__(self) -> str:
        return (
            f"file {self.path} has changed: recorded {self.recorded}, found {self.found}. A file that was taken never changes; "
            f"nothing of this epoch was committed. Put the file back and write the change as a new file, or {_SKIP}."
        )


class UnreadableFileError(InputError):
    """A file cannot be read as what the source says it is."""

    def __init__(self, path: str, format: str, reason: str) -> None:
        super().__init__(path, format, reason)
        self.path, self.format, self.reason = path, format, reason

    def __str__(self) -> str:
        return (
            f"file {self.path} cannot be read as {self.format}: {self.reason}. Nothing of this epoch was committed. "
            f"Repair the file, or {_SKIP}."
        )


class SchemaMismatchError(InputError):
    """A column of a file is missing or of a type that does not read as the declared one."""

    def __init__(self, path: str, column: str, found: str, expected: str) -> None:
        super().__init__(path, column, found, expected)
        self.path, self.column, self.found, self.expected = path, column, found, expected

    def __str__(self) -> str:
        return (
            f"file {self.path}, column {self.column!r}: found {self.found}, expected {self.expected}. Nothing of this epoch was committed. "
            f"Write the file with the source's declared columns, or {_SKIP}."
        )


class BadRowError(InputError):
    """A record does not parse as the declared columns. `record` counts from 1 within the file, a header not counted."""

    def __init__(self, path: str, record: int, text: str, reason: str) -> None:
        super().__init__(path, record, text, reason)
        self.path, self.record, self.text, self.reason = path, record, text, reason

    def __str__(self) -> str:
        return (
            f"file {self.path}, record {self.record}: {self.text!r} does not parse: {self.reason}. Nothing of this epoch was committed. "
            f"Repair the record, or {_SKIP}."
        )


class UnsupportedFormatError(InputError):
    """A format no reader here takes."""

    def __init__(self, found: str, supported: tuple[str, ...]) -> None:
        super().__init__(found, supported)
        self.found, self.supported = found, supported

    def __str__(self) -> str:
        return f"source format {self.found!r} is not supported; supported are {', '.join(self.supported)}"


class BadOptionError(InputError):
    """An option of a source that cannot be honoured."""

    def __init__(self, source: str, option: str, value: str, reason: str) -> None:
        super().__init__(source, option, value, reason)
        self.source, self.option, self.value, self.reason = source, option, value, reason

    def __str__(self) -> str:
        return f"source {self.source!r}, option {self.option} = {self.value!r}: {self.reason}. Create the source without it."
