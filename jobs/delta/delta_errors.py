"""Errors of a Delta table itself, however it is read."""

from tussock.statestore.errors import InputError


class DeltaLogError(InputError):
    """The log of a Delta table cannot be read: an entry is damaged or missing, or has unknown content."""

    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the log of the Delta table {self.place} cannot be read: {self.reason.rstrip('.')}. Views keep the rows "
            "already read, and the first run after the repair reads the table's changes. If its writer is running, "
            "wait for it. If a copy of the table is incomplete, copy the folder _delta_log again. DESCRIBE HISTORY of "
            "the table in Spark shows its last changes."
        )


class OutsideFileError(InputError):
    """A table names a file outside of its folder, which its writer might not be allowed to read."""

    table: str
    name: str
    option: str

    def __str__(self) -> str:
        return (
            f"the table {self.table} names the file {self.name}, which is outside of the table's folder. Nothing was "
            "read from it: whoever writes the table could read any file of this process in this way. If the table is a "
            f"shallow clone, set the option {self.option} of the source to the folder of the table that has the file. "
            "If it is not, ask its writer."
        )
