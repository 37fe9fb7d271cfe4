"""Iceberg tables in each kind of store, as sources: views equal pyiceberg's rows of each snapshot."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.jobs.iceberg.tables import NAME, rows_of
from tests.unit.jobs.sources.test_iceberg import COPY, FIELDS, advance, counted
from tussock.jobs.iceberg.object_io import io_properties
from tussock.jobs.iceberg.table_files import azure_account_of, normal_path_of
from tussock.jobs.logical.statements import CreateSource
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore


def test_a_table_in_any_store_is_followed(any_store: ObjectStore, tmp_path: Path) -> None:
    address, _, query = any_store.uri.partition("?")
    server = dict(part.split("=", 1) for part in query.split("&") if part)
    is_local = isinstance(any_store, LocalObjectStore)
    io = {} if is_local else {**io_properties(server), "s3.endpoint": server["endpoint"]}
    uri = f"sqlite:///{tmp_path}/catalog.db"
    catalog = SqlCatalog("lake", uri=uri, warehouse=address, **io)
    catalog.create_namespace("db")
    table = catalog.create_table(NAME, rows_of().schema)
    table.append(rows_of((1, 1.0, "a"), (2, None, None), (2, None, None)))
    meta, place = new_store(tmp_path / "views"), {"catalog": "lake", "table": NAME, "catalog.uri": uri}
    append(meta, CreateSource("s", "iceberg", FIELDS, {**place, "catalog.type": "sql", **server}), COPY)
    advance(meta)
    table.append(rows_of((3, 3.0, "c")))
    advance(meta)
    table.delete("id = 2")
    advance(meta)
    assert counted(rows(meta, "copy")) == counted([(1, 1.0, "a"), (3, 3.0, "c")])
    assert counted([tuple(row.values()) for row in table.scan().to_arrow().to_pylist()]) == counted(rows(meta, "copy"))


@pytest.mark.parametrize("scheme", ["abfs", "abfss", "wasb", "wasbs"])
def test_addresses_of_azure_are_read_in_the_form_of_other_programs(scheme: str) -> None:
    address = f"{scheme}://lake@shop.dfs.core.windows.net/db/t/a b.parquet"
    assert normal_path_of(address) == "az://lake/db/t/a b.parquet"
    assert azure_account_of(address) == "shop"
    assert azure_account_of("az://lake/db") is None
    assert azure_account_of("s3://lake@shop.x/db") is None
