"""Append bound statements to the log, after their rows are stored."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa

from tussock.jobs.catalog.statement_log import WaitingLog, skip_arguments, statement_text, statements_of
from tussock.jobs.logical.statements import (
    Change,
    CreateFunction,
    CreatePlainView,
    CreateSchema,
    CreateView,
    Delete,
    Drop,
    DropSchema,
    Insert,
    RecordZone,
    Single,
    Statement,
    Transaction,
    Update,
    computed_after,
)
from tussock.jobs.sources.text import require_insert_text
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.statement_log import LogMovedError
from tussock.statestore.meta.store import MetaStore


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one statement: a table for SELECT, SHOW and EXPLAIN, otherwise one line that confirms it."""

    statement: str
    message: str
    table: pa.Table | None = None


class SkippedInputError(InputError):
    """An entry was logged while a barrier began to skip entries from whose result it was computed.

    `entry`: its position in the log; `skipped`: the positions of the others. `take_log`: the barrier does not take it.
    """

    def __init__(self, entry: int, skipped: Sequence[int], take_log: bool) -> None:
        super().__init__(entry, list(skipped), take_log)
        self.entry, self.skipped, self.take_log = entry, tuple(skipped), take_log

    def __str__(self) -> str:
        return (
            f"log entry {self.entry} was computed from the result of log entries {', '.join(map(str, self.skipped))}, "
            "and a barrier began to skip these at the same moment. The entry is in the log. Before the next epoch, run "
            f"`tussock barrier abandon {skip_arguments([self.entry], self.take_log)}`, then give the statement again."
        )


class FollowingBranchError(InputError):
    """A statement on a table or source of a branch that follows its parent."""

    branch: str
    statement: str

    def __str__(self) -> str:
        return (
            f"branch {self.branch!r} follows its parent, so its tables and sources are the parent's, and it refuses "
            f"this statement: {self.statement}. Views, functions and schemas can change here, and tables and sources "
            "can be dropped. For a branch that takes its own input, create another one with `--own`."
        )


def require_own_input(meta: MetaStore, what: str) -> None:
    """Raise FollowingBranchError if a branch follows its parent, so that its input cannot change as in `what`."""
    if meta.follows and meta.settings.origin is not None:
        raise FollowingBranchError(meta.settings.origin.name, what)


_ON_BRANCHES = CreateView | CreatePlainView | CreateFunction | CreateSchema | Drop | DropSchema | RecordZone
"""Statements that leave the input of a store as it is, or end it."""


def _parts_of(statement: Statement) -> tuple[Single, ...]:
    return statement.statements if isinstance(statement, Transaction) else (statement,)


def _require_on_views(meta: MetaStore, statement: Statement) -> None:
    """Raise FollowingBranchError if a statement changes the rows, columns or options of a table or source."""
    for part in _parts_of(statement):
        if not isinstance(part, _ON_BRANCHES):
            require_own_input(meta, statement_text(part))


