"""A Delta sink and an Iceberg sink of one pipeline: publishers die, sinks go away, others use the same catalog.

A reader of tags reads two Iceberg tables all the while: at each tag that both have, one is computed from the other.
"""

import os
import threading
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np
import pytest
import sqlalchemy.dialects.sqlite  # noqa: F401 - compiles code, which threads of Python 3.11 cannot do at once
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of
from sqlalchemy.exc import OperationalError

import tussock.jobs.sinks.delta_located
import tussock.jobs.sinks.iceberg  # noqa: F401 - pytest compiles both, as above
from tests.support.jobs.sinks.dying import KilledError, dying
from tests.support.jobs.sinks.shop import Rows, Shop, in_order, read_back, sorted_rows
from tussock.jobs.iceberg.iceberg_errors import CatalogAwayError
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.publishing import DeltaSettings, IcebergSettings, PublishSettings
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.everywhere import publish_sinks
from tussock.jobs.sinks.manifest import read_epoch_manifest
from tussock.jobs.sinks.publication import TablesNotPublishedError
from tussock.statestore.objectstore.local import LocalObjectStore

NAMES = ("orders", "by_shop", "events")
REQUESTS = ((LocalObjectStore, "put"), (LocalObjectStore, "put_if_absent"), (SqlCatalog, "commit_table"))
TAG = "tussock-epoch-"


def sinks_in(folder: Path) -> tuple[PublishSettings, ...]:
    return DeltaSettings(f"{folder}/lake", NAMES), IcebergSettings(f"{folder}/ice", NAMES)


def iceberg_table(folder: Path, name: str) -> Table:
    uri, warehouse = f"sqlite:///{folder}/ice/catalog.db", f"file://{folder}/ice"
    return load_catalog("tussock", type="sql", uri=uri, warehouse=warehouse).load_table(f"tussock.{name}")


def rows_at(table: Table, tag: str) -> Rows:
    (snapshot,) = [ref.snapshot_id for name, ref in table.metadata.refs.items() if name == tag]
    columns = ("id", "shop", "amount") if table.name()[-1] == "orders" else ("*",)
    return sorted_rows(table.scan(snapshot_id=snapshot, selected_fields=columns).to_arrow())


@dataclass
class TagReader:
    """Reads both tables at the newest tag that both have."""

    folder: Path
    reads: list[str] = field(default_factory=list)
    torn: list[object] = field(default_factory=list)

    def look(self) -> None:
        try:
            orders, by_shop = (iceberg_table(self.folder, name) for name in ("orders", "by_shop"))
        except (NoSuchTableError, OperationalError):  # no catalog yet, or one without the table
            return
        tags = [t for t in orders.metadata.refs.keys() & by_shop.metadata.refs.keys() if t.startswith(TAG)]
        if not tags:
            return
        tag = max(tags, key=lambda name: int(name.removeprefix(TAG)))
        totals: dict[str | None, list[Decimal]] = {}
        for _, shop, amount in rows_at(orders, tag):
            totals.setdefault(shop, []).append(Decimal(amount))
        expected = in_order([(shop, len(some), sum(some, Decimal(0))) for shop, some in totals.items()])
        if (found := rows_at(by_shop, tag)) != expected:
            self.torn.append((tag, found, expected))
        self.reads.append(tag)


def require_equal(shop: Shop, folder: Path, epochs: list[int]) -> None:
    """Both sinks have the rows of the model, and each epoch once."""
    for name, rows in shop.model().items():
        if name in NAMES:
            assert read_back(f"{folder}/lake/{name}") == in_order(rows), name
    for sink in sinks_in(folder):
        assert {c.relation: c.objection for c in check_tables(shop.meta, sink)} == dict.fromkeys(NAMES), sink.title
    table = iceberg_table(folder, "orders")
    seen = [
        int(snapshot.summary.additional_properties["tussock.epoch"])
        for snapshot in ancestors_of(table.current_snapshot(), table.metadata)
        if snapshot.summary is not None
    ]
    assert len(seen) == len(set(seen)), "no epoch is applied twice"
    assert set(seen) <= set(epochs)
    assert {f"{TAG}{epoch}" for epoch in epochs} <= table.metadata.refs.keys()
    assert read_epoch_manifest(shop.meta.objects, epochs[-1]) is not None


