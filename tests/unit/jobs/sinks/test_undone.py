"""After an undo, published tables have the rows of the earlier epoch, and go on from them."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.support.jobs.sinks.delta_without_spark import check
from tests.support.jobs.sinks.shop import EVENTS, RATIOS, Shop, in_order, sorted_rows, statements
from tests.support.postgres import PostgresServer, password_set
from tussock.jobs.barriers.undo import inject_undo
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import AddColumns, CreateTable, CreateView, Transaction
from tussock.jobs.settings.home import home_of
from tussock.jobs.settings.publishing import KINDS, PostgresSettings, PublishSettings
from tussock.jobs.sinks.base import Publisher
from tussock.jobs.sinks.kinds import open_place
from tussock.jobs.sinks.outline import outline_of
from tussock.statestore.hummock.row_shape import value_bytes


@pytest.mark.parametrize("replaced", [False, True])
def test_an_undo_reaches_a_delta_table_as_a_difference(tmp_path: Path, replaced: bool) -> None:
    shop = Shop(tmp_path)
    shop.change()
    good = shop.commit()
    shop.publish()
    rows = deepcopy((shop.orders, shop.ratios, shop.events))
    if replaced:
        (view,) = (s for s in statements() if isinstance(s, CreateView) and s.name == "by_shop")
        shop.append(Transaction((msgspec.structs.replace(view, or_replace=True, rebuilt=True),)))
    shop.empty() if not replaced else shop.change()
    shop.commit()
    shop.publish()
    check(shop)

    barrier = inject_undo(shop.meta, good, keeps_input=None, run={})
    run_epoch(LocalRunner(), shop.meta, barrier)
    shop.meta.publish(barrier.epoch)
    shop.orders, shop.ratios, shop.events = rows
    shop.publish()
    check(shop)
    shop.change()
    shop.commit()
    shop.publish()
    check(shop)


@pytest.fixture(params=["delta", "parquet", "iceberg", "postgres"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PublishSettings]:
    if request.param != "postgres":
        yield KINDS[request.param](str(tmp_path / "tables"), ("ratios", "events"))
        return
    with PostgresServer() as server, password_set():
        yield PostgresSettings(server.create_database("shop"), ("ratios", "events"))


@pytest.mark.parametrize("published_between", [True, False])
def test_a_column_that_an_undo_takes_back_leaves_the_copies(
    sink: PublishSettings, tmp_path: Path, published_between: bool
) -> None:
    shop = Shop(tmp_path)
    shop.settings = sink
    shop.change()
    good = shop.commit()
    shop.publish()
    rows = deepcopy((shop.orders, shop.ratios, shop.events))
    held = value_bytes(pa.array([7], pa.int32()))
    for name, fields in (("ratios", RATIOS), ("events", EVENTS)):
        (before,) = (s for s in statements() if isinstance(s, CreateTable) and s.name == name)
        after = msgspec.structs.replace(before, fields=(*fields, Field("more", "int")))
        shop.append(AddColumns(before, after, (held,)))
    wide = shop.commit()
    if published_between:
        shop.publish()
        assert copy_of(shop, "ratios").column_names == [*(f.name for f in RATIOS), "more"]

    for to, columns in ((good, 0), (wide, 1), (good, 0)):
        barrier = inject_undo(shop.meta, to, keeps_input=None, run={})
        run_epoch(LocalRunner(), shop.meta, barrier)
        shop.meta.publish(barrier.epoch)
        shop.publish()
        for name, wanted in (("ratios", rows[1].values()), ("events", rows[2])):
            assert sorted_rows(copy_of(shop, name)) == in_order([(*row, *[7] * columns) for row in wanted]), (name, to)
    shop.orders, shop.ratios, shop.events = rows
    shop.change()
    shop.commit()
    shop.publish()
    model = shop.model()
    for name in ("ratios", "events"):
        assert sorted_rows(copy_of(shop, name)) == in_order(model[name]), name


def copy_of(shop: Shop, relation: str) -> pa.Table:
    """The rows of the published copy."""
    home, catalog = home_of(shop.meta.objects), shop.meta.read_latest().catalog
    found = next(r for r in catalog.live_relations() if r.name == relation)
    with open_place(shop.settings, Publisher(shop.meta, home, lambda _: "")) as place:
        return place.sink_of(outline_of(found, home)).read_rows().read_all()
