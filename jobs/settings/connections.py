"""Airflow connections for sources and sinks, which read them from variables of the environment, as Airflow does.

    AIRFLOW_CONN_<NAME>    a URI (`postgres://user:password@host:5432/database?sslmode=require`), or the same as JSON

Tasks of the DAGs set these variables from Airflow's own connections. Airflow imports this module when it parses DAGs.
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tussock.statestore.errors import InputError

_HOST_AND_PORT = re.compile(r"(\[[^\]]*\]|[^:]*)(?::(\d+))?")
_EXTRA_AS_JSON = "__extra__"  # Airflow's parameter of a URI whose extras are no plain texts


class AirflowConnection(msgspec.Struct, frozen=True):
    """The parts of a connection; an absent one is an empty text. `extra`: further settings of the connection's kind."""

    host: str
    port: str
    user: str
    password: str
    dbname: str
    extra: Mapping[str, Any]


CONNECTION_PARTS = AirflowConnection.__struct_fields__[:-1]
"""The parts that are texts."""


class UnreadableConnectionError(InputError):
    """An Airflow connection that a sink or a source refers to is missing, or lacks a part."""

    connection: str
    finding: str

    def __str__(self) -> str:
        variable = connection_variable(self.connection)
        return (
            f"the Airflow connection {self.connection!r} {self.finding}. Add or correct it in Airflow (Admin, "
            f"Connections). Outside of Airflow, set {variable} to its URI or its JSON for this process, then run again."
        )


def connection_variable(name: str) -> str:
    """Return the variable of the environment that contains an Airflow connection."""
    return f"AIRFLOW_CONN_{name.upper()}"


def read_connection(name: str) -> AirflowConnection:
    """Read an Airflow connection from its variable. Raises UnreadableConnectionError, whose text has no credential."""
    if not (text := os.environ.get(connection_variable(name), "").strip()):
        raise UnreadableConnectionError(name, f"is unknown: {connection_variable(name)} is not set")
    try:
        return _parse_json(text) if text.startswith("{") else _parse_uri(text)
    except (ValueError, TypeError) as err:
        raise UnreadableConnectionError(name, "is neither a URI nor JSON") from err


def _parse_json(text: str) -> AirflowConnection:
    parsed = json.loads(text)
    host, port, user, password, dbname = (
        str(parsed.get(part) or "") for part in ("host", "port", "login", "password", "schema")
    )
    return AirflowConnection(host, port, user, password, dbname, _extra_of(parsed.get("extra") or {}))


def _parse_uri(text: str) -> AirflowConnection:
    address = urlsplit(text)
    if not address.scheme or (match := _HOST_AND_PORT.fullmatch(address.netloc.rpartition("@")[2])) is None:
        raise ValueError
    before, at, _ = f"{address.path}?{address.query}#{address.fragment}".partition("@")
    if at and "=" not in before:  # a part of a password that is not escaped: the host would be the user
        raise ValueError
    values = (match[1].strip("[]"), match[2], address.username, address.password, address.path.strip("/"))
    host, port, user, password, dbname = (unquote(value or "") for value in values)
    extra: Any = dict(parse_qsl(address.query, keep_blank_values=True))
    return AirflowConnection(host, port, user, password, dbname, _extra_of(extra.get(_EXTRA_AS_JSON, extra)))


def _extra_of(extra: Any) -> Mapping[str, Any]:
    """Return extras, which may be a text in JSON."""
    values = json.loads(extra) if isinstance(extra, str) else extra
    if not isinstance(values, dict):
        raise TypeError
    return values
