"""The kinds of Postgres' errors, by their codes."""

import psycopg
import pytest

from tussock.jobs.chunks.failure import SourceAwayError
from tussock.jobs.postgres.connection import ServerFailure, statement_failure
from tussock.jobs.sinks import postgres_errors as of_sinks
from tussock.jobs.sources import postgres_errors as of_sources


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("57P01", ServerFailure.AWAY),  # the server is stopped
        ("53100", ServerFailure.EXHAUSTED),  # the disk is full
        ("53400", ServerFailure.EXHAUSTED),  # temp_file_limit
        ("55006", ServerFailure.LOCKED),  # another session reads the slot
        ("55P03", ServerFailure.LOCKED),
        ("55000", ServerFailure.OTHER),  # such as "recovery is in progress" on a standby, which never ends by waiting
        ("54000", ServerFailure.BAD_VALUE),  # a key is longer than an index can have
        ("22P05", ServerFailure.BAD_VALUE),
        ("42501", ServerFailure.DENIED),
    ],
)
def test_a_code_has_the_kind_of_what_helps(state: str, kind: ServerFailure) -> None:
    assert statement_failure(psycopg.errors.lookup(state)()) is kind


@pytest.mark.parametrize(
    ("state", "text", "remedy"),
    [
        ("53100", "could not extend file: No space left on device", "Free space on the server's disk"),
        ("53200", "out of shared memory", "Give the server more memory"),
        ("53300", "too many connections for database", "pg_stat_activity"),
        ("53400", "temporary file size exceeds temp_file_limit (1000kB)", "Raise the limit of the server"),
    ],
)
def test_a_lacking_resource_is_named_with_what_frees_it(state: str, text: str, remedy: str) -> None:
    with pytest.raises(SourceAwayError) as away, of_sources.translating_errors("s", "db", "me", "orders"):
        raise psycopg.errors.lookup(state)(text)
    with pytest.raises(of_sinks.PostgresBusyError) as busy, of_sinks.translating_errors("db", "public", "me"):
        raise psycopg.errors.lookup(state)(text)
    for raised in (away, busy):
        assert text in str(raised.value)
        assert remedy in str(raised.value)
        assert "does not answer" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("FATAL:  sorry, too many clients already", "max_connections"),
        ("FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", "max_connections"),
        ('FATAL:  could not write lock file "postmaster.pid": No space left on device', "Free space"),
    ],
)
def test_a_connection_without_a_resource_is_named_too(text: str, remedy: str) -> None:
    failed = psycopg.OperationalError(f"connection failed: {text}")
    for err in (
        of_sources.connection_error("s", "db", "me", "orders", failed),
        of_sinks.connection_error("db", failed),
    ):
        assert remedy in str(err)
        assert "does not answer" not in str(err)
