"""Errors of an Iceberg table that is read as a source."""

from tussock.jobs.sources.errors import only_anew
from tussock.statestore.errors import InputError


class MissingBranchError(InputError, hides_row_values=True):
    """The table has no branch of the name that a source reads."""

    source: str
    table: str
    branch: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        there = f"its branches: {', '.join(self.known)}" if self.known else "it has no snapshot yet"
        return (
            f"source {self.source!r}: the Iceberg table {self.table} has no branch {self.branch!r} ({there}). Create "
            "the branch or write the table's first rows, or correct the option branch."
        )


class IcebergHistoryGoneError(InputError):
    """The snapshot that a source has taken, or a file of the changes since then, was removed."""

    source: str
    table: str
    taken: int
    gone: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: the changes of the Iceberg table {self.table} since snapshot {self.taken}, the "
            f"last one read, cannot be read: {self.gone}. Restore the file if you have a copy. "
            f"{only_anew(self.source)} To prevent this, keep snapshots for longer than the time between two runs "
            "(history.expire.max-snapshot-age-ms, older_than of expire_snapshots)."
        )


class IcebergRolledBackError(InputError, hides_row_values=True):
    """The current snapshot does not descend from the one that a source has taken."""

    source: str
    table: str
    taken: int
    current: int

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: the Iceberg table {self.table} was rolled back: its snapshot {self.current} does "
            f"not descend from snapshot {self.taken}, the last one read. Views would take back the rows of the "
            f"snapshots that were undone. If this is right, run ALTER SOURCE {self.source} SET OPTIONS (rollbacks "
            f"'follow'), and the next run makes the views equal to snapshot {self.current}. If the rollback was a "
            "mistake, set the table to its former snapshot again. Until then the source is held."
        )
