"""Publishers that die over four sinks at once: no table is torn, no epoch is missing, and none is applied twice."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.jobs.sinks.dying import KilledError, dying
from tests.support.jobs.sinks.kafka_topics import Topics
from tests.support.jobs.sinks.shop import Rows, Shop, in_order, read_back, sorted_rows
from tests.support.jobs.sources.kafka_broker import Broker
from tests.support.postgres import PostgresServer, password_set
from tussock.jobs.settings.home import home_of
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.publishing import (
    DeltaSettings,
    IcebergSettings,
    KafkaSettings,
    MessageFormat,
    PostgresSettings,
    PublishSettings,
)
from tussock.jobs.sinks import kafka
from tussock.jobs.sinks.base import Publisher
from tussock.jobs.sinks.everywhere import publish_sinks
from tussock.jobs.sinks.kinds import open_place
from tussock.jobs.sinks.manifest import read_epoch_manifest
from tussock.jobs.sinks.outline import outline_of
from tussock.statestore.objectstore.local import LocalObjectStore

pytestmark = [pytest.mark.deep, pytest.mark.timeout(2400)]

RELATIONS = ("events", "ratios", "by_shop")
KILLS = int(os.environ.get("SINK_KILLS", "200"))
SEED = int(os.environ.get("SINK_SEED", "5"))
REQUESTS = (
    (LocalObjectStore, "put"),
    (LocalObjectStore, "put_if_absent"),
    (SqlCatalog, "commit_table"),
    (psycopg.Connection, "execute"),
    (psycopg.Connection, "commit"),
    (psycopg.Cursor, "copy"),
    (kafka.KafkaPlace, "_send"),
    (kafka.KafkaPlace, "_read_control"),
    (kafka.KafkaPlace, "finish_epoch"),
)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server, password_set():
        yield server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "kafka" / "broker") as broker:
        yield broker


def rows_in(shop: Shop, sink: PublishSettings, relation: str) -> Rows:
    """The rows, read by the sink itself."""
    home, catalog = home_of(shop.meta.objects), shop.meta.read_latest().catalog
    found = next(one for one in catalog.live_relations() if one.name == relation)
    with open_place(sink, Publisher(shop.meta, home, lambda _: "")) as place:
        return sorted_rows(place.sink_of(outline_of(found, home)).read_rows().read_all())


def totals_in(topics: Topics) -> dict[str | None, tuple[int, float]]:
    """`by_shop` as a consumer of its topic has it."""
    return {row["shop"]: (row["n"], float(row["total"])) for row in topics.rows_of("by_shop").values()}


def test_no_kill_tears_repeats_or_loses_an_epoch_in_four_sinks(
    server: PostgresServer, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka.KafkaPlace, "end", lambda place: None)  # a killed process aborts nothing
    shop, random = Shop(tmp_path, seed=SEED), np.random.default_rng(SEED)
    sinks: tuple[PublishSettings, ...] = (
        DeltaSettings(f"{tmp_path}/lake", RELATIONS),
        IcebergSettings(f"{tmp_path}/ice", RELATIONS),
        PostgresSettings(server.create_database("shop"), RELATIONS),
        stream := KafkaSettings(broker.servers, RELATIONS, format=MessageFormat.DEBEZIUM, topic_prefix="kills."),
    )
    topics = Topics(stream)
    killed, epochs, before = 0, list[int](), dict[str, Rows]()
    while killed < KILLS:
        shop.change()
        epochs.append(shop.commit())
        after = {name: in_order(rows) for name, rows in shop.model().items() if name in RELATIONS}
        while True:
            try:
                with dying(REQUESTS, int(random.integers(0, 260))):
                    publish_sinks(open_meta(shop.address), sinks, sinks)
            except KilledError:
                killed += 1
            else:
                break
            if before:
                seen = {name: in_order(server.read("shop", f"SELECT * FROM {name}")) for name in RELATIONS}
                assert seen in (before, after), "Postgres shows one epoch"
        assert totals_in(topics) == {key: (n, float(total)) for key, n, total in after["by_shop"]}
        assert topics.epochs() == epochs
        for sink in sinks[:3]:
            for name in RELATIONS:
                assert rows_in(shop, sink, name) == after[name], (sink.title, name)
        manifest = read_epoch_manifest(shop.meta.objects, epochs[-1])
        assert manifest is not None
        version = manifest.sinks["delta"].tables["by_shop"].version
        assert read_back(f"{tmp_path}/lake/by_shop", version=version) == after["by_shop"]
        before = after
        print(f"{killed} kills, {len(epochs)} epochs", flush=True)
    assert [epoch for (epoch,) in server.read("shop", "SELECT epoch FROM _tussock_epochs ORDER BY 1")] == epochs
