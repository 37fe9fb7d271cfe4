"""BEGIN … COMMIT: the statements of a session that enter the log as one entry, or not at all.

Each statement is bound, and its rows computed, when it is given: over the waiting statements of the log and the
earlier statements of the transaction. COMMIT appends them at the position that they were computed for. If another
session's entry, or an epoch, has come in between, all of them are computed again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tussock.jobs.catalog.statement_log import PendingCatalog, WaitingLog, decoded_statement
from tussock.jobs.reading.pending_rows import EpochMovedError
from tussock.jobs.statements.statement_writer import Answer, StatementWriter, answer_of
from tussock.jobs.statements.transaction import DraftTransaction
from tussock.statestore.errors import InputError
from tussock.statestore.meta.statement_log import LogMovedError
from tussock.statestore.meta.store import MetaStore


class TransactionError(InputError):
    """A statement does not fit the state of the session's transaction."""

    finding: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.finding}. Nothing was changed. {self.remedy}."


def ended_within_transaction(statements: int) -> TransactionError:
    """The error of a script, or of a person at a prompt, without COMMIT at the end."""
    lost = f"its {statements} statement{' was' if statements == 1 else 's were'} rolled back"
    return TransactionError(f"the statements end within a transaction, so {lost}", "Add COMMIT after them")


#: Adds one statement to a draft, which follows the waiting statements.
Step = Callable[[DraftTransaction, WaitingLog], Answer]


@dataclass(slots=True)
class OpenTransaction:
    """The transaction of a session, from BEGIN to COMMIT or ROLLBACK.

    Args:
        settle: binds the views again that read a changed relation. Raises CannotFollowError.
    """

    meta: MetaStore
    pending: PendingCatalog
    writer: StatementWriter
    settle: Callable[[DraftTransaction], object]
    _steps: list[Step] = field(default_factory=list)
    _draft: DraftTransaction | None = None  # of the steps so far
    _before: WaitingLog | None = None  # under the draft
    _failed: bool = False
    _client_id: str = field(init=False)  # of COMMIT, so that it can be given again
    _since: int | None = None  # the log's end before the first COMMIT
    _unsure: bool = False

    def __post_init__(self) -> None:
        self._client_id = self.writer.new_client_id()

    @property
    def statement_count(self) -> int:
        """The number of statements that COMMIT would log."""
        return len(self._steps)

    @property
    def is_unsure(self) -> bool:
        """Whether a COMMIT broke off, so that the entry may be in the log or not."""
        return self._unsure

    @property
    def logged_position(self) -> int | None:
        """The position of the entry, if a COMMIT that broke off has logged it. Cost: a few GETs after such a COMMIT."""
        return self.meta.logged_position(self._client_id, self._since) if self._unsure else None

    @property
    def drafted_log(self) -> WaitingLog:
        """The waiting statements followed by the transaction's. Raises TransactionError after an error."""
        self._require_open()
        draft, before = self._current_draft()
        return draft.waiting_log(before)

    def add_statement(self, step: Step) -> Answer:
        """Add a statement. After an error in one, the transaction accepts no other.

        Raises: LogMovedError, EpochMovedError: give it again; TransactionError; errors of the step.
        """
        self._require_open()
        try:
            draft, before = self._current_draft()
            answer = step(draft, before)
        except BaseException as err:
            self._draft = None  # it may contain the statement
            # After these, and after Ctrl-C, the transaction is as before the statement.
            if isinstance(err, Exception) and not isinstance(err, LogMovedError | EpochMovedError):
                self._failed = True
            raise
        if answer.table is None:  # an answer with rows has changed nothing
            self._steps.append(step)
        return answer

    def commit(self, text: str) -> Answer:
        """Append the statements to the log as one entry, unless a COMMIT that broke off has done so.

        Raises: LogMovedError, EpochMovedError: nothing was appended, commit again; TransactionError; errors of the
            steps; SkippedInputError: they are in the log. After any other error, see `is_unsure`.
        """
        self._require_sound()
        if (position := self.logged_position) is not None:
            (entry,) = self.meta.read_log(position, position + 1)
            return answer_of(text, decoded_statement(entry), position)
        draft, before = self._current_draft()
        if not draft.statements:
            return Answer(text, "nothing to commit")
        self.settle(draft)
        statement = draft.to_statement()
        if self._since is None:
            self._since = before.end
        self._unsure = True
        try:
            answer = self.writer.log_and_answer(
                text, statement, expected=before.end, waiting=before, client_id=self._client_id, since=self._since
            )
        except (LogMovedError, InputError):
            self._unsure = False
            raise
        self._unsure = False
        return answer

    def _require_open(self) -> None:
        self._require_sound()
        if self._unsure:
            raise TransactionError(
                "COMMIT broke off, so this transaction may be in the log already", "Give COMMIT again, or ROLLBACK"
            )

    def _require_sound(self) -> None:
        if self._failed:
            raise TransactionError(
                "a statement of this transaction failed", "Give ROLLBACK, then the statements again from BEGIN on"
            )

    def _current_draft(self) -> tuple[DraftTransaction, WaitingLog]:
        """The draft over the current log. Computes the statements again if the log or the epoch has moved."""
        version = self.meta.read_latest()
        catalog = self.pending.read_catalog(version)
        before = self.pending.waiting_log()
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
