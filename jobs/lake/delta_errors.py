"""Errors of a Delta table itself, whichever way it is read."""

from tussock.statestore.errors import InputError


class DeltaLogError(InputError):
    """The log of a Delta table cannot be read: an entry is damaged or missing, or no reader here knows what it holds."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place, self.reason = place, reason

    def __str__(self) -> str:
        return (
            f"the log of the Delta table {self.place} cannot be read: {self.reason.rstrip('.')}. Views keep the rows that were taken, and "
            "the first run after the table can be read again takes its changes in. If its writer is at work, wait for it; if a copy of the "
            "table is incomplete, copy the folder _delta_log again; DESCRIBE HISTORY of the table in Spark shows what its writer did last."
        )
