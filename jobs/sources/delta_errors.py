"""What can be wrong with a Delta table that is read as a source."""

import shlex

from tussock.jobs.flow.failure import SourceFileError
from tussock.statestore.errors import InputError

_ANEW = (
    "Its rows can only be taken in from the beginning: DROP SOURCE {0} (CASCADE drops its readers too), and create it and them again. "
    "Until then the source is held and views keep the rows that were taken."
)


class MissingDeltaTableError(InputError):
    """No Delta table is where a source says."""

    def __init__(self, source: str, place: str) -> None:
        super().__init__(source, place)
        self.source, self.place = source, place

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: there is no Delta table at {self.place} (it has no log, _delta_log). Write the table "
            "first, or correct the path."
        )


class DeltaTableReplacedError(InputError):
    """The table that a source has read is not there any more; another one is in its place."""

    def __init__(self, source: str, place: str, recorded: str, found: str) -> None:
        super().__init__(source, place, recorded, found)
        self.source, self.place, self.recorded, self.found = source, place, recorded, found

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: the Delta table at {self.place} was dropped and made anew: taken was {self.recorded}, found "
            f"{self.found}. Nothing says which rows of the one are rows of the other. {_ANEW.format(self.source)}"
        )


class DeltaHistoryGoneError(InputError):
    """The history that leads from what was taken to what is there has been removed, from the log or by VACUUM."""

    def __init__(self, source: str, place: str, taken: int, gone: str) -> None:
        super().__init__(source, place, taken, gone)
        self.source, self.place, self.taken, self.gone = source, place, taken, gone

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: the changes of the Delta table {self.place} since version {self.taken}, which was taken, can't be "
            f"read: {self.gone} is gone, by VACUUM or as the log was cleaned up. Restore the file, if a copy is left. "
            f"{_ANEW.format(self.source)} So that it does not happen again, keep the table's history for longer than the time "
            "between two runs (delta.logRetentionDuration, delta.deletedFileRetentionDuration)."
        )


class DeltaSchemaChangedError(InputError):
    """A version of the table lacks a declared column, or has it in a type that does not read as the declared one."""

    def __init__(self, source: str, place: str, version: int, column: str, found: str, expected: str) -> None:
        super().__init__(source, place, version, column, found, expected)
        self.source, self.place, self.version = source, place, version
        self.column, self.found, self.expected = column, found, expected

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: version {self.version} of the Delta table {self.place}, column {self.column!r}: found {self.found}, "
            f"expected {self.expected}. Give the table the column as it was; or DROP SOURCE {self.source} and create it with the columns "
            "that the table has. Until then the source is held and views keep the rows that were taken."
        )


class UnsupportedDeltaFeatureError(InputError):
    """The table uses a feature that its reader has to know, and this one does not."""

    def __init__(self, source: str, place: str, feature: str) -> None:
        super().__init__(source, place, feature)
        self.source, self.place, self.feature = source, place, feature

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: the Delta table at {self.place} uses {self.feature}, which a source can't read exactly. Drop the "
            "feature from the table (ALTER TABLE … DROP FEATURE), or copy its rows to a table without it and read that one."
        )


class BadDeltaKeyError(InputError):
    """The option `key` names what can't be a key."""

    def __init__(self, source: str, column: str, reason: str) -> None:
        super().__init__(source, column, reason)
        self.source, self.column, self.reason = source, column, reason

    def __str__(self) -> str:
        return (
            f"source {self.source!r}, option key: {self.column!r} {self.reason}. Name the columns that identify a row, with commas between "
            "them; or leave the option out: rows are told apart by their values then, and equal ones are counted."
        )


class UnskippableVersionError(InputError):
    """Somebody wants a version of a table to be skipped."""

    def __init__(self, source: str, item: str) -> None:
        super().__init__(source, item)
        self.source, self.item = source, item

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.item!r} can't be skipped: later versions of the table change the rows of earlier ones. Correct "
            "the table, or drop the source."
        )


class DeltaReadError(SourceFileError):
    """What a version of a table names can't be read. `path` is the pinned item, as the barrier names it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.reason}\n  `tussock barrier abandon --repin-file {shlex.quote(self.path)}` tries it again once that is "
            "mended; otherwise drop the source and create it again."
        )
