"""Errors of a detour around input that blocks the epoch."""

from collections.abc import Sequence

from tussock.jobs.catalog.statement_log import skip_arguments
from tussock.statestore.errors import InputError


class NothingToAbandonError(InputError):
    """No barrier is open, or the detour does not change it."""

    epoch: int
    reason: str

    def __str__(self) -> str:
        return f"nothing to abandon after epoch {self.epoch}: {self.reason}"


class CreatedAgainError(InputError):
    """The newer log entries create a view again that the barrier drops, so it cannot take them too.

    `entry`: the position of the entry that creates it.
    """

    view: str
    entry: int

    def __str__(self) -> str:
        return (
            f"The epoch that has begun drops {self.view!r}, and log entry {self.entry} creates it again. Both are not "
            "possible in one epoch, and nothing was changed. Omit --take-log: run `tussock epoch`, whose next epoch "
            "takes the entry. Or, if no barrier has dropped the view yet and the entry replaces it, omit --drop."
        )


class ReadEntryError(InputError):
    """An entry of the log cannot be skipped alone, because later entries were computed from its result.

    `entries`: the entries to skip; `readers`: (position, short text) of the others that have to be skipped with them.
    `take_log`: the open barrier does not take all of the readers. `done`: it skips the entries already, and the
    readers were logged meanwhile.
    """

    def __init__(
        self,
        entries: Sequence[int],
        readers: Sequence[Sequence[int | str]],
        take_log: bool = False,
        done: bool = False,
    ) -> None:
        super().__init__(list(entries), [list(r) for r in readers], take_log, done)
        self.entries, self.take_log, self.done = tuple(entries), take_log, done
        self.readers = tuple((int(position), str(text)) for position, text in readers)

    def __str__(self) -> str:
        skipped = ", ".join(map(str, self.entries))
        named = ", ".join(f"{position} ({text})" for position, text in self.readers)
        late = [position for position, _ in self.readers]
        if self.done:
            return (
                f"log entries {skipped} are skipped now, but entries that were logged meanwhile were computed from "
                f"their result: {named}. To skip these too, run "
                f"`tussock barrier abandon {skip_arguments(late, self.take_log)}` before the next epoch."
            )
        every = sorted({*self.entries, *late})
        return (
            f"log entries {skipped} cannot be skipped alone, because later entries were computed from their result: "
            f"{named}. Nothing was changed. To skip all of them, run "
            f"`tussock barrier abandon {skip_arguments(every, self.take_log)}`."
        )
