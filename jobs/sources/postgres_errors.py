"""Errors of Postgres tables that are read as sources."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tussock.jobs.chunks.failure import SourceAwayError
from tussock.statestore.errors import InputError, RetryableError

if TYPE_CHECKING:
    import psycopg

    from tussock.jobs.postgres.connection import ServerFailure


class LoginDeniedError(InputError):
    """The Postgres server refuses the connection of a source's user."""

    source: str
    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.place} refuses the login: {self.reason}. The password comes from "
            "PGPASSWORD, PGPASSFILE, a service file, or the option password '${env:NAME}'. Correct it or the option "
            "user, or let the server admit the user (pg_hba.conf, GRANT CONNECT). Then run again."
        )


class DatabaseDeniedError(InputError):
    """The user of a source lacks a permission in its Postgres database."""

    source: str
    place: str
    reason: str
    user: str
    table: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.place} denies access: {self.reason}. The user needs to replicate and to "
            f"read: `ALTER ROLE {self.user} REPLICATION`, `GRANT SELECT ON {self.table} TO {self.user}`. If policies "
            f"hide rows of the table: `ALTER ROLE {self.user} BYPASSRLS`. Then run again."
        )


class DatabaseMissingError(InputError):
    """The database or the service of a source does not exist."""

    source: str
    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.place}: {self.reason}. Create it (a database: `createdb NAME`), or correct "
            "the options of the source, and run again."
        )


class MissingTableError(InputError):
    """The table of a source does not exist."""

    source: str
    table: str
    place: str
    near: tuple[str, ...]

    def __str__(self) -> str:
        near = f"Tables there: {', '.join(self.near)}. " if self.near else ""
        return (
            f"source {self.source!r}: {self.place} has no table {self.table}, or this user may not see it. {near}"
            "Correct the option table 'schema.name', or create the table, and run again."
        )


class UnreadableTableError(InputError):
    """The log does not contain all changes of a relation under its name.

    Args:
        finding: about the relation, without subject.
    """

    source: str
    table: str
    finding: str
    remedy: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.table} {self.finding}, so the log does not contain its changes. "
            f"{self.remedy}. The next run tries again."
        )


class LogLevelError(InputError, hides_row_values=True):
    """The log of a Postgres server does not contain changes of rows."""

    source: str
    place: str
    level: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.place} has wal_level={self.level}, and reading changes needs "
            "wal_level=logical. Run `ALTER SYSTEM SET wal_level = logical` as a superuser, and restart the server."
        )


class NoIdentityError(InputError, hides_row_values=True):
    """Deletions and updates of a table do not name the key of the source.

    Args:
        finding: about the identity of `table`.
        exists: the source has rows, and its changes were logged with this identity.
    """

    source: str
    table: str
    finding: str
    key: tuple[str, ...]
    exists: bool = False

    def __str__(self) -> str:
        after = f", and load the table again: `tussock restate {self.source} --all`" if self.exists else ""
        return (
            f"source {self.source!r}: {self.finding}, and the source declares PRIMARY KEY ({', '.join(self.key)}). "
            f"Declare the table's own key, or let the log contain all old values: `ALTER TABLE {self.table} REPLICA "
            f"IDENTITY FULL`{after}. The next run tries again."
        )


class UndeclaredTableError(InputError, hides_row_values=True):
    """A source of a Postgres table declares no columns or no key.

    Args:
        columns: the columns to declare, and the key.
    """

    source: str
    table: str
    columns: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: the source must declare its columns and its key. Those of {self.table}: "
            f"CREATE SOURCE {self.source} ({self.columns}) USING postgres …"
        )


class OtherColumnsError(InputError):
    """The columns of a Postgres table are not the declared ones."""

    source: str
    table: str
    finding: str
    exists: bool

    def __str__(self) -> str:
        after = (
            "Its changes wait in the log, and its rows stay as they are. Give the table its declared columns again, "
            f"and load it again (`tussock restate {self.source} --all`); or drop the source with its readers, and "
            "create them with the present columns."
            if self.exists
            else "Correct the columns of the source."
        )
        return f"source {self.source!r}: {self.table}: {self.finding}. {after}"


