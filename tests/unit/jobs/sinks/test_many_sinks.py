"""Several sinks of one pipeline: one epoch in all of them, side by side, and one that fails holds back no other."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs.sinks.shop import ORDERS, Shop, in_order, read_back, sorted_rows
from tussock.jobs.facts.published import copies_of_view
from tussock.jobs.logical.nodes import AggCall, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import CreateView
from tussock.jobs.settings.home import home_of
from tussock.jobs.settings.publishing import KINDS, DeltaSettings, ParquetSettings, PublishSettings
from tussock.jobs.sinks import kinds
from tussock.jobs.sinks.base import Publisher, SinkPlace
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.everywhere import SinksNotPublishedError, publish_sinks, tidy_sinks
from tussock.jobs.sinks.kinds import open_place
from tussock.jobs.sinks.manifest import read_epoch_manifest
from tussock.jobs.sinks.outline import outline_of
from tussock.jobs.sinks.publication import PublishedTable
from tussock.statestore.errors import InputError, RetryableError

RELATIONS = ("orders", "events", "by_shop")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, seed=7)


@pytest.fixture
def sinks(tmp_path: Path) -> tuple[PublishSettings, ...]:
    return (
        DeltaSettings(f"{tmp_path}/lake", RELATIONS, "lake"),
        ParquetSettings(f"{tmp_path}/files", RELATIONS),
        DeltaSettings(f"{tmp_path}/few", ("orders",), "few"),
    )


def publish(shop: Shop, sinks: Sequence[PublishSettings], *names: str) -> tuple[PublishedTable, ...]:
    chosen = [sink for sink in sinks if not names or sink.title in names]
    return publish_sinks(shop.meta, sinks, chosen)


def rows_in(shop: Shop, sink: PublishSettings, relation: str) -> list[tuple[Any, ...]]:
    home, catalog = home_of(shop.meta.objects), shop.meta.read_latest().catalog
    found = next(r for r in catalog.live_relations() if r.name == relation)
    with open_place(sink, Publisher(shop.meta, home, lambda _: "")) as place:
        return sorted_rows(place.sink_of(outline_of(found, home)).read_rows().read_all())


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, broken: str, error: Exception) -> Iterator[None]:
    """Within the block, the sink of this name cannot be opened."""
    with monkeypatch.context() as patch:

        @contextmanager
        def open_or_fail(settings: PublishSettings, publisher: Publisher) -> Iterator[SinkPlace]:
            if settings.title == broken:
                raise error
            with open_place(settings, publisher) as place:
                yield place

        patch.setattr("tussock.jobs.sinks.publication.open_place", open_or_fail)
        yield


def test_every_sink_has_every_epoch_and_one_manifest_maps_it_to_their_versions(
    shop: Shop, sinks: tuple[PublishSettings, ...], tmp_path: Path
) -> None:
    for _ in range(4):
        shop.change()
        epoch = shop.commit()
        publish(shop, sinks)
        model = shop.model()
        for sink in sinks:
            for name in sink.relations or ():
                assert rows_in(shop, sink, name) == in_order(model[name]), (epoch, sink.title, name)
        manifest = read_epoch_manifest(shop.meta.objects, epoch)
        assert manifest is not None
        assert {name: sorted(part.tables) for name, part in manifest.sinks.items()} == {
            sink.title: sorted(sink.relations or ()) for sink in sinks
        }
        version = manifest.sinks["lake"].tables["orders"].version
        assert read_back(f"{tmp_path}/lake/orders", version=version) == in_order(model["orders"])
    assert publish(shop, sinks) == ()


def test_a_sink_that_fails_is_named_and_catches_up_in_one_step(
    shop: Shop, sinks: tuple[PublishSettings, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shop.change()
    shop.commit()
    publish(shop, sinks)
    for _ in range(3):
        shop.change()
        epoch = shop.commit()
        with failing(monkeypatch, "lake", InputError("away")), pytest.raises(SinksNotPublishedError) as failure:
            publish(shop, sinks)
        assert "1 of 3 sinks failed" in str(failure.value)
        assert "Up to date: parquet, few." in str(failure.value)
        assert "lake: " in str(failure.value)
        assert rows_in(shop, sinks[1], "orders") == in_order(shop.model()["orders"])
        assert read_epoch_manifest(shop.meta.objects, epoch) is None
    log = tmp_path / "lake/by_shop/_delta_log"
    before = len(list(log.glob("*.json")))
    publish(shop, sinks, "lake")
    assert rows_in(shop, sinks[0], "by_shop") == in_order(shop.model()["by_shop"])
    assert len(list(log.glob("*.json"))) == before + 1
    assert read_epoch_manifest(shop.meta.objects, epoch) is not None


def test_if_all_failures_can_be_retried_the_task_is(
    shop: Shop, sinks: tuple[PublishSettings, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.change()
    shop.commit()
    with failing(monkeypatch, "few", RetryableError("busy")), pytest.raises(RetryableError) as failure:
        publish(shop, sinks)
    assert failure.value.__notes__ == ["Failed sinks: few."]
    publish(shop, sinks)
    assert rows_in(shop, sinks[2], "orders") == in_order(shop.model()["orders"])


def test_the_page_of_a_view_knows_each_copy(shop: Shop, sinks: tuple[PublishSettings, ...]) -> None:
    shop.change()
    shop.commit()
    assert [copy.version for copy in copies_of_view(shop.meta, sinks, "by_shop")] == ["", "", ""]
    publish(shop, sinks)
    lake, files, few = copies_of_view(shop.meta, sinks, "by_shop")
    rows = len(shop.model()["by_shop"])
    assert (lake.rows, files.rows, files.files, lake.deleted_share) == (rows, rows, 1, 0.0)
    assert lake.epoch == shop.meta.read_latest().published
    assert (few.version, few.trouble, lake.upkeep) == ("", "", None)
    tidy_sinks(shop.meta, sinks[:1], 1_700_000_100_000)
    assert copies_of_view(shop.meta, sinks, "by_shop")[0].upkeep is not None


def test_each_kind_of_the_settings_has_its_module() -> None:
    from tussock.jobs.settings.publishing import KINDS

    assert set(KINDS) == set(kinds._MODULES)
    assert {name for name, kind in KINDS.items() if kind("x").kind != name} == set()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_view_of_one_row_without_a_key_is_published(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path, seed=5)
    fields = (Field("n", "bigint"), Field("total", "decimal(22,2)"))
    amount = (Column(0, "decimal(12,2)"),)
    calls = (AggCall("Count", "bigint", ()), AggCall("Sum", "decimal(22,2)", amount, "ANSI"))
    total = Aggregate(Scan("orders", (2,), (ORDERS[2],)), (), calls, fields)
    shop.append(CreateView("total", "SELECT count(*) AS n, sum(amount) AS total FROM orders", total))
    sink = KINDS[kind](f"{tmp_path}/{kind}", ("total",))
    for _ in range(3):
        shop.change()
        shop.commit()
        publish(shop, [sink])
        amounts = [row[2] for row in shop.model()["orders"]]
        assert rows_in(shop, sink, "total") == in_order([(len(amounts), sum(amounts, Decimal(0)))])
        assert {check.objection for check in check_tables(shop.meta, sink)} == {None}
