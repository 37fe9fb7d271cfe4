"""Tables in a REST catalog: the servlet of Iceberg's own tests, which is stopped and started between epochs."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog

from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.jobs.iceberg.rest import RestServer, rest_server
from tests.support.jobs.sinks.shop import Shop, in_order
from tussock.jobs.barriers.source_holds import require_not_held
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.jobs.sinks.publication import TablesNotPublishedError

pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]

FIELDS = Field("id", "bigint"), Field("shop", "string")
RELATIONS = ("orders", "by_shop")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with rest_server(tmp_path_factory.mktemp("rest")) as running:
        yield running


def shop_in(server: RestServer, folder: Path, version: int) -> Shop:
    shop = Shop(folder, kind="iceberg")
    catalog = {"name": "lake", "type": "rest", "uri": server.uri}
    shop.settings = msgspec.structs.replace(
        shop.settings, catalog=catalog, relations=RELATIONS, format_version=version, namespace=f"shop_{version}"
    )
    return shop


@pytest.mark.parametrize("version", [2, 3])
def test_a_source_follows_tables_that_a_sink_publishes_and_the_server_restarts(
    tmp_path: Path, server: RestServer, version: int
) -> None:
    shop = shop_in(server, tmp_path, version)
    place = {"catalog": "lake", "table": f"shop_{version}.orders", "catalog.type": "rest", "catalog.uri": server.uri}
    meta = new_store(tmp_path / "copy")
    source = CreateSource("s", "iceberg", FIELDS, {**place, "folders": f"{tmp_path}/tables"})
    append(meta, source, CreateView("copy", "SELECT * FROM s", Scan("s", (0, 1), FIELDS)))
    epochs = []
    for number in range(8):
        shop.change()
        epochs.append(shop.commit())
        if number % 3 == 2:
            server.stop()
            with pytest.raises((TablesNotPublishedError, Exception), match="does not answer"):
                shop.publish()
            server.start()
        shop.publish()
        advance_store(LocalRunner(), meta)
        require_not_held(meta.read_latest().catalog)
        assert in_order(rows(meta, "copy")) == in_order([row[:2] for row in shop.model()["orders"]])
        catalog = load_catalog("lake", type="rest", uri=server.uri)
        by_shop = catalog.load_table(f"shop_{version}.by_shop").scan().to_arrow()
        assert in_order([tuple(row.values()) for row in by_shop.to_pylist()]) == in_order(shop.model()["by_shop"])
    for name in RELATIONS:
        refs = catalog.load_table(f"shop_{version}.{name}").metadata.refs
        assert {f"tussock-epoch-{epoch}" for epoch in epochs} <= refs.keys()


def test_the_tags_of_an_epoch_are_one_commit_over_all_tables(tmp_path: Path, server: RestServer) -> None:
    shop = shop_in(server, tmp_path, 2)
    shop.settings = msgspec.structs.replace(shop.settings, namespace="together")
    shop.change()
    epoch = shop.commit()
    commits, commit = list[str](), RestCatalog.commit_table

    def counted(self: RestCatalog, table, requirements, updates):  # type: ignore[no-untyped-def]
        commits.extend(update.action for update in updates)
        return commit(self, table, requirements, updates)

    with patch.object(RestCatalog, "commit_table", counted):
        shop.publish()
    assert commits.count("set-snapshot-ref") == len(RELATIONS), "only those of the branch main"
    catalog = load_catalog("lake", type="rest", uri=server.uri)
    for name in RELATIONS:
        assert f"tussock-epoch-{epoch}" in catalog.load_table(f"together.{name}").metadata.refs
