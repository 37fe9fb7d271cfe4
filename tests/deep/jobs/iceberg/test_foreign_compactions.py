"""Iceberg's Java compacts published tables between epochs, over a REST catalog, and reads them after each.

pyiceberg and DuckDB read them too. COMPACTED_EPOCHS is the number of epochs.
"""

import os
from pathlib import Path

import msgspec
import pytest
from pyiceberg.catalog import load_catalog

from tests.support.jobs.iceberg.java import java_in
from tests.support.jobs.iceberg.rest import rest_server
from tests.support.jobs.sinks.shop import Shop, in_order
from tests.unit.jobs.sinks.test_iceberg import rows_of
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.publication import tidy_tables

pytestmark = [pytest.mark.deep, pytest.mark.timeout(2400)]

RELATIONS = ("orders", "by_shop", "ratios")
EPOCHS = int(os.environ.get("COMPACTED_EPOCHS", "50"))
COMPACTIONS = (
    "CALL rest.system.rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
    "CALL rest.system.rewrite_position_delete_files(table => '{}', options => map('rewrite-all', 'true'))",
    "CALL rest.system.rewrite_manifests(table => '{}')",
)


def texts(rows: list[tuple[object, ...]], places: list[int]) -> list[str]:
    return sorted(repr([None if row[p] is None else str(row[p]) for p in places]) for row in rows)


@pytest.mark.parametrize("version", [2, 3])
def test_java_compacts_and_reads_published_tables_for_fifty_epochs(tmp_path: Path, version: int) -> None:
    with rest_server(tmp_path / "rest") as server, java_in(tmp_path / "java", rest=server.uri) as java:
        shop = Shop(tmp_path, seed=version, kind="iceberg")
        catalog = {"name": "lake", "type": "rest", "uri": server.uri}
        shop.settings = msgspec.structs.replace(
            shop.settings, catalog=catalog, relations=RELATIONS, format_version=version, namespace="shop"
        )
        compacted = 0
        for number in range(EPOCHS):
            if number % 2:
                for name in RELATIONS:
                    java.run(sql=COMPACTIONS[(number // 2) % len(COMPACTIONS)].format(f"shop.{name}"))
                    compacted += 1
            if number % 20 == 19:
                tidy_tables(shop.meta, shop.settings, (shop.meta.read_latest().published >> 16) + 30 * 86_400_000)
            shop.change()
            shop.commit()
            shop.publish()
            lake = load_catalog("lake", type="rest", uri=server.uri)
            tables = {name: lake.load_table(f"shop.{name}") for name in RELATIONS}
            by_java = java.run(tables=[table.metadata_location for table in tables.values()])
            for (name, table), read in zip(tables.items(), by_java, strict=True):
                flat = [
                    i for i, field in enumerate(table.schema().fields) if str(field.field_type) in ("long", "string")
                ]
                assert texts(read, flat) == texts(shop.model()[name], flat), (number, name)
                assert in_order(rows_of(table)) == in_order(shop.model()[name]), (number, name)
                assert set(table.inspect.delete_files()["content"].to_pylist()) <= {1}, "no equality deletes"
            print(f"format {version}: {number + 1} epochs, {compacted} compactions", flush=True)
        found = {check.relation: check.objection for check in check_tables(shop.meta, shop.settings)}
        assert found == dict.fromkeys(RELATIONS)
