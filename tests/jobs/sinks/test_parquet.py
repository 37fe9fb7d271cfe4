"""Snapshots in Parquet of published relations."""

from pathlib import Path

import pyarrow.parquet as pq

from jobs.sinks.kinds import sinks_without_spark
from jobs.sinks.manifest import read_manifest
from jobs.sinks.publication import tidy_tables
from statestore.objectstore.open import open_object_store
from tests.jobs.sinks.shop import Shop, in_order, sorted_rows

DAY_MS = 86_400_000


def check_snapshots(shop: Shop) -> None:
    """The newest file of each relation, and the one that the manifest names, equal the relation."""
    manifest = read_manifest(open_object_store(shop.settings.to), shop.meta.latest().published)
    assert manifest is not None
    for name, rows in shop.model().items():
        newest = max(Path(shop.settings.to, name).glob("*.parquet"))
        assert newest.name == manifest.tables[name].version
        assert sorted_rows(pq.read_table(newest)) == in_order(rows), name


def test_each_epoch_in_which_rows_changed_has_a_file_and_old_ones_are_forgotten(tmp_path: Path) -> None:
    shop = Shop(tmp_path, kind="parquet")
    for number in range(6):
        shop.empty() if number == 3 else shop.change()
        shop.commit()
        shop.publish()
        check_snapshots(shop)
    orders = len(list(Path(shop.settings.to, "orders").iterdir()))
    shop.add_event("view", 1)
    shop.commit()
    shop.publish()
    check_snapshots(shop)
    assert len(list(Path(shop.settings.to, "orders").iterdir())) == orders
    now = (shop.meta.latest().published >> 16) + 30 * DAY_MS
    tidy_tables(shop.meta, shop.settings, sinks_without_spark(shop.settings), now)
    assert len(list(Path(shop.settings.to, "orders").iterdir())) == 1
    check_snapshots(shop)
