"""Runs the statements of a session one after another, also in a transaction."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from tussock.jobs.catalog.definition import find_relation
from tussock.jobs.catalog.fed_tables import require_not_fed
from tussock.jobs.catalog.statement_log import PendingCatalog, WaitingLog, statement_text
from tussock.jobs.logical.script import ScriptStatement
from tussock.jobs.logical.statements import (
    Bound,
    Change,
    CreateFunction,
    CreatePlainView,
    CreateView,
    Delete,
    Explain,
    Insert,
    Query,
    SetSourceColumns,
    Show,
    Single,
    Update,
    UseSchema,
)
from tussock.jobs.logical.transaction_words import TransactionWord, transaction_word
from tussock.jobs.reading.pending_rows import EpochMovedError
from tussock.jobs.reading.rejected import count_rejects
from tussock.jobs.statements.insert import rows_for_table
from tussock.jobs.statements.open_transaction import OpenTransaction, TransactionError
from tussock.jobs.statements.selects import Selects
from tussock.jobs.statements.show import answer_explain, answer_show
from tussock.jobs.statements.statement_maker import StatementMaker
from tussock.jobs.statements.statement_writer import Answer, StatementWriter
from tussock.jobs.statements.transaction import DraftTransaction
from tussock.statestore.errors import RetryableError
from tussock.statestore.meta.catalog import Catalog, RelationKind
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.statement_log import LogMovedError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

T = TypeVar("T")

ATTEMPTS = 10  # other sessions may change what a statement reads before it is logged


class StatementRunner:
    """Statements of one session, and its open transaction. Serves one thread at a time."""

    def __init__(
        self,
        meta: MetaStore,
        pending: PendingCatalog,
        statements: StatementMaker,
        writer: StatementWriter,
        selects: Selects,
    ) -> None:
        self._meta, self._pending, self._statements = meta, pending, statements
        self._writer, self._selects = writer, selects
        self.transaction: OpenTransaction | None = None

    def execute(self, statement: ScriptStatement, base: Path) -> Answer:
        """Run one statement: log it, or add it to the open transaction, or answer it if it only reads.

        `base`: the folder for relative paths of sources.
        """
        text = statement.text
        match transaction_word(text):
            case TransactionWord.BEGIN:
                if self.transaction is not None:
                    raise TransactionError("a transaction is open already", "COMMIT or ROLLBACK it first")
                self.transaction = OpenTransaction(
                    self._meta, self._pending, self._writer, self._statements.settle_views
                )
                return Answer(text, "transaction begun; COMMIT logs its statements as one entry")
            case TransactionWord.COMMIT:
                return self._commit_transaction(text, self._opened_transaction())
            case TransactionWord.ROLLBACK:
                position = self._opened_transaction().logged_position
                self.transaction = None
                if position is not None:
                    raise TransactionError(
                        f"COMMIT has logged this transaction already, as log entry {position}",
                        "It can only be undone by other statements",
                    )
                return Answer(text, "transaction rolled back; nothing was logged")
        if (transaction_now := self.transaction) is not None:
            return self.run_with_retries(
                lambda: transaction_now.add_statement(partial(self._add_to_transaction, statement, base))
            )
        return self.run_with_retries(lambda: self._execute_at_end(statement, base))

    def _commit_transaction(self, text: str, transaction: OpenTransaction) -> Answer:
        """Log the open transaction. It stays open after an error after which COMMIT may be given again."""
        try:
            answer = self.run_with_retries(lambda: transaction.commit(text))
        except BaseException as err:
            if transaction.is_unsure:
                err.add_note(
                    "COMMIT broke off, so the transaction may be in the log or not. In this session, COMMIT can be "
                    "given again, and logs it at most once."
                )
            if isinstance(err, Exception) and not isinstance(err, RetryableError):
                self.end_transaction(transaction)
            raise
        self.transaction = None
        return answer

    def _opened_transaction(self) -> OpenTransaction:
        if self.transaction is None:
            raise TransactionError("no transaction is open", "Start one with BEGIN")
        return self.transaction

    def insert_rows(self, table: str, rows: pa.Table) -> Answer:
        """Log an INSERT of rows, or add it to the open transaction. Arguments and errors: as `Session.insert`."""
        if (transaction := self.transaction) is not None:
            return self.run_with_retries(lambda: transaction.add_statement(partial(self._draft_rows, table, rows)))
        statement = self._make_insert(self._pending.read_catalog(self._meta.read_latest()), table, rows)
        return self._writer.log_and_answer(f"insert into {statement.table}", statement)

    def _make_insert(self, catalog: Catalog, table: str, rows: pa.Table) -> Insert:
        relation = find_relation(catalog, table, RelationKind.TABLE)
        require_not_fed(catalog, relation, "INSERT INTO")
        return self._writer.store_insert(relation.name, rows_for_table(relation, rows))

    def _draft_rows(self, table: str, rows: pa.Table, draft: DraftTransaction, waiting: WaitingLog) -> Answer:
        statement = self._make_insert(draft.catalog, table, rows)
        draft.add_statement(statement)
        return Answer(f"insert into {statement.table}", _describe_drafted(statement))

    def over_waiting(self, read: Callable[[WaitingLog], T]) -> T:
        """Read with the effect of the waiting statements, and of the open transaction.

        Raises: as `run_with_retries`.
        """
        return self.run_with_retries(lambda: read(self._waiting_log()))

    def _waiting_log(self) -> WaitingLog:
        """Return the waiting statements, and the open transaction's."""
        if self.transaction is not None:
            return self.transaction.drafted_log
        self._pending.read_catalog(self._meta.read_latest())
        return self._pending.waiting_log()

    def end_transaction(self, transaction: OpenTransaction | None) -> None:
        """End a transaction if it is still the open one, and certainly not in the log."""
        if transaction is not None and transaction is self.transaction and not transaction.is_unsure:
            self.transaction = None

    @contextmanager
    def require_no_transaction(self, call: str) -> Iterator[None]:
        """Guard a call that cannot be part of a transaction. Raises TransactionError."""
        if self.transaction is not None:
            raise TransactionError(f"{call} cannot run while a transaction is open", "COMMIT or ROLLBACK it first")
        yield

    @staticmethod
    def run_with_retries(statement: Callable[[], T]) -> T:
        """Run a statement. Run it again if another session has changed its input before it was logged.

        Raises the last LogMovedError or EpochMovedError after ATTEMPTS.
        """
        for _ in range(ATTEMPTS - 1):
            with suppress(LogMovedError, EpochMovedError):
                return statement()
        return statement()

    def _execute_at_end(self, written: ScriptStatement, base: Path) -> Answer:
        text = written.text
        version = self._meta.read_latest()
        catalog, end = self._pending.read_catalog(version), self._pending.log_end
        bound, notes = self._statements.bind_statement(catalog, version, written)
        if (answer := self._read_only(catalog, version, bound, written)) is not None:
            return answer
        to_log = self._statements.to_log(catalog, bound, base, self._pending.waiting_log)
        statement, notes = to_log.statement, (*notes, *to_log.notes)
        if isinstance(statement, Change) and statement.rows == 0:
            return add_notes(Answer(text, _describe_unchanged(statement)), notes)
        replaces = isinstance(statement, CreateView | CreatePlainView | CreateFunction) and statement.or_replace
        if replaces or isinstance(statement, SetSourceColumns):
            return add_notes(self._log_replacement(version, catalog, text, statement, end), notes)
        entry = self._statements.with_zones(catalog, statement)
        if to_log.waiting is not None:
            return add_notes(self._writer.append_read(catalog, text, entry, to_log.waiting, to_log.reads), notes)
        return add_notes(self._writer.check_and_append(catalog, text, entry), notes)

    def _read_only(
        self, catalog: Catalog, version: HummockVersion, bound: Bound, written: ScriptStatement
    ) -> Answer | None:
        """The answer to a statement that only reads; None for others."""
        text = written.text
        match bound:
            case Query():
                table = self._selects.select_rows(written, None)
                return Answer(text, f"{table.num_rows} rows", table)
            case Show():
                states = count_rejects(self._meta.objects, version), published_sight(version).held
                table = pa.table(dict(answer_show(catalog, bound, *states)))
                return Answer(text, f"{table.num_rows} rows", table)
            case UseSchema(name):
                return Answer(text, f"names without a schema mean the schema {name} until the next USE")
            case Explain():
                explained = answer_explain(catalog, bound, version.epoch + 1)
                return Answer(text, "explained", pa.table({"plan": explained.splitlines()}))
            case _:
                return None

    def _add_to_transaction(
        self, written: ScriptStatement, base: Path, draft: DraftTransaction, before: WaitingLog
    ) -> Answer:
        """Add a statement to the open transaction."""
        text = written.text
        bound, notes = self._statements.bind_statement(draft.catalog, before.version, written)
        if (answer := self._read_only(draft.catalog, before.version, bound, written)) is not None:
            return answer
        to_log = self._statements.to_log(draft.catalog, bound, base, lambda: draft.waiting_log(before))
        notes = (*notes, *to_log.notes)
        if isinstance(to_log.statement, Change) and to_log.statement.rows == 0:
            return add_notes(Answer(text, _describe_unchanged(to_log.statement)), notes)
        if not draft.add_statement(to_log.statement):
            return add_notes(Answer(text, f"nothing to do: {statement_text(to_log.statement)}"), notes)
        self._statements.record_zones(draft)
        self._statements.settle_views(draft, last=False)
        if isinstance(to_log.statement, Update | Delete):
            self._statements.require_replayable(draft.waiting_log(before), to_log.statement)
        return add_notes(Answer(text, _describe_drafted(to_log.statement)), notes)

    def _log_replacement(
        self, version: HummockVersion, catalog: Catalog, text: str, created: Single, end: int
    ) -> Answer:
        """Log a statement that changes a relation, with its effects on the views that read it. Raises LogMovedError."""
        draft = DraftTransaction(catalog, version.epoch + 1)
        if not draft.add_statement(created):
            return Answer(text, f"nothing to do: {statement_text(created)}")
        self._statements.settle_views(draft)
        self._statements.record_zones(draft)
        return self._writer.log_and_answer(text, draft.to_statement(), expected=end)

    def set_columns(self, change: SetSourceColumns) -> None:
        """Log the wider types of a source's columns, with the views that read them. Raises CannotFollowError."""

        def log_change() -> Answer:
            version = self._meta.read_latest()
            catalog = self._pending.read_catalog(version)
            return self._log_replacement(version, catalog, statement_text(change), change, self._pending.log_end)

        self.run_with_retries(log_change)


def _describe_drafted(statement: Single) -> str:
    return f"in the transaction: {statement_text(statement)}"


def _describe_unchanged(statement: Change) -> str:
    return f"nothing to do: no row of {statement.table} changes"


def add_notes(answer: Answer, notes: Sequence[str]) -> Answer:
    """Return the answer with notes on the view that was bound."""
    return replace(answer, message=answer.message + "".join(f"\n  note: {note}" for note in notes))
