"""Errors of Postgres as this project's."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tussock.jobs.logical.quoting import quote_identifier
from tussock.jobs.postgres.connection import (
    ServerFailure,
    connect_failure,
    first_line,
    resource_remedy,
    statement_failure,
)
from tussock.jobs.sinks.base import BeatenError
from tussock.statestore.errors import InputError, RetryableError

_END_LOCKS = "Wait, or end that session (`SELECT pid, query FROM pg_stat_activity WHERE xact_start IS NOT NULL`)"


class PostgresUnavailableError(RetryableError):
    """The Postgres server cannot be reached, or is starting or stopping."""

    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.place} does not answer: {self.reason}. Nothing of this publish is visible there. Check the host, "
            "the port and the server, then run `tussock publish` again: it catches up in one step."
        )


class PostgresBusyError(RetryableError):
    """The Postgres server lacks disk space, memory or connections now, or another session holds a lock."""

    place: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return (
            f"{self.place} cannot take the rows now: {self.reason}. Nothing of this publish is visible there. "
            f"{self.remedy}. Then run `tussock publish` again: it catches up in one step."
        )


class PostgresDeniedError(InputError):
    """The Postgres server refuses the user, or the user lacks a permission.

    `schema`, `user`: as SQL; None before a connection is open.
    """

    place: str
    reason: str
    schema: str | None = None
    user: str | None = None

    def __str__(self) -> str:
        grant = (
            "The password comes from PGPASSWORD, PGPASSFILE, a service file or an Airflow connection, never from "
            "pipeline.toml."
            if self.schema is None
            else "The user must own the tables, or may create them: "
            f"`GRANT CREATE, USAGE ON SCHEMA {self.schema} TO {self.user}`. A new schema needs `GRANT CREATE ON "
            f"DATABASE` for the user."
        )
        return f"{self.place} denies access: {self.reason}. {grant} Then run `tussock publish` again."


class PostgresMissingError(InputError):
    """The database or the service does not exist, or the address is none of libpq."""

    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.reason}. Create it (a database: `createdb NAME`), or correct `[publish] to` in "
            "pipeline.toml (`airflow:NAME`: the connection in Airflow), then run `tussock publish` again."
        )


class DependentViewsError(InputError):
    """The columns of a published table changed, and views of the database read the table."""

    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.place}: the columns of the relation changed, so its table must be replaced, but views of the "
            f"database read it: {self.reason}. The table still has its earlier columns and rows. Drop the views "
            "(`DROP VIEW NAME`), run `tussock publish`, and create them again."
        )


class UnpublishableValueError(InputError):
    """A row contains a value that Postgres cannot represent."""

    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.place} cannot represent a value: {self.reason}. The table still has its earlier rows. Convert the "
            "column in the view's SELECT, for example with replace(c, '\\0', ''), CAST, or sha2 for a long key."
        )


class PostgresError(InputError):
    """The Postgres server refused a statement for another reason."""

    place: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.place} refused a statement: {self.reason}. The table still has its earlier rows. If another "
            "program changed the table, drop it (`DROP TABLE NAME`): the next publish writes it again."
        )


@contextmanager
def translating_errors(place: str, schema: str, user: str) -> Iterator[None]:
    """Translate errors of psycopg.

    Args:
        place: a table or database, for messages.
        schema, user: of the published tables, and of the connection.
    """
    try:
        yield
    except psycopg.Error as err:
        raise _translated_error(place, schema, user, err) from err


def connection_error(place: str, err: psycopg.Error) -> InputError | RetryableError:
    """Return the error of a connection that could not be opened."""
    reason = first_line(err)
    match connect_failure(err):
        case ServerFailure.MISSING:
            return PostgresMissingError(place, reason)
        case ServerFailure.DENIED:
            return PostgresDeniedError(place, reason)
        case ServerFailure.EXHAUSTED:
            return PostgresBusyError(place, reason, resource_remedy(err))
    return PostgresUnavailableError(place, reason)


def _translated_error(place: str, schema: str, user: str, err: psycopg.Error) -> Exception:
    reason = first_line(err)
    match statement_failure(err):
        case ServerFailure.AWAY:
            return PostgresUnavailableError(place, reason)
        case ServerFailure.BEATEN:
            return BeatenError()
        case ServerFailure.LOCKED:
            return PostgresBusyError(place, f"another session holds a lock ({reason})", _END_LOCKS)
        case ServerFailure.EXHAUSTED:
            return PostgresBusyError(place, reason, resource_remedy(err))
        case ServerFailure.DENIED:
            return PostgresDeniedError(place, reason, quote_identifier(schema), quote_identifier(user))
        case ServerFailure.MISSING:
            return PostgresMissingError(place, reason)
        case ServerFailure.BAD_VALUE:
            return UnpublishableValueError(place, reason)
        case ServerFailure.DEPENDENTS:
            return DependentViewsError(place, err.diag.message_detail or reason)
    return PostgresError(place, reason)
