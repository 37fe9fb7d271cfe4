"""The kinds of Postgres' errors, by their codes."""

import psycopg
import pytest

from tussock.jobs.postgres.connection import ServerFailure, statement_failure


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("57P01", ServerFailure.AWAY),  # the server is stopped
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
