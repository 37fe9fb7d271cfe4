"""Errors of a Delta table itself, however it is read."""

from tussock.statestore.errors import InputError


class DeltaLogError(InputError):
    """The log of a Delta table cannot be read: an entry is damaged or missing, or has unknown content."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place, self.reason = place, reason

    def __str__(self) -> str:
        return (
            f"the log of the Delta table {self.place} cannot be read: {self.reason.rstrip('.')}. Views keep the rows "
            "already read, and the first run after the repair reads the table's changes. If its writer is running, "
            "wait for it. If a copy of the table is incomplete, copy the folder _delta_log again. DESCRIBE HISTORY of "
            "the table in Spark shows its last changes."
        )