@pytest.mark.parametrize("kills", [12, pytest.param(500, marks=[pytest.mark.deep, pytest.mark.timeout(14_400)])])
def test_no_kill_tears_repeats_or_loses_an_epoch_and_a_reader_of_tags_sees_one_moment(
    tmp_path: Path, kills: int
) -> None:
    left, seed = int(os.environ.get("LAKE_KILLS", kills)), int(os.environ.get("LAKE_SEED", 7))
    while left > 0:  # a new store now and then, because the metadata of a table grows with its snapshots
        left -= kill_publishers(tmp_path / str(seed), seed, min(left, 40))
        seed += 1


def kill_publishers(folder: Path, seed: int, kills: int) -> int:
    """Publish epochs until so many publishers have died. A reader looks at one moment of each publish."""
    folder.mkdir()
    shop, random, reader = Shop(folder, seed=seed), np.random.default_rng(seed), TagReader(folder)
    sinks, killed, epochs = sinks_in(folder), 0, list[int]()
    while killed < kills:
        shop.change()
        epochs.append(shop.commit())
        while True:
            dies_at, looks_at = int(random.integers(0, 70)), int(random.integers(1, 70))
            try:
                with dying(REQUESTS, dies_at, looks_at, reader.look):
                    publish_sinks(open_meta(shop.address), sinks, sinks)
            except KilledError:
                killed += 1
            else:
                break
        reader.look()
        require_equal(shop, folder, epochs)
        print(f"seed {seed}: {killed} kills, {len(epochs)} epochs, {len(reader.reads)} reads of two tables", flush=True)
        assert not reader.torn, reader.torn[0]
    assert len(set(reader.reads)) > 1
    return killed


def test_a_sink_that_was_away_for_five_epochs_catches_up_in_one_step(tmp_path: Path) -> None:
    shop, sinks = Shop(tmp_path, seed=3), sinks_in(tmp_path)
    shop.change()
    shop.commit()
    publish_sinks(shop.meta, sinks, sinks)
    there, away = tmp_path / "ice", tmp_path / "away"
    there.rename(away)
    there.write_text("no folder")
    before = len(list(away.rglob("*.avro")))
    for _ in range(5):
        shop.change()
        epoch = shop.commit()
        with pytest.raises(CatalogAwayError, match="does not answer"):
            publish_sinks(shop.meta, sinks, sinks)
        assert read_back(f"{tmp_path}/lake/orders") == in_order(shop.model()["orders"]), "the other sink goes on"
        assert read_epoch_manifest(shop.meta.objects, epoch) is None
    there.unlink()
    away.rename(there)
    assert len(list(there.rglob("*.avro"))) == before
    publish_sinks(shop.meta, sinks, sinks)
    table = iceberg_table(tmp_path, "orders")
    assert len(table.snapshots()) == 2, "one snapshot for five epochs"
    assert {c.relation: c.objection for c in check_tables(shop.meta, sinks[1])} == dict.fromkeys(NAMES)
    assert read_epoch_manifest(shop.meta.objects, epoch) is not None


def test_two_pipelines_publish_into_one_catalog(tmp_path: Path) -> None:
    shops = [Shop(tmp_path / name, seed=seed) for seed, name in enumerate(("a", "b"))]
    (tmp_path / "shared").mkdir()
    catalog = {"name": "lake", "type": "sql", "uri": f"sqlite:///{tmp_path}/shared/catalog.db"}
    sinks = [IcebergSettings(f"{tmp_path}/shared/{n}", NAMES, namespace=n, catalog=catalog) for n in ("a", "b")]
    for _ in range(3):
        for shop in shops:
            shop.change()
            shop.commit()
        threads = [
            threading.Thread(target=publish_sinks, args=(open_meta(shop.address), [sink], [sink]))
            for shop, sink in zip(shops, sinks, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        for shop, sink in zip(shops, sinks, strict=True):
            assert {c.relation: c.objection for c in check_tables(shop.meta, sink)} == dict.fromkeys(NAMES)
    mixed = msgspec.structs.replace(sinks[1], namespace="a", to=f"{tmp_path}/shared/c")
    shops[1].change()
    shops[1].commit()
    with pytest.raises(TablesNotPublishedError, match="another store"):
        publish_sinks(open_meta(shops[1].address), [mixed], [mixed])
