"""Append bound statements to the log, after their rows are stored."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa

from tussock.jobs.logical.statements import Change, Delete, Insert, Statement, Update, computed_after
from tussock.jobs.plan.statement_log import WaitingLog, statement_text, statements_of
from tussock.jobs.sources.text import require_insert_text
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.statement_log import LogMovedError
from tussock.statestore.meta.store import MetaStore


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one statement: a table for SELECT, SHOW and EXPLAIN, otherwise one line that confirms it."""

    statement: str
    message: str
    table: pa.Table | None = None


class StatementWriter:
    """Writes to a store's log for one process. A statement is durable when `append` returns."""

    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._written = 0

    def insert(self, table: str, rows: pa.Table) -> Insert:
        """Store rows and return the INSERT of them. Raises if a text is not UTF-8."""
        require_insert_text(table, rows)
        return Insert(table, rows.num_rows, self._stored(rows))

    def change(self, table: str, rows: pa.Table) -> Change:
        """Store the rows of a `statements.Change` and return it. Raises as `insert`."""
        require_insert_text(table, rows)
        return Change(table, rows.num_rows, self._stored(rows))

    def append_read(
        self, catalog: Catalog, text: str, statement: Statement, waiting: WaitingLog, reads: Sequence[str]
    ) -> Answer:
        """Append a statement whose rows were computed after the waiting statements.

        Args:
            reads: the relations that it read.

        Raises: LogMovedError if another session has changed them meanwhile, or if an epoch has skipped a statement that
            was read: nothing was appended, and the rows must be computed again. As `append`.
        """
        end = waiting.end
        names = {*reads, *waiting.tables(reads)}
        while True:
            require_not_skipped(self._meta, waiting, statement)
            try:
                return self.append(catalog, text, statement, end)
            except LogMovedError:
                after = self._meta.log_end()
                if replace(waiting, statements=statements_of(self._meta, end, after)).on(names):
                    raise
                end = after

    def append(self, catalog: Catalog, text: str, statement: Statement, expected: int | None = None) -> Answer:
        """Append a statement that can be maintained and applied. For others, raise InputError and log nothing.

        Args:
            catalog: the pending catalog.
            expected: the position that it must get, if any. Raises LogMovedError if it is taken.
        """
        from tussock.jobs.plan.checks import admitted

        after = admitted(catalog, statement, self._meta.latest().epoch + 1)
        if after == catalog and not isinstance(statement, Insert | Change | Update | Delete):  # IF [NOT] EXISTS
            return Answer(text, f"nothing to do: {statement_text(statement)}")
        return self.log(text, statement, expected)

    def log(self, text: str, statement: Statement, expected: int | None = None) -> Answer:
        """As `append`, for a statement that is already known to be valid."""
        position = self.logged(statement, expected)
        return Answer(text, f"log entry {position}: {statement_text(statement)}; takes effect with the next epoch")

    def logged(self, statement: Statement, expected: int | None = None) -> int:
        """Log a valid statement durably and return its position. Raises LogMovedError."""
        self._written += 1
        return self._meta.append_log(f"{self._meta.writer}/{self._written}", msgspec.json.encode(statement), expected)

    def _stored(self, rows: pa.Table) -> str:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return self._meta.put_payload(sink.getvalue().to_pybytes())


def require_not_skipped(meta: MetaStore, waiting: WaitingLog, statement: Statement) -> None:
    """Raise LogMovedError if a barrier skips an entry from whose result a statement was computed.

    Cost: nothing if it was computed from committed rows; otherwise a probe per barrier since the committed epoch.
    """
    through, epoch = computed_after(statement), waiting.version.epoch
    while through and (barrier := meta.barrier_after(epoch)) is not None:
        if through & {*barrier.skipped_entries}:
            raise LogMovedError(waiting.end, meta.log_end())
        epoch = barrier.epoch
