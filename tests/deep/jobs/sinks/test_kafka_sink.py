"""Topics of a real broker: a read_committed reader sees each epoch once and completely, whatever dies."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
import msgspec
import pytest

from tests.support.jobs.sinks.dying import KilledError, dying
from tests.support.jobs.sinks.kafka_topics import Topics
from tests.support.jobs.sinks.schema_registry import running_registry
from tests.support.jobs.sinks.shop import Rows, Shop
from tests.support.jobs.sources.kafka_broker import Broker
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.publishing import KafkaSettings, MessageFormat
from tussock.jobs.sinks import kafka
from tussock.jobs.sinks.kafka_errors import BrokersUnavailableError
from tussock.jobs.sinks.publication import TablesNotPublishedError, publish_tables

pytestmark = pytest.mark.deep

SEEDS = int(os.environ.get("KAFKA_SEEDS", "2"))
KEYED = ("orders", "ratios", "by_shop")
REQUESTS = (
    (kafka.KafkaPlace, "_send"),
    (kafka.KafkaPlace, "_read_control"),
    (kafka.KafkaPlace, "finish_epoch"),
    (kafka.KafkaPlace, "require_topic"),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka") / "broker") as broker:
        yield broker


def shop_on(broker: Broker, folder: Path, form: str, seed: int = 1, relations: tuple[str, ...] = KEYED) -> Shop:
    shop = Shop(folder, seed=seed)
    prefix = f"{folder.name}."
    shop.settings = KafkaSettings(broker.servers, relations, format=MessageFormat(form), topic_prefix=prefix)
    return shop


def topics_of(shop: Shop) -> Topics:
    assert isinstance(shop.settings, KafkaSettings)
    return Topics(shop.settings)


def assert_equal(shop: Shop, model: dict[str, Rows]) -> None:
    by_shop = {row["shop"]: (row["n"], float(row["total"])) for row in topics_of(shop).rows_of("by_shop").values()}
    assert by_shop == {shop: (n, float(total)) for shop, n, total in model["by_shop"]}
    orders = {row["id"]: (row["shop"], float(row["amount"])) for row in topics_of(shop).rows_of("orders").values()}
    assert orders == {row[0]: (row[1], float(row[2])) for row in model["orders"]}
    assert len(topics_of(shop).rows_of("ratios")) == len(model["ratios"])


@pytest.mark.parametrize("form", ["upsert", "debezium"])
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_the_messages_leave_the_rows_of_every_epoch(broker: Broker, tmp_path: Path, form: str, seed: int) -> None:
    shop = shop_on(broker, tmp_path, form, seed)
    epochs = []
    for step in range(5):
        shop.empty() if step == 3 else shop.change()
        epochs.append(shop.commit())
        shop.publish()
        assert_equal(shop, shop.model())
        assert shop.publish() == ()
    assert topics_of(shop).epochs() == epochs


def test_messages_in_avro_leave_the_rows_of_every_epoch(broker: Broker, tmp_path: Path) -> None:
    with running_registry() as registry:
        shop = shop_on(broker, tmp_path, "upsert")
        assert isinstance(shop.settings, KafkaSettings)
        shop.settings = msgspec.structs.replace(shop.settings, registry=registry.address)
        for _ in range(4):
            shop.change()
            shop.commit()
            shop.publish()
            rows = {}
            for key, value in topics_of(shop).messages_in("by_shop"):
                rows[registry.decode(key)["shop"]] = registry.decode(value)
            left = {(row["shop"], row["n"], row["total"]) for row in rows.values() if row is not None}
            assert left == {*shop.model()["by_shop"]}


def test_a_reader_sees_each_epoch_once_and_whole_though_publishers_die(broker: Broker, tmp_path: Path) -> None:
    shop = shop_on(broker, tmp_path, "upsert")
    died, epochs = 0, []
    for _ in range(3):
        before = shop.model() if epochs else None
        shop.change()
        epochs.append(shop.commit())
        for at in range(0, 10_000, 3):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(kafka.KafkaPlace, "end", lambda self: None)  # a killed process aborts nothing
                try:
                    with dying(REQUESTS, at):
                        publish_tables(open_meta(shop.address), shop.settings)
                except KilledError:
                    died += 1
                else:
                    break
            if before is not None and at % 30 == 0:
                assert_equal(shop, shop.model() if topics_of(shop).epochs()[-1] == epochs[-1] else before)
        assert_equal(shop, shop.model())
    assert topics_of(shop).epochs() == epochs
    assert died > 30


def test_two_publishers_at_once_send_each_epoch_once(broker: Broker, tmp_path: Path) -> None:
    shop = shop_on(broker, tmp_path, "debezium")
    epochs = []
    for _ in range(3):
        shop.change()
        epochs.append(shop.commit())
        with ThreadPoolExecutor(2) as threads:
            running = [threads.submit(publish_tables, open_meta(shop.address), shop.settings) for _ in range(2)]
        for one in running:
            one.result()
        assert_equal(shop, shop.model())
    assert topics_of(shop).epochs() == epochs


def test_a_publisher_that_began_before_another_one_created_the_topics_sends_nothing(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = shop_on(broker, tmp_path, "debezium")
    shop.change()
    epoch = shop.commit()
    others: list[object] = []

    class LateProducer(confluent_kafka.Producer):  # type: ignore[misc]
        def init_transactions(self, timeout: float) -> None:
            if not others:
                others.append(self)
                publish_tables(open_meta(shop.address), shop.settings)
            super().init_transactions(timeout)

    monkeypatch.setattr(kafka, "Producer", LateProducer)
    publish_tables(open_meta(shop.address), shop.settings)
    assert others
    assert_equal(shop, shop.model())
    assert topics_of(shop).epochs() == [epoch]


def test_a_relation_without_a_key_and_an_unreachable_broker_are_named(broker: Broker, tmp_path: Path) -> None:
    shop = shop_on(broker, tmp_path, "upsert", relations=("orders", "events"))
    shop.change()
    shop.commit()
    with pytest.raises(TablesNotPublishedError, match='set `format = "debezium"`'):
        shop.publish()
    shop.settings = KafkaSettings(
        broker.servers, ("orders", "events"), format=MessageFormat.DEBEZIUM, topic_prefix="as_said."
    )
    shop.publish()
    assert len(topics_of(shop).messages_in("events")) == len(shop.model()["events"])
    shop.settings = KafkaSettings("127.0.0.1:1", ("orders",))
    with pytest.raises(BrokersUnavailableError, match="Check the addresses and the brokers"):
        shop.publish()


def test_a_broker_that_restarts_continues_with_the_next_publish(broker: Broker, tmp_path: Path) -> None:
    shop = shop_on(broker, tmp_path, "upsert")
    shop.change()
    shop.commit()
    shop.publish()
    broker.kill()
    broker.start()
    shop.change()
    shop.commit()
    shop.publish()
    assert_equal(shop, shop.model())


def test_a_broker_that_is_killed_during_publishes_has_each_epoch_once(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "WAIT_S", 10)
    shop, epochs, failed = shop_on(broker, tmp_path, "debezium"), [], 0
    for _ in range(6):
        shop.change()
        epochs.append(shop.commit())
        with ThreadPoolExecutor(1) as thread:
            publishing = thread.submit(publish_tables, open_meta(shop.address), shop.settings)
            broker.kill()
            failed += publishing.exception() is not None
        broker.start()
        shop.publish()
        assert_equal(shop, shop.model())
    assert topics_of(shop).epochs() == epochs
    assert failed
