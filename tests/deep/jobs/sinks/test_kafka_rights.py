"""Brokers that require a login and rights: each refusal has a message, and the publish succeeds after its remedy."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.jobs.sinks.kafka_topics import Topics
from tests.support.jobs.sinks.shop import Shop
from tests.support.jobs.sources.kafka_broker import Broker
from tussock.jobs.settings.publishing import KafkaSettings
from tussock.jobs.sinks import kafka
from tussock.jobs.sinks.kafka_errors import BrokersDeniedError, BrokersUnavailableError
from tussock.jobs.sinks.publication import TablesNotPublishedError

pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]

PASSWORDS = {"admin": "a", "shop": "right"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka") / "broker", PASSWORDS) as broker:
        yield broker


def login(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def test_each_refusal_of_brokers_has_a_remedy_that_works(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "WAIT_S", 15)
    shop = Shop(tmp_path)
    settings = KafkaSettings(broker.servers, ("orders",), topic_prefix="own.", client=login("shop", "wrong"))
    shop.settings = settings
    shop.change()
    shop.commit()
    with pytest.raises(BrokersDeniedError, match="Credentials are properties") as denied:
        shop.publish()
    assert "wrong" not in str(denied.value)

    shop.settings = settings = msgspec.structs.replace(settings, client=login("shop", PASSWORDS["shop"]))
    with pytest.raises(BrokersDeniedError, match="use transactional ids that begin with tussock-"):
        shop.publish()
    admin = AdminClient({"bootstrap.servers": broker.servers, **login("admin", PASSWORDS["admin"])})
    allow(admin, ResourceType.TRANSACTIONAL_ID, "tussock-", AclOperation.WRITE, AclOperation.DESCRIBE)
    with pytest.raises(
        (BrokersDeniedError, TablesNotPublishedError), match="create, describe, write and read the topics"
    ):
        shop.publish()
    rights = AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.READ
    allow(admin, ResourceType.TOPIC, "own.", *rights)
    shop.publish()
    shop.change()
    shop.commit()
    shop.publish()
    reader = msgspec.structs.replace(settings, client=login("admin", PASSWORDS["admin"]))
    assert len(Topics(reader).rows_of("orders")) == len(shop.model()["orders"])


def allow(admin: AdminClient, kind: ResourceType, prefix: str, *operations: AclOperation) -> None:
    """Let the user do something with all resources whose names begin so."""
    pattern, may = ResourcePatternType.PREFIXED, AclPermissionType.ALLOW
    rights = [AclBinding(kind, prefix, pattern, "User:shop", "*", one, may) for one in operations]
    for done in admin.create_acls(rights).values():
        done.result(30)


def test_an_unknown_host_and_a_closed_port_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "WAIT_S", 8)
    shop = Shop(tmp_path)
    shop.change()
    shop.commit()
    for address, reason in (("no-such-host.invalid:9092", "resolve"), ("127.0.0.1:1", "refused")):
        shop.settings = KafkaSettings(address, ("orders",))
        with pytest.raises(BrokersUnavailableError, match=reason):
            shop.publish()
