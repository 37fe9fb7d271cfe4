"""Connections to Postgres, and the kinds of failures that sources and sinks translate into their own errors.

libpq reads passwords, service files and certificates from its own variables and files: PGPASSWORD, PGPASSFILE, …
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

DEFAULTS = {"connect_timeout": "10", "tcp_user_timeout": "60000", "application_name": "tussock"}
LOCK_WAIT = "60s"
ENCODING = "UTF8"  # of all texts: else the database, or PGCLIENTENCODING, decides how a server reads bytes of a COPY
#: These settings decide texts; the defaults of a server, a database or a role differ.
SESSION: Mapping[str, str] = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "3",
}


class ServerFailure(Enum):
    """A kind of failure."""

    AWAY = auto()  # the server cannot be reached, or is starting or stopping
    EXHAUSTED = auto()  # the server lacks a resource now: disk, memory, connections
    LOCKED = auto()  # another session holds a lock or a replication slot
    BEATEN = auto()  # a deadlock, or a conflict with another transaction
    DENIED = auto()  # the server refuses the user, or the user lacks a permission
    MISSING = auto()  # the database or the service does not exist, or the address is none
    BAD_VALUE = auto()  # a value does not fit its type
    DEPENDENTS = auto()  # other objects of the database depend on the one to drop
    OTHER = auto()


#: Parts of the messages of a failed connection, which have no code.
_AT_CONNECT = (
    ("database", "does not exist", ServerFailure.MISSING),
    ("service", "not found", ServerFailure.MISSING),
    ("password", "", ServerFailure.DENIED),
    ("pg_hba.conf", "", ServerFailure.DENIED),
    ("role", "does not exist", ServerFailure.DENIED),
    ("permission denied", "", ServerFailure.DENIED),
    ("must be superuser or replication role", "", ServerFailure.DENIED),
    ("too many ", "", ServerFailure.EXHAUSTED),
    ("connection slots are reserved", "", ServerFailure.EXHAUSTED),
    ("No space left on device", "", ServerFailure.EXHAUSTED),
)
_BY_CLASS = {
    **dict.fromkeys(("", "08", "57", "58"), ServerFailure.AWAY),
    "53": ServerFailure.EXHAUSTED,
    "40": ServerFailure.BEATEN,
    "28": ServerFailure.DENIED,
    "3D": ServerFailure.MISSING,
    "22": ServerFailure.BAD_VALUE,
}
_BY_STATE = {
    "42501": ServerFailure.DENIED,
    "2BP01": ServerFailure.DEPENDENTS,
    "55006": ServerFailure.LOCKED,  # the slot is in use
    "55P03": ServerFailure.LOCKED,
    "54000": ServerFailure.BAD_VALUE,  # a key is too long for an index
}

_FREE_SPACE = (
    "Free space on the server's disk, or enlarge it. Replication slots without a reader fill it too: `SELECT "
    "slot_name, active FROM pg_replication_slots`"
)
_END_SESSIONS = (
    "End sessions that are not needed (`SELECT pid, usename, state FROM pg_stat_activity`), or raise max_connections, "
    "or the connection limit of the role or the database"
)


@contextmanager
def open_connection(address: str, **more: Any) -> "Iterator[psycopg.Connection[Any]]":
    """Open a connection whose texts are UTF-8, and close it at the end of the block.

    Args:
        address: as libpq takes it: a URL, or `key=value` pairs.
        more: for psycopg.connect, such as autocommit.

    Raises: psycopg.Error, of which `connect_failure` finds the kind.
    """
    parameters = conninfo_to_dict(address)
    defaults = {name: value for name, value in DEFAULTS.items() if name not in parameters}
    connection = psycopg.connect(make_conninfo(address, **defaults, client_encoding=ENCODING), **more)
    try:
        yield connection
    finally:
        connection.close()


def apply_settings(connection: "psycopg.Connection[Any]", settings: Mapping[str, str], *, is_local: bool) -> None:
    """Apply settings of the server to a connection. `is_local`: only to its transaction."""
    calls = ", ".join("set_config(%s, %s, %s)" for _ in settings)
    connection.execute(f"SELECT {calls}", [part for pair in settings.items() for part in (*pair, is_local)])


def connect_failure(err: psycopg.Error) -> ServerFailure:
    """Return the kind of the error of a connection that could not be opened."""
    if isinstance(err, psycopg.ProgrammingError):  # psycopg could not parse the address
        return ServerFailure.MISSING
    reason = first_line(err)
    return next((kind for part, other, kind in _AT_CONNECT if part in reason and other in reason), ServerFailure.AWAY)


def statement_failure(err: psycopg.Error) -> ServerFailure:
    """Return the kind of the error of a statement."""
    state = err.sqlstate or ""
    return _BY_CLASS.get(state[:2]) or _BY_STATE.get(state, ServerFailure.OTHER)


def resource_remedy(err: psycopg.Error) -> str:
    """Return the sentence that helps against an error of the kind EXHAUSTED, without a full stop."""
    reason = first_line(err)
    match err.sqlstate:
        case "53100":
            return _FREE_SPACE
        case "53200":
            return "Give the server more memory, or lower its settings work_mem and max_connections"
        case "53300":
            return _END_SESSIONS
        case None:  # a connection that could not be opened
            return _FREE_SPACE if "No space left" in reason else _END_SESSIONS
    return "Raise the limit of the server that the message names"


def first_line(err: psycopg.Error) -> str:
    """Return an error's message in one line, without a full stop."""
    text = err.diag.message_primary or str(err)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else type(err).__name__).rstrip(".")
