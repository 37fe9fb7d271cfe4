"""Published tables in a bucket of a real S3 server: equal after each of fifty epochs, with compactions by others."""

from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.support.jobs.sinks.delta_readers import package_rows
from tests.support.jobs.sinks.shop import Rows, Shop, in_order, sorted_rows
from tests.support.s3_servers import BUCKET, KEY, SECRET, versitygw_binary, versitygw_server
from tussock.jobs.delta.location import location_of
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.publication import tidy_tables

pytestmark = [pytest.mark.deep, pytest.mark.timeout(2400)]
EPOCHS = 50
RELATIONS = ("orders", "by_shop", "ratios")


def of_columns(rows: Rows, places: list[int]) -> Rows:
    return in_order([tuple(row[place] for place in places) for row in rows])


@pytest.mark.parametrize(("kind", "version"), [("delta", 0), ("iceberg", 2), ("iceberg", 3)])
def test_tables_in_a_bucket_equal_the_model_after_each_epoch(tmp_path: Path, kind: str, version: int) -> None:
    if (binary := versitygw_binary()) is None:
        pytest.skip("needs versitygw")
    with versitygw_server(binary, tmp_path / "server") as endpoint:
        to = f"s3://{BUCKET}/tables?endpoint={endpoint}&path_style=true"
        shop = Shop(tmp_path, seed=11 + version, kind=kind, to=to)
        shop.settings = msgspec.structs.replace(shop.settings, relations=RELATIONS)
        server = {"s3.endpoint": endpoint, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET}
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"s3://{BUCKET}/tables"}
        if kind == "iceberg":
            settings = {"catalog": {"name": "lake", **catalog}, "format_version": version}
            shop.settings = msgspec.structs.replace(shop.settings, **settings)
        for number in range(EPOCHS):
            shop.change()
            shop.commit()
            shop.publish()
            model = shop.model()
            for name in RELATIONS:
                if kind == "delta":
                    location = location_of(to)
                    table = DeltaTable(location.table_uri(name), storage_options=location.delta_options)
                    assert sorted_rows(package_rows(table)) == in_order(model[name]), (number, name)
                    if number % 4 == 1:
                        table.optimize.compact()
                    continue
                lake = load_catalog("lake", **catalog, **server).load_table(f"tussock.{name}")
                flat = [i for i, field in enumerate(lake.schema().fields) if field.field_type.is_primitive]
                read = lake.scan(selected_fields=tuple(lake.schema().fields[i].name for i in flat)).to_arrow()
                assert sorted_rows(read) == of_columns(model[name], flat), (number, name)
                assert set(lake.inspect.delete_files()["content"].to_pylist()) <= {1}, "no equality deletes"
            if number % 20 == 19:
                tidy_tables(shop.meta, shop.settings, (shop.meta.read_latest().published >> 16) + 30 * 86_400_000)
            print(f"{kind} {version}: {number + 1} epochs", flush=True)
        assert {c.relation: c.objection for c in check_tables(shop.meta, shop.settings)} == dict.fromkeys(RELATIONS)