class LostSlotError(InputError):
    """Changes that a source has not read are gone from the server's log."""

    source: str
    slot: str
    finding: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.finding}. The changes since then cannot be read any more; rows already "
            f"read stay. Load the table again, which takes only the difference: `tussock restate {self.source} --all`. "
            "To prevent this, run more often than max_slot_wal_keep_size allows, and let no other program use the "
            "slot: if another pipeline does, give this source its own slot (option slot)."
        )


class UnloggedChangesError(InputError):
    """Rows of a table changed, and the log does not contain these changes."""

    source: str
    finding: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.finding}. The log may lack changes of rows since then; rows already read "
            f"stay. Load the table again, which takes only the difference: `tussock restate {self.source} --all`."
        )


class SharedSlotError(InputError):
    """Another source of the same slot is held."""

    source: str
    slot: str
    other: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r} shares slot {self.slot} with source {self.other!r}, which is held. Both wait, so "
            f"that no transaction is divided. Follow the message of source {self.other!r}."
        )


class TableOutsideError(InputError):
    """The publication does not contain all changes of a table. `remedy`: a statement between backticks."""

    source: str
    publication: str
    finding: str
    remedy: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.finding}. Run {self.remedy} as the owner of the table, or name another "
            "publication in the option publication. The next run tries again."
        )


class OpenTransactionsError(InputError):
    """A slot cannot be created while transactions are open that began before."""

    source: str
    slot: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: slot {self.slot} cannot be created while older transactions are open. End them: "
            "`SELECT pid, xact_start, query FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY 2`. The next "
            "run tries again."
        )


class OmittedValueError(InputError):
    """An update changed a key, and the log omits a long value of the row that did not change."""

    source: str
    table: str
    column: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: an update of {self.table} changed the key, and the log omits the unchanged value "
            f"of column {self.column!r}. Let the log contain it, `ALTER TABLE {self.table} REPLICA IDENTITY FULL`, and "
            f"load the table again: `tussock restate {self.source} --all`."
        )


class LoggedValueError(InputError):
    """A value of a Postgres table does not fit the declared type."""

    source: str
    table: str
    column: str
    declared: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: a value in column {self.column!r} of {self.table} is no {self.declared}: "
            f"{self.reason}. Correct it in Postgres, and load the table again: `tussock restate {self.source} --all`. "
            "Or create the source with the column as a string."
        )


class DatabaseRefusalError(InputError):
    """The Postgres server refused a statement of a source for another reason."""

    source: str
    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.place} refused a statement: {self.reason}. Its rows stay as they are, and "
            "everything else continues. The next run tries again."
        )


@contextmanager
def translating_errors(source: str, place: str, user: str, table: str) -> Iterator[None]:
    """Translate errors of psycopg that statements raise. Requires psycopg."""
    import psycopg

    from tussock.jobs.postgres.connection import statement_failure

    try:
        yield
    except psycopg.Error as err:
        raise _error_of(statement_failure(err), source, place, user, table, err) from err


def connection_error(
    source: str, place: str, user: str, table: str, err: "psycopg.Error"
) -> InputError | RetryableError:
    """Return the error of a connection that could not be opened."""
    from tussock.jobs.postgres.connection import ServerFailure, connect_failure, first_line

    if (kind := connect_failure(err)) is ServerFailure.DENIED:
        return LoginDeniedError(source, place, first_line(err))
    return _error_of(kind, source, place, user, table, err)


def _error_of(
    kind: "ServerFailure", source: str, place: str, user: str, table: str, err: "psycopg.Error"
) -> InputError | RetryableError:
    from tussock.jobs.postgres.connection import ServerFailure, first_line, resource_remedy

    reason = first_line(err)
    match kind:
        case ServerFailure.EXHAUSTED:
            return SourceAwayError(source, "", f"{place} lacks a resource: {reason}. {resource_remedy(err)}")
        case ServerFailure.AWAY | ServerFailure.BEATEN:
            # CREATE SOURCE raises it too, so the text says nothing of a next run
            text = f"{place} does not answer: {reason}. Check the host, the port and the server"
            return SourceAwayError(source, "", text)
        case ServerFailure.LOCKED:
            return SourceAwayError(source, "", f"{place}: {reason}. Another session uses the slot: end it, or wait")
        case ServerFailure.DENIED:
            return DatabaseDeniedError(source, place, reason, user, table)
        case ServerFailure.MISSING:
            return DatabaseMissingError(source, place, reason)
    return DatabaseRefusalError(source, place, reason)
