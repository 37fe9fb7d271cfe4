"""Connections that the tasks of DAGs pass on: their parts equal those that Airflow reads."""

import json

import pytest
from airflow.sdk import Connection
from tussock_connections import set_connection_of_sink

from tussock.jobs.settings.connections import read_connection
from tussock.jobs.settings.publishing import KafkaSettings, PostgresSettings, PublishSettings

pytestmark = pytest.mark.airflow

EXTRA = json.dumps({"bootstrap.servers": "a:9092,b:9092", "batch": 1, "sasl": {"nested": True}})


@pytest.mark.parametrize(
    ("sink", "connection"),
    [
        (
            PostgresSettings("airflow:shop"),
            Connection(
                conn_id="shop", conn_type="postgres", host="db", port=5433, login="me@x", password="/:%", schema="a b"
            ),
        ),
        (KafkaSettings("airflow:shop"), Connection(conn_id="shop", conn_type="kafka", extra=EXTRA)),
        (
            PostgresSettings("airflow:shop"),
            Connection(conn_id="shop", conn_type="postgres", host="/var/Run", extra='{"sslmode": "require"}'),
        ),
    ],
)
@pytest.mark.parametrize("form", ["get_uri", "as_json"])
def test_parts_of_a_connection_equal_airflows(
    sink: PublishSettings, connection: Connection, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", getattr(connection, form)())
    for step in (lambda: None, lambda: set_connection_of_sink(sink)):  # as set by hand, and by a task
        step()
        given = read_connection("shop")
        assert given.host == (connection.host or "")
        assert given.port == str(connection.port or "")
        assert given.user == (connection.login or "")
        assert given.password == (connection.password or "")
        assert given.dbname == (connection.schema or "")
        assert given.extra == connection.extra_dejson
