"""An option of a source may not contain a credential."""

import pytest

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.redaction import without_secrets
from tussock.jobs.sources.credentials import MissingReferenceError, connections_named, resolve_references
from tussock.jobs.sources.errors import BadOptionError, CredentialInOptionError
from tussock.jobs.sources.kafka_cluster import client_settings
from tussock.jobs.sources.registry import READERS, reader_of

SECRET = "q7Zt0p-hunter"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username='u' password='{}';"


def source(format: str = "kafka", **options: str) -> CreateSource:
    given = {"kafka.bootstrap.servers": "x:9092", "subscribe": "t"} if format == "kafka" else {"path": "/in/*.csv"}
    return CreateSource("s", format, (Field("k", "int"),) if format != "kafka" else (), given | options)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("kafka.ssl.key.password", SECRET),
        ("kafka.ssl.truststore.password", SECRET),
        ("kafka.sasl.jaas.config", JAAS.format(SECRET)),
        ("kafka.ssl.keystore.key", f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"),
        ("kafka.sasl.login.connect.secret", SECRET),
        ("kafka.bootstrap.servers", f"SASL_SSL://u:{SECRET}@x:9092"),
    ],
)
def test_a_credential_of_kafka_is_refused_with_the_place_to_name(option: str, value: str) -> None:
    with pytest.raises(CredentialInOptionError) as refused:
        reader_of(source()).check(source(**{option: value}))
    said = str(refused.value)
    assert f"option {option}: it contains a credential" in said
    assert "${env:NAME}" in said
    assert SECRET not in said


@pytest.mark.parametrize("format", sorted(set(READERS) - {"kafka", "jdbc", "postgres"}))
def test_a_path_with_a_credential_is_refused_in_every_format(format: str) -> None:
    for path in (
        f"s3://a:{SECRET}@lake/in",
        f"s3://lake/in?X-Amz-Signature={SECRET}",
        f"s3://lake/in?secret_key={SECRET}",
    ):
        with pytest.raises(CredentialInOptionError, match="boto3's standard chain") as refused:
            reader_of(source(format)).check(source(format, path=path))
        assert SECRET not in str(refused.value)


def test_a_reference_is_replaced_by_the_client_of_kafka() -> None:
    made = source(
        **{
            "kafka.ssl.key.password": "${env:KEY_PASSWORD}",
            "kafka.sasl.jaas.config": JAAS.format("${file:/run/kafka.properties:password}"),
        }
    )
    reader_of(made).check(made)
    package = "org.apache.kafka.common.config.provider"
    assert client_settings(made) == {
        "bootstrap.servers": "x:9092",
        "ssl.key.password": "${env:KEY_PASSWORD}",
        "sasl.jaas.config": JAAS.format("${file:/run/kafka.properties:password}"),
        "config.providers": "env,file",
        "config.providers.env.class": f"{package}.EnvVarConfigProvider",
        "config.providers.file.class": f"{package}.FileConfigProvider",
    }
    own = source(**{"kafka.config.providers": "env", "kafka.ssl.key.password": "${env:A}"})
    assert client_settings(own)["config.providers"] == "env"
    assert client_settings(source()) == {"bootstrap.servers": "x:9092"}


def test_a_reference_that_kafkas_client_would_take_literally_is_refused() -> None:
    made = source(**{"kafka.sasl.jaas.config": JAAS.format("${airflow:events.password}")})
    with pytest.raises(BadOptionError, match=r"cannot resolve \$\{airflow:…\}. Write \$\{env:NAME\}"):
        reader_of(made).check(made)
    own = source(**{"kafka.config.providers": "vault", "kafka.ssl.key.password": "${vault:a}"})
    reader_of(own).check(own)


def test_options_without_a_credential_are_accepted() -> None:
    for option, value in {
        "kafka.ssl.truststore.location": "/etc/kafka/trust.jks",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.kerberos.service.name": "kafka",
        "kafka.client.id": "shop-token-reader",
    }.items():
        reader_of(source()).check(source(**{option: value}))


@pytest.mark.parametrize(
    "connection",
    [
        f"postgres://reader:{SECRET}%2F@db.example.org:5433/shop?sslmode=require",
        f'{{"conn_type": "postgres", "host": "db.example.org", "port": 5433, "login": "reader", "password": '
        f'"{SECRET}/", "schema": "shop"}}',
    ],
)
def test_a_reference_to_an_airflow_connection_gives_its_parts(monkeypatch: pytest.MonkeyPatch, connection: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP.DB", connection)
    options = {
        "url": "jdbc:postgresql://${airflow:shop.db.host}:${airflow:shop.db.port}/${airflow:shop.db.dbname}",
        "user": "${airflow:shop.db.user}",
        "password": "${airflow:shop.db.password}",
    }
    people = CreateSource("people", "jdbc", (), options)
    assert connections_named(options) == {"shop.db"}
    assert resolve_references(people, ("url", "user", "password")) == {
        "url": "jdbc:postgresql://db.example.org:5433/shop",
        "user": "reader",
        "password": f"{SECRET}/",
    }
    assert SECRET not in without_secrets(f"no route to {connection}")


@pytest.mark.parametrize("connection", [None, "postgres://db.example.org/shop", "{", '{"host": "db"}'])
def test_a_connection_without_the_part_is_missing(monkeypatch: pytest.MonkeyPatch, connection: str | None) -> None:
    if connection is not None:
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", connection)
    people = CreateSource("people", "jdbc", (), {"password": "${airflow:shop.password}"})
    with pytest.raises(MissingReferenceError, match=r"'password' of the Airflow connection shop .*AIRFLOW_CONN_SHOP"):
        resolve_references(people, ("password",))
