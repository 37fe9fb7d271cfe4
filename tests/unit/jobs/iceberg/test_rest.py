"""Tables in a REST catalog: rights, and a server that goes away. The remedies of the messages end each trouble."""

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pyiceberg.table.snapshots import ancestors_of

from tests.support.jobs.iceberg.rest_of_sql import OWNER, READER, RestOfSql
from tests.support.jobs.sinks.shop import Shop
from tussock.jobs.iceberg.catalogs import CatalogAddress
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.publication import TablesNotPublishedError
from tussock.statestore.errors import RetryableError, TussockError

NAMES = ("orders", "by_shop")
TOKEN = "PYICEBERG_CATALOG__LAKE__TOKEN"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestOfSql]:
    monkeypatch.setenv(TOKEN, OWNER)
    running = RestOfSql(tmp_path)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def shop(tmp_path: Path, server: RestOfSql) -> Shop:
    made = Shop(tmp_path, kind="iceberg")
    catalog = {"name": "lake", "type": "rest", "uri": server.uri}
    made.settings = msgspec.structs.replace(made.settings, catalog=catalog, relations=NAMES)
    return made


def change(shop: Shop) -> int:
    shop.change()
    return shop.commit()


def require_equal(shop: Shop, server: RestOfSql, epochs: list[int]) -> None:
    """The tables equal the relations, each epoch is applied at most once, and every epoch has its tags."""
    assert {c.relation: c.objection for c in check_tables(shop.meta, shop.settings)} == dict.fromkeys(NAMES)
    address = CatalogAddress("lake", {"type": "rest", "uri": server.uri})
    for name in NAMES:
        table = address.load_table(f"tussock.{name}")
        applied = [
            snapshot.summary.additional_properties["tussock.epoch"]
            for snapshot in ancestors_of(table.current_snapshot(), table.metadata)
            if snapshot.summary is not None
        ]
        assert len(applied) == len(set(applied))
        assert {f"tussock-epoch-{epoch}" for epoch in epochs} <= table.metadata.refs.keys()


def test_wrong_credentials_are_named_and_a_publish_with_right_ones_continues(
    shop: Shop, server: RestOfSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = change(shop)
    monkeypatch.setenv(TOKEN, "nobody")
    with pytest.raises(TussockError, match=rf"'lake' denied access.*the token is unknown.*{TOKEN[:-5]}CREDENTIAL, __T"):
        shop.publish()
    monkeypatch.setenv(TOKEN, OWNER)
    shop.publish()
    require_equal(shop, server, [epoch])


def test_a_reader_may_not_commit_and_a_publish_with_the_right_continues(
    shop: Shop, server: RestOfSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = [change(shop)]
    shop.publish()
    epochs.append(change(shop))
    monkeypatch.setenv(TOKEN, READER)
    with pytest.raises(TablesNotPublishedError, match=r"did not allow to commit to the table tussock\.orders"):
        shop.publish()
    monkeypatch.setenv(TOKEN, OWNER)
    shop.publish()
    require_equal(shop, server, epochs)


def test_a_server_that_does_not_answer_is_tried_again(shop: Shop, server: RestOfSql) -> None:
    epochs = [change(shop)]
    shop.publish()
    epochs.append(change(shop))
    server.stop()
    with pytest.raises(RetryableError, match="'lake' does not answer"):
        shop.publish()
    server.start()
    shop.publish()
    require_equal(shop, server, epochs)


def test_a_server_that_restarts_while_epochs_are_published_tears_and_repeats_nothing(
    shop: Shop, server: RestOfSql
) -> None:
    ended, failures, epochs = threading.Event(), list[str](), list[int]()

    def restart() -> None:
        while not ended.wait(0.2):
            server.stop()
            ended.wait(0.1)
            server.start()

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        for _ in range(4):
            epochs.append(change(shop))
            for _ in range(200):
                try:
                    shop.publish()
                    break
                except (RetryableError, TablesNotPublishedError) as err:
                    failures.append(str(err))
    finally:
        ended.set()
        thread.join()
    assert failures, "some publishes met a server that was away"
    assert all("does not answer" in failure for failure in failures)
    require_equal(shop, server, epochs)