class StatementWriter:
    """Writes to a store's log. A statement is durable when `check_and_append` returns."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta

    def store_insert(self, table: str, rows: pa.Table) -> Insert:
        """Store rows and return the INSERT of them. Raises if a text is not UTF-8."""
        require_insert_text(table, rows)
        return Insert(table, rows.num_rows, self._store_rows(rows))

    def store_change(self, table: str, rows: pa.Table) -> Change:
        """Store the rows of a `statements.Change` and return it. Raises as `store_insert`."""
        require_insert_text(table, rows)
        return Change(table, rows.num_rows, self._store_rows(rows))

    def append_read(
        self, catalog: Catalog, text: str, statement: Statement, waiting: WaitingLog, reads: Sequence[str]
    ) -> Answer:
        """Append a statement whose rows were computed after the waiting statements.

        Args:
            reads: the relations that it read.

        Raises: LogMovedError if another session has changed them meanwhile, or if an epoch has skipped a statement that
            was read: nothing was appended, and the rows must be computed again. As `check_and_append`.
        """
        end = waiting.end
        names = {*reads, *waiting.tables_among(reads)}
        while True:
            try:
                return self.check_and_append(catalog, text, statement, end, waiting)
            except LogMovedError:
                after = self._meta.log_end()
                if after == end:  # the log has not moved: a barrier skips an entry that was read
                    raise
                if replace(waiting, statements=statements_of(self._meta, end, after)).statements_on(names):
                    raise
                end = after

    def check_and_append(
        self,
        catalog: Catalog,
        text: str,
        statement: Statement,
        expected: int | None = None,
        waiting: WaitingLog | None = None,
    ) -> Answer:
        """Append a statement that can be maintained and applied. For others, raise InputError and log nothing.

        Args:
            catalog: the pending catalog.
            expected, waiting: as of `log_statement`.
        """
        from tussock.jobs.catalog.checks import admit_statement

        after = admit_statement(catalog, statement, self._meta.read_latest().epoch + 1)
        changes_rows = any(isinstance(part, Insert | Change | Update | Delete) for part in _parts_of(statement))
        if after == catalog and not changes_rows:  # IF [NOT] EXISTS
            return Answer(text, f"nothing to do: {statement_text(statement)}")
        return self.log_and_answer(text, statement, expected, waiting)

    def log_and_answer(
        self,
        text: str,
        statement: Statement,
        expected: int | None = None,
        waiting: WaitingLog | None = None,
        client_id: str | None = None,
        since: int | None = None,
    ) -> Answer:
        """As `check_and_append`, for a statement that is already known to be valid.

        Arguments: as of `log_statement`.
        """
        return answer_of(text, statement, self.log_statement(statement, expected, waiting, client_id, since))

    def log_statement(
        self,
        statement: Statement,
        expected: int | None = None,
        waiting: WaitingLog | None = None,
        client_id: str | None = None,
        since: int | None = None,
    ) -> int:
        """Log a valid statement durably and return its position.

        Args:
            expected: the position that it must get, if any.
            waiting: the waiting statements from whose result its rows were computed, if any.
            client_id: of `new_client_id`, if the call may be repeated.
            since: the `expected` of the first call with this client id.

        Raises: FollowingBranchError; LogMovedError: the position is taken, or a barrier skips an entry from which it
            was computed. Nothing was appended. SkippedInputError: a barrier began to skip one meanwhile, and the
            statement is in the log.
        Cost: an append; for a statement that was computed from waiting ones, two probes per barrier since the
            committed epoch.
        """
        if self._meta.follows:
            _require_on_views(self._meta, statement)
        if waiting is not None and _is_outdated(self._meta, waiting, statement):
            raise LogMovedError(waiting.end, self._meta.log_end())
        body = msgspec.json.encode(statement)
        if client_id is None:
            position = self._meta.append_log(self.new_client_id(), body, expected, is_new=True)
        else:
            position = self._meta.append_log(client_id, body, expected, since)
        # Again: a barrier that came between did not see this entry. One that comes later sees it (`abandon_barrier`).
        if waiting is not None and (barrier := _find_skipping_barrier(self._meta, waiting, statement)) is not None:
            skipped = sorted(computed_after(statement) & {*barrier.skipped_entries})
            raise SkippedInputError(position, skipped, position >= barrier.log_end)
        return position

    def new_client_id(self) -> str:
        """The name of one append. Repeating the append with it adds no second entry.

        Two statements with one name would be one entry, and the second would be lost. A random name differs between the
        writers of one MetaStore, between threads, and between a process and its forked children.
        """
        return f"{self._meta.writer}/{secrets.token_hex(8)}"

    def _store_rows(self, rows: pa.Table) -> str:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return self._meta.put_payload(sink.getvalue().to_pybytes())


def answer_of(text: str, statement: Statement, position: int) -> Answer:
    """The answer to a statement that is in the log."""
    return Answer(text, f"log entry {position}: {statement_text(statement)}; takes effect with the next epoch")


def _is_outdated(meta: MetaStore, waiting: WaitingLog, statement: Statement) -> bool:
    """Whether a statement was computed from an entry that a barrier skips, or so long ago that this is unknown.

    Vacuum removes barriers of epochs below the floor.
    """
    if not computed_after(statement):
        return False
    if _find_skipping_barrier(meta, waiting, statement) is not None:
        return True
    return waiting.version.epoch < meta.read_latest().min_readable_epoch  # read after the barriers


def _find_skipping_barrier(meta: MetaStore, waiting: WaitingLog, statement: Statement) -> Barrier | None:
    """The barrier that skips an entry from whose result a statement was computed, if any.

    Cost: nothing if it was computed from committed rows; otherwise a probe per barrier since the committed epoch.
    """
    through, epoch = computed_after(statement), waiting.version.epoch
    while through and (barrier := meta.barrier_after(epoch)) is not None:
        if through & {*barrier.skipped_entries}:
            return barrier
        epoch = barrier.epoch
    return None
