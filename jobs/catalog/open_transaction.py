"""BEGIN … COMMIT: the statements of a session that enter the log as one entry, or not at all.

Each statement is bound, and its rows computed, when it is given: over the waiting statements of the log and the
earlier statements of the transaction. COMMIT appends them at the position that they were computed for. If another
session's entry, or an epoch, has come in between, all of them are computed again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tussock.jobs.catalog.statement_writer import Answer, StatementWriter, require_not_skipped
from tussock.jobs.catalog.transaction import DraftTransaction
from tussock.jobs.plan.statement_log import PendingCatalog, WaitingLog
from tussock.jobs.reading.pending_rows import EpochMovedError
from tussock.statestore.errors import InputError
from tussock.statestore.meta.statement_log import LogMovedError
from tussock.statestore.meta.store import MetaStore


class TransactionError(InputError):
    """A statement does not fit the state of the session's transaction."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found, remedy)
        self.found, self.remedy = found, remedy

    def __str__(self) -> str:
        return f"{self.found}. Nothing was changed. {self.remedy}."


#: Adds one statement to a draft, which follows the waiting statements.
Step = Callable[[DraftTransaction, WaitingLog], Answer]


@dataclass(slots=True)
class OpenTransaction:
    """The transaction of a session, from BEGIN to COMMIT or ROLLBACK."""

    meta: MetaStore
    pending: PendingCatalog
    writer: StatementWriter
    _steps: list[Step] = field(default_factory=list)
    _draft: DraftTransaction | None = None  # of the steps so far
    _before: WaitingLog | None = None  # under the draft
    _failed: bool = False

    @property
    def drafted(self) -> WaitingLog:
        """The waiting statements followed by those of the transaction. Raises TransactionError after an error."""
        self._require_sound()
        draft, before = self._current()
        return draft.waiting(before)

    def take(self, step: Step) -> Answer:
        """Add a statement. After an error in one, the transaction accepts no other.

        Raises: LogMovedError, EpochMovedError: give it again; TransactionError; errors of the step.
        """
        self._require_sound()
        try:
            draft, before = self._current()
            answer = step(draft, before)
        except (LogMovedError, EpochMovedError):  # the caller gives the statement again
            self._draft = None
            raise
        except Exception:
            self._failed = True
            raise
        self._steps.append(step)
        return answer

    def commit(self, text: str) -> Answer:
        """Append the statements to the log as one entry.

        Raises: LogMovedError, EpochMovedError: nothing was appended, commit again; TransactionError; errors of the
            steps.
        """
        self._require_sound()
        draft, before = self._current()
        if not draft.statements:
            return Answer(text, "nothing to commit")
        statement = draft.statement()
        require_not_skipped(self.meta, before, statement)
        return self.writer.log(text, statement, expected=before.end)

    def _require_sound(self) -> None:
        if self._failed:
            raise TransactionError(
                "a statement of this transaction failed", "Give ROLLBACK, then the statements again from BEGIN on"
            )

    def _current(self) -> tuple[DraftTransaction, WaitingLog]:
        """The draft over the current log. Computes the statements again if the log or the epoch has moved."""
        version = self.meta.latest()
        catalog = self.pending.at(version)
        before = self.pending.waiting()
        known = self._before
        if (
            self._draft is None
            or known is None
            or (known.version.epoch, known.barrier, known.end) != (version.epoch, before.barrier, before.end)
        ):
            draft = DraftTransaction(catalog, version.epoch + 1)
            for step in self._steps:
                step(draft, before)
            self._draft = draft
        self._before = before
        return self._draft, before
