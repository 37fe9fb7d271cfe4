"""Troubles of tables in a REST catalog, by Iceberg's own servlet: each is named, and its remedy ends it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog

from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.jobs.iceberg.rest import RestServer, rest_server
from tests.support.jobs.iceberg.rest_of_sql import OWNER, READER
from tests.support.jobs.iceberg.tables import SCHEMA, commit_deletes, rows_of
from tests.support.jobs.sinks.shop import Shop, in_order
from tests.unit.jobs.iceberg.test_rest import (  # these use the fixtures below
    TOKEN,
    test_a_reader_may_not_commit_and_a_publish_with_the_right_continues,  # noqa: F401
    test_a_server_that_does_not_answer_is_tried_again,  # noqa: F401
    test_wrong_credentials_are_named_and_a_publish_with_right_ones_continues,  # noqa: F401
)
from tussock.jobs.barriers.source_holds import HeldSourcesError, require_not_held
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.iceberg.iceberg_errors import MissingIcebergTableError
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.jobs.sinks.publication import TablesNotPublishedError
from tussock.jobs.sources.describe import describe_source
from tussock.statestore.meta.store import MetaStore

pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]

NAMES = ("orders", "by_shop")
FIELDS = (Field("id", "bigint"), Field("v", "double"), Field("p", "string"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with rest_server(tmp_path_factory.mktemp("rest"), (OWNER, READER)) as made:
        yield made


@pytest.fixture
def server(running: RestServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestServer]:
    """The server, without tables."""
    monkeypatch.setenv(TOKEN, OWNER)
    yield running
    lake = lake_of(running)
    for namespace in lake.list_namespaces():
        for table in lake.list_tables(namespace):
            lake.drop_table(table)
        lake.drop_namespace(namespace)


@pytest.fixture
def shop(tmp_path: Path, server: RestServer) -> Shop:
    made = Shop(tmp_path, kind="iceberg")
    catalog = {"name": "lake", "type": "rest", "uri": server.uri}
    made.settings = msgspec.structs.replace(made.settings, catalog=catalog, relations=NAMES)
    return made


@pytest.fixture
def meta(tmp_path: Path, server: RestServer) -> MetaStore:
    """A store with a source over the table db.t, which has two rows, and one epoch."""
    lake = lake_of(server)
    lake.create_namespace("db")
    lake.create_table("db.t", SCHEMA).append(rows_of((1, 0.5, "a"), (2, 1.5, "b")))
    made = new_store(tmp_path / "store")
    append(made, source_of(server), CreateView("copy", "SELECT * FROM s", Scan("s", (0, 1, 2), FIELDS)))
    advance(made)
    return made


def lake_of(server: RestServer) -> RestCatalog:
    lake = load_catalog("lake", type="rest", uri=server.uri, token=OWNER)
    assert isinstance(lake, RestCatalog)
    return lake


def source_of(server: RestServer, table: str = "db.t") -> CreateSource:
    place = {"catalog": "lake", "table": table, "catalog.type": "rest", "catalog.uri": server.uri}
    return CreateSource("s", "iceberg", FIELDS, place)


def advance(meta: MetaStore) -> None:
    advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)


def publish(shop: Shop) -> None:
    shop.change()
    shop.commit()
    shop.publish()


@pytest.mark.parametrize("table", ["db.none", "none.t"])
def test_a_table_that_does_not_exist_is_named(server: RestServer, table: str) -> None:
    with pytest.raises(MissingIcebergTableError, match=f"has no table '{table}'"):
        describe_source(source_of(server, table), lambda: pytest.fail("no Spark is needed"))


def test_commits_of_others_are_named_until_the_table_is_removed(shop: Shop, server: RestServer) -> None:
    publish(shop)
    table = lake_of(server).load_table("tussock.by_shop")
    commit_deletes(table, equal=table.scan(selected_fields=("n",), limit=1).to_arrow())
    with pytest.raises(TablesNotPublishedError, match=r"was changed in snapshot \d+ \(overwrite by another program"):
        publish(shop)
    lake_of(server).drop_table("tussock.by_shop")
    publish(shop)
    by_shop = lake_of(server).load_table("tussock.by_shop").scan().to_arrow()
    assert len(by_shop) == len(shop.model()["by_shop"])


def test_a_table_that_is_gone_for_a_while_holds_its_source(meta: MetaStore, server: RestServer) -> None:
    lake = lake_of(server)
    table = lake.load_table("db.t")
    lake.rename_table("db.t", "db.other")
    with pytest.raises(HeldSourcesError, match=r"has no table 'db\.t'"):
        advance(meta)
    lake.rename_table("db.other", "db.t")
    table.refresh()
    table.append(rows_of((3, None, None)))
    advance(meta)
    assert in_order(rows(meta, "copy")) == in_order([(1, 0.5, "a"), (2, 1.5, "b"), (3, None, None)])


def test_an_expired_snapshot_holds_the_source(meta: MetaStore, server: RestServer) -> None:
    table = lake_of(server).load_table("db.t")
    (taken,) = table.snapshots()
    table.append(rows_of((3, None, None)))
    table.maintenance.expire_snapshots().by_id(taken.snapshot_id).commit()
    with pytest.raises(HeldSourcesError, match="that snapshot has expired"):
        advance(meta)


def test_a_column_that_is_dropped_holds_the_source(meta: MetaStore, server: RestServer) -> None:
    table = lake_of(server).load_table("db.t")
    with table.update_schema() as update:
        update.delete_column("p")
    table.append(rows_of((3, None, None)).drop_columns(["p"]))
    with pytest.raises(HeldSourcesError, match="no such column with the field id 3"):
        advance(meta)
