"""Topics that other programs write, that are removed and created again, and whose relations change.

Each test runs over a cluster in this process; the deep variant runs it over a real broker.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import confluent_kafka
import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.jobs.driver.embedded import append
from tests.support.jobs.sinks.kafka_cluster import Cluster, Producer, failure, replaced_client
from tests.support.jobs.sinks.kafka_topics import Topics
from tests.support.jobs.sinks.shop import ORDERS, Shop
from tussock.jobs.logical.nodes import Call, Column, Filter, Project, Scan
from tussock.jobs.logical.statements import CreateView
from tussock.jobs.settings.publishing import KafkaSettings, MessageFormat
from tussock.jobs.sinks import kafka
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.kafka_errors import LongTransactionError
from tussock.jobs.sinks.publication import TablesNotPublishedError, tidy_tables

RELATIONS = ("orders", "by_shop")


@dataclass(frozen=True)
class Brokers:
    """A cluster, as an administrator and another program use it."""

    servers: str
    cluster: Cluster | None = None

    @cached_property  # the requests of a client end with it
    def admin(self) -> Any:
        return self.cluster or AdminClient({"bootstrap.servers": self.servers})

    def names(self) -> set[str]:
        return set(self.admin.list_topics(timeout=30).topics)

    def create(self, topic: str) -> None:
        self.admin.create_topics([NewTopic(topic, 1, 1, config={})])[topic].result(30)

    def remove(self, *topics: str) -> None:
        for done in self.admin.delete_topics(list(topics)).values():
            done.result(30)

    def produce(self, topic: str, *messages: tuple[bytes | None, bytes | None]) -> None:
        settings = {"bootstrap.servers": self.servers, "transactional.id": f"another {topic}"}
        producer: Any = confluent_kafka.Producer(settings) if self.cluster is None else Producer(self.cluster, settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        for key, value in messages:
            producer.produce(topic, key=key, value=value)
        producer.commit_transaction(30)


@pytest.fixture(scope="module", params=["here", pytest.param("broker", marks=pytest.mark.deep)])
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    if request.param == "here":
        with replaced_client() as cluster:
            yield Brokers("here:9092", cluster())
        return
    from tests.support.jobs.sources.kafka_broker import Broker

    with Broker(tmp_path_factory.mktemp("kafka") / "broker") as broker:
        yield Brokers(broker.servers)


@pytest.fixture
def shop(brokers: Brokers, tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, seed=3)
    shop.settings = KafkaSettings(brokers.servers, RELATIONS, topic_prefix=f"{tmp_path.name}.")
    shop.change()
    shop.commit()
    return shop


def topic_of(shop: Shop, relation: str) -> str:
    assert isinstance(shop.settings, KafkaSettings)
    return f"{shop.settings.topic_prefix}{relation}"


def change_settings(shop: Shop, **changes: Any) -> None:
    shop.settings = msgspec.structs.replace(shop.settings, **changes)


def messages_in(shop: Shop, relation: str) -> list[tuple[bytes | None, bytes | None]]:
    assert isinstance(shop.settings, KafkaSettings)
    return Topics(shop.settings).messages_in(relation)


def ids_in(shop: Shop) -> set[int]:
    """The keys that the messages of `orders` leave, of either format."""
    last = dict(messages_in(shop, "orders"))
    return {json.loads(key or b"")["id"] for key, value in last.items() if value is not None}


def assert_equal(shop: Shop) -> None:
    assert ids_in(shop) == set(shop.orders)


def test_a_topic_of_another_program_is_refused_until_it_is_removed(brokers: Brokers, shop: Shop) -> None:
    topic = topic_of(shop, "orders")
    brokers.create(topic)
    brokers.produce(topic, (b"mine", b"mine"))
    with pytest.raises(TablesNotPublishedError, match="does not show that this sink wrote them"):
        shop.publish()
    assert messages_in(shop, "orders") == [(b"mine", b"mine")]
    assert len(messages_in(shop, "by_shop")) == len(shop.model()["by_shop"]), "other relations are published"
    brokers.remove(topic)  # as the message says
    shop.publish()
    assert_equal(shop)


def test_another_prefix_avoids_the_topic_of_another_program(brokers: Brokers, shop: Shop) -> None:
    brokers.create(topic_of(shop, "orders"))
    brokers.produce(topic_of(shop, "orders"), (None, b"mine"))
    with pytest.raises(TablesNotPublishedError, match="Set another `topic_prefix`"):
        shop.publish()
    change_settings(shop, topic_prefix=f"{topic_of(shop, '')}b.")
    shop.publish()
    assert_equal(shop)


def test_topics_whose_control_topic_is_lost_are_not_continued(brokers: Brokers, shop: Shop) -> None:
    shop.publish()
    brokers.remove(topic_of(shop, kafka.CONTROL))
    shop.change()
    shop.commit()
    with pytest.raises(TablesNotPublishedError, match="remove the topic"):
        shop.publish()
    brokers.remove(*(topic_of(shop, relation) for relation in RELATIONS))
    shop.publish()
    assert_equal(shop)


def test_an_empty_topic_and_one_of_an_aborted_load_are_used(brokers: Brokers, shop: Shop) -> None:
    brokers.create(topic_of(shop, "by_shop"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka.KafkaPlace, "finish_epoch", refuse)
        with pytest.raises(OSError, match="gone"):
            shop.publish()
    assert not messages_in(shop, "orders")
    shop.publish()
    assert_equal(shop)


def refuse(*_: Any, **__: Any) -> None:
    raise OSError("gone")


@pytest.mark.parametrize("epochs", [0, 1])
def test_a_topic_that_is_removed_is_written_anew_though_it_exists_again(
    brokers: Brokers, shop: Shop, epochs: int
) -> None:
    shop.publish()
    brokers.remove(topic_of(shop, "orders"))
    brokers.create(topic_of(shop, "orders"))
    for _ in range(epochs):
        shop.change()
        shop.commit()
    shop.publish()
    assert_equal(shop)
    assert shop.publish() == ()


def test_a_publish_that_dies_after_it_created_a_removed_topic_loses_no_row(brokers: Brokers, shop: Shop) -> None:
    shop.publish()
    brokers.remove(topic_of(shop, "orders"))
    shop.change()
    shop.commit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka.KafkaPlace, "finish_epoch", refuse)
        with pytest.raises(OSError, match="gone"):
            shop.publish()
    shop.publish()
    assert_equal(shop)


def test_upkeep_and_a_check_create_no_topic(brokers: Brokers, shop: Shop) -> None:
    before = brokers.names()
    tidy_tables(shop.meta, shop.settings, 1_700_000_100_000)
    checks = list(check_tables(shop.meta, shop.settings))
    assert [check.objection for check in checks] == ["it was never published"] * len(RELATIONS)
    assert brokers.names() == before


def test_a_relation_that_becomes_one_of_the_sink_is_published_at_the_same_epoch(brokers: Brokers, shop: Shop) -> None:
    change_settings(shop, relations=("by_shop",))
    shop.publish()
    change_settings(shop, relations=RELATIONS)
    shop.publish()
    assert_equal(shop)
    assert shop.publish() == ()


@pytest.mark.parametrize(("before", "after"), [("upsert", "debezium"), ("debezium", "upsert")])
def test_another_format_removes_rows_that_are_gone(brokers: Brokers, shop: Shop, before: str, after: str) -> None:
    change_settings(shop, format=MessageFormat(before))
    shop.publish()
    shop.empty()
    shop._insert("orders", ORDERS, [(1, "Kiel", None, None, None, None)])
    shop.commit()
    change_settings(shop, format=MessageFormat(after))
    shop.publish()
    assert_equal(shop)


def test_messages_that_have_no_row_are_removed_too(brokers: Brokers, shop: Shop) -> None:
    change_settings(shop, format=MessageFormat.DEBEZIUM)
    shop.publish()
    key = b'{"id":1000}'
    brokers.produce(topic_of(shop, "orders"), (key, b"not JSON"))
    change_settings(shop, format=MessageFormat.UPSERT)
    shop.change()
    shop.commit()
    shop.publish()
    assert messages_in(shop, "orders")[-1] == (key, None)
    assert_equal(shop)


def test_a_complete_load_of_a_relation_without_a_key_sends_only_what_differs(brokers: Brokers, shop: Shop) -> None:
    change_settings(shop, format=MessageFormat.DEBEZIUM, relations=("shops",))
    shop.publish()
    rows = [row for (row,) in shop.model()["shops"]]
    assert counted(shop) == Counter(rows)
    named = Filter(Scan("orders", (1,), ORDERS[1:2]), Call("IsNotNull", "boolean", (Column(0, "string"),)))
    plan = Project(named, (Column(0, "string"),), (ORDERS[1],))
    append(shop._writer, CreateView("shops", "SELECT shop FROM orders WHERE shop IS NOT NULL", plan, or_replace=True))
    shop.commit()
    shop.publish()
    assert counted(shop) == Counter(row for row in rows if row is not None)
    operations = [json.loads(value or b"")["op"] for _, value in messages_in(shop, "shops")[len(rows) :]]
    assert operations == ["d"] * rows.count(None)


def test_other_columns_of_a_relation_without_a_key_remove_the_former_rows(brokers: Brokers, shop: Shop) -> None:
    change_settings(shop, format=MessageFormat.DEBEZIUM, relations=("shops",))
    shop.publish()
    plan = Project(Scan("orders", (1, 2), ORDERS[1:3]), (Column(0, "string"), Column(1, ORDERS[2].type)), ORDERS[1:3])
    append(shop._writer, CreateView("shops", "SELECT shop, amount FROM orders", plan, or_replace=True))
    shop.commit()
    shop.publish()
    assert counted(shop) == Counter(row for (row,) in shop.model()["shops"])


def counted(shop: Shop) -> Counter[str | None]:
    """The rows that the envelopes of `shops` leave."""
    found: Counter[str | None] = Counter()
    for _, value in messages_in(shop, "shops"):
        envelope = json.loads(value or b"")
        if envelope["before"] is not None:
            found[envelope["before"].get("shop")] -= 1
        if envelope["after"] is not None:
            found[envelope["after"].get("shop")] += 1
    assert min(found.values(), default=0) >= 0
    return +found


def test_a_long_load_or_a_strict_broker_gets_another_time_for_transactions(
    brokers: Brokers, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, make = list[dict[str, Any]](), kafka.Producer
    monkeypatch.setattr(kafka, "Producer", lambda properties: seen.append(properties) or make(properties))
    change_settings(shop, client={"transaction.timeout.ms": 300_000, "transactional.id": "mine"})
    shop.publish()
    assert seen[0]["transaction.timeout.ms"] == 300_000
    assert seen[0]["transactional.id"].startswith("tussock-"), "it fences another publisher"
    assert_equal(shop)


def test_a_load_that_outlasts_its_transaction_names_the_setting(
    brokers: Brokers, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers answer as if another publisher had begun a transaction."""
    with monkeypatch.context() as patch:

        def lose_transaction(place: kafka.KafkaPlace, *message: object) -> None:
            patch.setattr(kafka, "monotonic", lambda: place._begun_s + 301)
            raise failure("_FENCED")

        change_settings(shop, client={"transaction.timeout.ms": 300_000})
        patch.setattr(kafka.KafkaPlace, "_send", lose_transaction)
        with pytest.raises(LongTransactionError, match=r'300 seconds.*"transaction\.timeout\.ms" = 900000'):
            shop.publish()
    shop.publish()
    assert_equal(shop)


def test_the_control_record_has_only_topics_that_exist_and_no_columns(brokers: Brokers, shop: Shop) -> None:
    shop.publish()
    record = json.loads(messages_in(shop, kafka.CONTROL)[-1][1] or b"")
    assert set(record["tables"]) == set(RELATIONS)
    assert all(len(json.dumps(state)) < 400 for state in record["tables"].values())
    change_settings(shop, relations=("orders",))
    brokers.remove(topic_of(shop, "by_shop"))
    shop.change()
    shop.commit()
    shop.publish()
    record = json.loads(messages_in(shop, kafka.CONTROL)[-1][1] or b"")
    assert set(record["tables"]) == {"orders"}
