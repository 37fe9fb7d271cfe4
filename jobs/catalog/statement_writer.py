"""Append bound statements to the log, after their rows are stored."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from tussock.jobs.logical.statements import Change, Delete, Insert, Statement, Update
from tussock.jobs.plan.statement_log import require_taken, statement_text
from tussock.jobs.sources.text import require_insert_text
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.statement_log import LogMovedError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


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

    def append_next(
        self, version: HummockVersion, catalog: Catalog, text: str, statement: Statement, reads: Sequence[str]
    ) -> Answer:
        """Append a statement that was computed from committed rows.

        Statements that others logged meanwhile are taken into account.

        Raises: WaitingStatementsError; as `append`.
        """
        while True:
            end = require_taken(self._meta, version, catalog, reads)
            with suppress(LogMovedError):
                return self.append(catalog, text, statement, end)

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
