"""Airflow connections in variables: both forms have the same parts, and an error shows no credential."""

import json

import pytest

from tussock.jobs.settings.connections import AirflowConnection, UnreadableConnectionError, read_connection
from tussock.jobs.settings.publishing import KafkaSettings
from tussock.jobs.sinks.kafka import client_properties

SECRET = "s3cr/et@:%"
QUOTED = "s3cr%2Fet%40%3A%25"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"postgres://reader:{QUOTED}@DB.example.org:5433/my%20shop?sslmode=require",
            AirflowConnection("DB.example.org", "5433", "reader", SECRET, "my shop", {"sslmode": "require"}),
        ),
        (
            json.dumps(
                {"conn_type": "postgres", "host": "DB.example.org", "port": 5433, "login": "reader"}
                | {"password": SECRET, "schema": "my shop", "extra": {"sslmode": "require"}}
            ),
            AirflowConnection("DB.example.org", "5433", "reader", SECRET, "my shop", {"sslmode": "require"}),
        ),
        ('{"host": "db", "password": null, "extra": "{}"}', AirflowConnection("db", "", "", "", "", {})),
        ("postgres://%2Fvar%2FRun/shop", AirflowConnection("/var/Run", "", "", "", "shop", {})),
        ("postgres://[::1]:5433", AirflowConnection("::1", "5433", "", "", "", {})),
        (
            "kafka://?__extra__=%7B%22bootstrap.servers%22%3A+%22a%3A1%2Cb%3A2%22%2C+%22x%22%3A+1%7D",
            AirflowConnection("", "", "", "", "", {"bootstrap.servers": "a:1,b:2", "x": 1}),
        ),
    ],
)
def test_both_forms_of_a_connection_have_its_parts(
    text: str, expected: AirflowConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", text)
    assert read_connection("shop") == expected


#: A part of the password is read as a database or as an extra, and reaches messages.
UNESCAPED = [f"x://a:{part}{QUOTED}@h/db" for part in ("1/", "1?", "1#", "p/", "p?")]


@pytest.mark.parametrize(
    "text", ["", f'{{"password": "{SECRET}"', SECRET, f"x://a:{QUOTED}@h:x", '{"extra": "[]"}', *UNESCAPED]
)
def test_an_unreadable_connection_is_refused_without_its_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", text)
    with pytest.raises(UnreadableConnectionError, match="set AIRFLOW_CONN_SHOP to its URI or its JSON") as refused:
        read_connection("shop")
    assert SECRET not in str(refused.value)
    assert QUOTED not in str(refused.value)


def test_a_connection_gives_the_properties_of_a_kafka_client(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"bootstrap.servers": "a:9092,b:9092", "security.protocol": "SASL_SSL", "client.id": "airflow"}
    monkeypatch.setenv("AIRFLOW_CONN_EVENTS", json.dumps({"conn_type": "kafka", "extra": extra}))
    properties = client_properties(KafkaSettings("airflow:events", client={"client.id": "own"}))
    assert properties == extra | {"client.id": "own", "log_level": 2}
    monkeypatch.setenv("AIRFLOW_CONN_EVENTS", f"kafka://shop:{QUOTED}@broker:9092/")
    given = client_properties(KafkaSettings("airflow:events"))
    assert given["bootstrap.servers"] == "broker:9092"
    assert (given["sasl.username"], given["sasl.password"]) == ("shop", SECRET)
    monkeypatch.setenv("AIRFLOW_CONN_EVENTS", "kafka://")
    with pytest.raises(UnreadableConnectionError, match="'events' has no brokers"):
        client_properties(KafkaSettings("airflow:events"))
