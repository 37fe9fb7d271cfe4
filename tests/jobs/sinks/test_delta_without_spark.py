"""Delta tables of published relations, written without Spark: equal to the relations at every epoch, whoever dies or comes twice."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.sinks.base import ForeignTableError
from jobs.sinks.manifest import read_manifest
from jobs.sinks.publication import TablesNotPublishedError
from statestore.objectstore.open import open_object_store
from tests.jobs.sinks.shop import Shop, in_order, read_back


def check(shop: Shop) -> None:
    for name, rows in shop.model().items():
        assert read_back(f"{shop.folder}/tables/{name}") == in_order(rows), name


def test_tables_equal_their_relations_at_every_epoch_and_each_epoch_stays_readable_by_its_manifest(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    kept: dict[int, dict[str, Any]] = {}
    for number in range(14):
        shop.empty() if number == 9 else shop.change()
        epoch = shop.commit()
        shop.publish()
        check(shop)
        kept[epoch] = shop.model()
    tables = open_object_store(str(tmp_path / "tables"))
    for epoch, model in kept.items():
        manifest = read_manifest(tables, epoch)
        assert manifest is not None
        for name, rows in model.items():
            state = manifest.tables[name]
            assert read_back(state.table, version=state.version) == in_order(rows), (epoch, name)
