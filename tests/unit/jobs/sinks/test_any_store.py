"""Tables in a folder, in each kind of bucket and in HDFS: equal to their relations at every epoch, and after upkeep."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog

from tests.support.jobs.sinks.shop import Shop, in_order
from tussock.jobs.delta.location import location_in
from tussock.jobs.iceberg.object_io import properties_in
from tussock.jobs.settings.publishing import read_publish
from tussock.jobs.settings.values import PipelineError
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.publication import tidy_tables
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import as_s3

NAMES = ("orders", "by_shop", "events")
DAY_MS = 86_400_000


def shop_in(store: ObjectStore, folder: Path, kind: str) -> Shop:
    folder = folder / "shop"
    folder.mkdir()
    shop = Shop(folder, to=store.uri, kind=kind)
    settings = msgspec.structs.replace(shop.settings, relations=NAMES)
    if kind == "iceberg":
        (folder / "catalog").mkdir()
        catalog = {"name": "lake", "type": "sql", "uri": f"sqlite:///{folder}/catalog/catalog.db"}
        settings = msgspec.structs.replace(settings, catalog=catalog)
    shop.settings = settings
    return shop


def copied(store: ObjectStore, folder: Path) -> Path:
    """Copy all objects to a folder, for readers that cannot reach the store."""
    for info in store.list(""):
        file = folder / info.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(store.get(info.name))
    return folder


def rows_of(table: pa.Table) -> Sequence[tuple[object, ...]]:
    return in_order([tuple(row.values()) for row in table.to_pylist()])


def iceberg_rows(store: ObjectStore, folder: Path, copy: Path, name: str) -> Sequence[tuple[object, ...]]:
    """The rows of a table: pyiceberg lists the files, and Arrow reads copies of them without the deleted positions."""
    bucket = as_s3(store)
    io = {"s3.endpoint": bucket.address.endpoint or ""} if bucket is not None else properties_in(location_in(store))
    table = load_catalog("lake", type="sql", uri=f"sqlite:///{folder}/shop/catalog/catalog.db", **io).load_table(
        f"tussock.{name}"
    )
    root, rows = table.location().rpartition("/")[0], list[pa.Table]()
    local = lambda path: copy / path.removeprefix(f"{root}/")  # noqa: E731
    for task in table.scan().plan_files():
        dead = set[int]()
        for delete in task.delete_files:
            places = pq.read_table(local(delete.file_path))
            dead |= {p["pos"] for p in places.to_pylist() if p["file_path"] == task.file.file_path}
        part = pq.read_table(local(task.file.file_path))
        rows.append(part.take(pa.array([p for p in range(part.num_rows) if p not in dead], pa.int64())))
    return rows_of(pa.concat_tables(rows)) if rows else []


@pytest.mark.parametrize("kind", ["delta", "parquet", "iceberg"])
def test_tables_equal_their_relations_in_any_store(any_store: ObjectStore, tmp_path: Path, kind: str) -> None:
    shop = shop_in(any_store, tmp_path, kind)
    for number in range(12 if kind == "delta" else 4):
        shop.change()
        shop.commit()
        shop.publish()
        if number == 2:
            tidy_tables(shop.meta, shop.settings, (shop.meta.read_latest().published >> 16) + 30 * DAY_MS)
    assert sorted((c.relation, c.objection) for c in check_tables(shop.meta, shop.settings)) == [
        (n, None) for n in sorted(NAMES)
    ]
    model = {name: in_order(shop.model()[name]) for name in NAMES}
    copy = copied(any_store, tmp_path / "copy")
    if kind == "iceberg":
        for name in NAMES:
            assert iceberg_rows(any_store, tmp_path, copy, name) == model[name]
    if kind == "delta":
        for name in NAMES:
            table = DeltaTable(str(copy / name))
            read = QueryBuilder().register("t", table).execute("SELECT * FROM t")
            assert rows_of(pa.table(read)) == model[name]
        checkpoints = [i.name for i in any_store.list("orders/_delta_log/") if ".checkpoint.parquet" in i.name]
        assert checkpoints


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"to": "gs://b/p", "engine": "spark"}, "and not to gs://"),
        ({"to": "hdfs://n:8020/p", "engine": "spark"}, "and not to hdfs://"),
        ({"to": "hdfs://n:8020/p", "deletion_vectors": False}, "cannot rewrite files in HDFS"),
    ],
)
def test_a_writer_that_cannot_reach_its_place_is_refused_in_pipeline_toml(entry: dict[str, object], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        read_publish(entry, "pipeline.toml")
