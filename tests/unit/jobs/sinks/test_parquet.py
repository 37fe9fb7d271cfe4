"""Snapshots in Parquet of published relations."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sinks.shop import Shop, in_order, sorted_rows
from tests.support.s3_servers import BUCKET, moto_server
from tussock.jobs.delta.location import location_of
from tussock.jobs.sinks.manifest import read_manifest
from tussock.jobs.sinks.publication import TablesNotPublishedError, _Rows, tidy_tables
from tussock.statestore.objectstore.open import open_object_store

DAY_MS = 86_400_000


def check_snapshots(shop: Shop) -> None:
    """The newest file of each relation, which the manifest names, equals the relation."""
    manifest = read_manifest(open_object_store(shop.settings.to), shop.meta.read_latest().published)
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
    now = (shop.meta.read_latest().published >> 16) + 30 * DAY_MS
    tidy_tables(shop.meta, shop.settings, now)
    assert len(list(Path(shop.settings.to, "orders").iterdir())) == 1
    check_snapshots(shop)


class _BrokenOffError(Exception):
    pass


@pytest.mark.parametrize("bucket", [False, True], ids=["folder", "bucket"])
def test_an_interrupted_snapshot_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: bool) -> None:
    def half(self: _Rows) -> pa.RecordBatchReader:
        (batch, *_) = list(whole(self)) or [pa.RecordBatch.from_pylist([])]

        def batches() -> Any:
            yield batch
            raise _BrokenOffError

        return pa.RecordBatchReader.from_batches(batch.schema, batches())

    whole = _Rows.batches
    with moto_server() as endpoint:
        shop = Shop(
            tmp_path,
            kind="parquet",
            to=f"s3://{BUCKET}/snapshots?endpoint={endpoint}&path_style=true" if bucket else None,
        )
        location = location_of(shop.settings.to)
        shop.change()
        shop.commit()
        with monkeypatch.context() as broken:
            broken.setattr(_Rows, "batches", half)
            with pytest.raises(TablesNotPublishedError, match="_BrokenOffError"):
                shop.publish()
        assert [info.name for info in location.objects.list("") if info.name.endswith(".parquet")] == []
        shop.publish()
        for name, rows in shop.model().items():
            (newest,) = [info.name for info in location.objects.list(f"{name}/")]
            found = pq.read_table(location.open_file(newest))
            assert sorted_rows(found) == in_order(rows), name
