"""Errors of a Delta table that is read as a source."""

from tussock.jobs.sources.errors import only_anew
from tussock.statestore.errors import InputError


class MissingDeltaTableError(InputError):
    """A source's path contains no Delta table."""

    source: str
    place: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: no Delta table at {self.place} (it has no log, _delta_log). Write the table "
            "first, or correct the path."
        )


class DeltaHistoryGoneError(InputError):
    """The history between the taken version and the current one was removed, from the log or by VACUUM."""

    source: str
    place: str
    taken: int
    gone: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: the changes of the Delta table {self.place} since version {self.taken}, the last "
            f"one read, cannot be read: {self.gone} is gone, because of VACUUM or the log's cleanup. Restore the file "
            f"if you have a copy. {only_anew(self.source)} To prevent this, keep the table's history for longer "
            "than the time between two runs (delta.logRetentionDuration, delta.deletedFileRetentionDuration)."
        )


class UnsupportedDeltaFeatureError(InputError, hides_row_values=True):
    """The table uses a feature that readers must support, and this reader does not."""

    source: str
    place: str
    feature: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: the Delta table at {self.place} uses {self.feature}, which sources do not "
            "support. Drop the feature from the table (ALTER TABLE … DROP FEATURE), or copy its rows to a table "
            "without it and read that table."
        )
