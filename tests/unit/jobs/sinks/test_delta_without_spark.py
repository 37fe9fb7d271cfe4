"""Delta tables of published relations, written without Spark.

They equal the relations at every epoch, even if publishers die or run twice.
"""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.jobs.driver.embedded import epoch as commit_epoch
from tests.support.jobs.sinks import delta_without_spark as shared
from tests.support.jobs.sinks.delta_readers import package_rows
from tests.support.jobs.sinks.delta_without_spark import check
from tests.support.jobs.sinks.publishing import publish
from tests.support.jobs.sinks.shop import Shop, in_order, read_back
from tests.support.s3_servers import BUCKET, moto_process, versitygw_binary, versitygw_server
from tussock.jobs.delta.delta_packages import with_delta
from tussock.jobs.delta.location import location_of
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Column, Field, Project, Scan
from tussock.jobs.logical.statements import CreateTable, CreateView, Drop
from tussock.jobs.settings.publishing import DeltaSettings
from tussock.jobs.sinks.base import SinkBusyError
from tussock.jobs.sinks.delta_state import translating_errors
from tussock.jobs.sinks.manifest import read_manifest
from tussock.jobs.sinks.publication import NotPublishedError, TablesNotPublishedError, publish_tables, tidy_tables
from tussock.jobs.sinks.records import forget_records, read_records
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.errors import EpochNotCommittedError
from tussock.statestore.objectstore.open import open_object_store

shop = shared.shop
DAY_MS = 86_400_000


@pytest.fixture(params=["moto", "versitygw"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty prefix in a bucket, with a placeholder for its last part."""
    binary = versitygw_binary()
    if request.param == "versitygw" and binary is None:
        pytest.skip("versitygw has not been built (docs/clusters.md)")
    with moto_process() if request.param == "moto" else versitygw_server(str(binary), tmp_path / "s3") as endpoint:
        yield f"s3://{BUCKET}/{{}}?endpoint={endpoint}&path_style=true"


def versions(shop: Shop) -> dict[str, int]:
    return {name: DeltaTable(f"{shop.folder}/tables/{name}").version() for name in shop.model()}


def test_tables_equal_their_relations_at_every_epoch_and_each_epoch_stays_readable_by_its_manifest(shop: Shop) -> None:
    kept: dict[int, dict[str, Any]] = {}
    for number in range(9):
        shop.empty() if number == 6 else shop.change()
        epoch = shop.commit()
        shop.publish()
        check(shop)
        kept[epoch] = shop.model()
    tables = open_object_store(shop.settings.to)
    for epoch, model in kept.items():
        manifest = read_manifest(tables, epoch)
        assert manifest is not None
        for name, rows in model.items():
            state = manifest.tables[name]
            assert read_back(state.table, version=state.version) == in_order(rows), (epoch, name)


def test_a_repeated_publish_writes_nothing_and_a_skipped_one_is_caught_up(shop: Shop) -> None:
    shop.change()
    first = shop.commit()
    assert {table.relation for table in shop.publish() if table.changed} == set(shop.model())
    before = versions(shop)
    assert shop.publish() == ()
    (
        shop.folder / "tables" / "_tussock" / f"{first:020}.json"
    ).unlink()  # as if the first one had died before its last step
    assert not any(table.changed for table in shop.publish())
    assert versions(shop) == before
    for _ in range(3):
        shop.change()
        shop.commit()
    shop.publish()
    check(shop)
    shop.publish(first)  # an old run that is cleared
    check(shop)


def test_tables_never_show_an_epoch_that_readers_do_not_see_nor_one_that_never_was(shop: Shop) -> None:
    shop.change()
    published = shop.commit()
    shop.change()
    held = commit_epoch(shop.meta, LocalRunner()).epoch
    with pytest.raises(NotPublishedError, match=f"epoch {held} is committed, but readers still see epoch {published}"):
        shop.publish(held)
    with pytest.raises(EpochNotCommittedError):
        shop.publish(published + 1)
    assert not (shop.folder / "tables").exists()


def test_one_publish_of_many_updates_merges_them_all(shop: Shop) -> None:
    settings = DeltaSettings(shop.settings.to, ("orders",))
    for ratio in (0.0, 1.0):  # every row of the second epoch replaces one of the same file of the table
        shop.session.insert("orders", pa.table({"id": np.arange(100_000), "ratio": np.full(100_000, ratio)}))
        shop.commit()
        publish_tables(shop.meta, settings, None)
    table = DeltaTable(f"{shop.folder}/tables/orders")
    assert table.history(1)[0]["operation"] == "MERGE"
    rows = package_rows(table)
    assert (rows.num_rows, sum(rows["ratio"].to_pylist())) == (100_000, 100_000)


def test_a_name_that_is_no_view_or_table_is_named_and_the_others_are_published(shop: Shop) -> None:
    shop.change()
    shop.commit()
    settings = DeltaSettings(shop.settings.to, ("orderz", "ratios"))
    for act in (publish_tables, lambda *args: tidy_tables(*args, now_ms=0)):
        with pytest.raises(
            TablesNotPublishedError,
            match=r"(?s)1 of 2 tables.*orderz: .*no view or table has this name.*Did you mean 'orders'",
        ):
            act(shop.meta, settings)
        assert read_back(f"{shop.folder}/tables/ratios") == in_order(shop.model()["ratios"])


def test_a_pipelines_spark_packages_remain_together_with_deltas() -> None:
    own = {"spark.jars.packages": "org.apache.spark:spark-avro_2.13:4.2.0", "spark.driver.memory": "1g"}
    assert (
        with_delta(own)["spark.jars.packages"]
        == own["spark.jars.packages"] + "," + with_delta({})["spark.jars.packages"]
    )
    assert with_delta(own)["spark.driver.memory"] == "1g"


def test_a_table_whose_relation_does_not_change_gets_no_commit_and_is_merged_into_again_after_its_epoch_has_expired(
    shop: Shop,
) -> None:
    shop.change()
    shop.commit()
    shop.publish()
    before = DeltaTable(f"{shop.folder}/tables/orders").version()
    for n in range(3):
        shop.add_event("view", n)
        shop.commit()
        shop.publish()
        shop.meta.apply_retention(keep_epochs=1)
    assert DeltaTable(f"{shop.folder}/tables/orders").version() == before
    shop.change()
    shop.commit()
    shop.publish()
    check(shop)
    assert DeltaTable(f"{shop.folder}/tables/orders").history(1)[0]["operation"] == "MERGE"


def test_a_table_older_than_the_stores_floor_is_rewritten(shop: Shop) -> None:
    shop.change()
    shop.commit()
    shop.publish()
    for _ in range(3):
        shop.change()
        shop.commit()
    shop.meta.apply_retention(keep_epochs=1)
    shop.publish()
    check(shop)
    assert DeltaTable(f"{shop.folder}/tables/orders").history(1)[0]["operation"] == "WRITE"


def race(shop: Shop, pool: Executor, rounds: int) -> None:
    """Run several publishers at once, for this epoch and the one before."""
    before = None
    for _ in range(rounds):
        shop.change()
        epoch = shop.commit()
        for done in [pool.submit(publish, shop.address, shop.settings, at) for at in (epoch, epoch, before)]:
            done.result()
        before = epoch
        check(shop)
    location = location_of(shop.settings.to)
    for name in shop.model():
        history = DeltaTable(location.table_uri(name), storage_options=location.delta_options).history()
        epochs = [commit["tussock.epoch"] for commit in history if "tussock.epoch" in commit]
        assert len(epochs) == len(set(epochs)), name


@pytest.fixture
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        yield pool


def test_publishers_at_once_end_as_one(shop: Shop, processes: Executor) -> None:
    race(shop, processes, 3)


def test_publishers_at_once_in_one_process_end_as_one(shop: Shop) -> None:
    with ThreadPoolExecutor(3) as pool:
        race(shop, pool, 3)


@pytest.mark.deep
def test_publishers_at_once_end_as_one_in_a_bucket(tmp_path: Path, bucket: str, processes: Executor) -> None:
    race(Shop(tmp_path, to=bucket.format("tables"), store=bucket.format("store")), processes, 2)


def test_calls_of_the_package_come_one_after_the_other() -> None:
    """Some calls hold Python's lock while they wait for the package's threads; others make those threads wait for the
    lock.
    """
    inside = 0

    def call() -> None:
        nonlocal inside
        with translating_errors("here", "look"):
            inside += 1
            Event().wait(0.001)  # lets other threads run
            assert inside == 1
            inside -= 1

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(call) for _ in range(20)]:
            done.result()


def test_a_table_has_the_name_comments_and_key_of_its_relation(shop: Shop) -> None:
    shop.change()
    shop.commit()
    shop.publish()
    orders = DeltaTable(f"{shop.folder}/tables/orders")
    assert orders.metadata().name == "orders"
    assert orders.metadata().description == "what was bought"
    assert orders.metadata().configuration["tussock.key"] == "id"
    assert {field.name: field.metadata.get("comment") for field in orders.schema().fields}["amount"] == "in euros"
    assert DeltaTable(f"{shop.folder}/tables/events").metadata().configuration["tussock.key"] == ""


def test_a_view_that_is_made_anew_with_other_columns_has_its_table_replaced(shop: Shop) -> None:
    shop.change()
    shop.commit()
    shop.publish()
    orders = Scan("orders", (0, 2), (Field("id", "bigint"), Field("amount", "decimal(12,2)")))
    fields = Field("id", "bigint"), Field("amount", "decimal(12,2)")
    anew = Project(orders, (Column(0, "bigint"), Column(1, "decimal(12,2)")), fields)
    shop.append(Drop(RelationKind.VIEW, "shops"), CreateView("shops", "SELECT id, amount FROM orders", anew))
    shop.change()
    shop.commit()
    shop.publish()
    table = DeltaTable(f"{shop.folder}/tables/shops")
    assert read_back(f"{shop.folder}/tables/shops") == in_order([(row[0], row[2]) for row in shop.orders.values()])
    assert table.metadata().configuration["tussock.key"] == "id"


@pytest.mark.parametrize("theirs", ["somebody's", "another store's", "another engine's"])
def test_a_table_that_is_not_ours_is_refused_and_left_as_it_is_while_others_are_published(
    shop: Shop, tmp_path: Path, theirs: str
) -> None:
    place = f"{shop.folder}/tables/orders"
    if theirs == "somebody's":
        write_deltalake(place, pa.table({"a": [1]}))
    elif theirs == "another store's":
        other = Shop(tmp_path / "other", to=shop.settings.to)
        other.change()
        other.commit()
        other.publish()
        tables = open_object_store(shop.settings.to)
        forget_records(tables, read_records(tables))  # a folder without records; test_restored.py has the other case
    else:
        shop.change()
        shop.commit()
        shop.publish()
        DeltaTable(place).alter.set_table_properties({"tussock.engine": "spark"}, raise_if_not_exists=False)
    before = DeltaTable(place).version()
    shop.change()
    epoch = shop.commit()
    with pytest.raises(TablesNotPublishedError, match=r"1 of 5|5 of 5") as caught:
        shop.publish()
    assert "Set `[publish] to` in pipeline.toml to a folder that only this pipeline writes" in str(caught.value)
    assert DeltaTable(place).version() == before
    assert read_manifest(open_object_store(shop.settings.to), epoch) is None


def test_a_column_that_delta_cannot_hold_is_named_and_the_other_relations_are_published(shop: Shop) -> None:
    key, spaced = Field("id", "bigint"), Field("how long", "bigint")
    unknown = {
        "spans": "interval day to second",
        "months": "array<interval year>",
        "times": "time(3)",
        "variants": "array<variant>",
    }
    shop.append(
        CreateTable("spaced", (key, spaced), (0,)),
        *(CreateTable(n, (key, Field("x", t)), (0,)) for n, t in unknown.items()),
    )
    shop.change()
    shop.commit()
    settings = DeltaSettings(shop.settings.to, (*(shop.settings.relations or ()), "spaced", *unknown))
    with pytest.raises(TablesNotPublishedError) as caught:
        publish_tables(shop.meta, settings)
    assert "5 of 10 tables were not published" in str(caught.value)
    assert "column 'how long' has ' ' in its name, which Delta does not support" in str(caught.value)
    for kind in ("interval day to second", "array<interval year>", "time(3)"):
        assert f"column 'x' has the type {kind}, and Delta has neither intervals nor times of day" in str(caught.value)
    assert "column 'x' has the type array<variant>, and few Delta readers support variants" in str(caught.value)
    check(shop)


def test_the_cleanup_merges_files_and_removes_old_ones_and_publishing_continues(shop: Shop) -> None:
    for n in range(5):
        shop.add_event("view", n)
        if n < 2:
            shop.change()
        shop.commit()
        shop.publish()
    place = f"{shop.folder}/tables/events"
    files = len(DeltaTable(place).file_uris())
    far_future = shop.meta.read_latest().published >> 16
    said: list[str] = []
    tidy_tables(shop.meta, shop.settings, far_future + 30 * DAY_MS, said.append)
    assert len(DeltaTable(place).file_uris()) == 1 < files
    assert any("removed 4 manifests" in line for line in said), said
    check(shop)
    shop.change()
    shop.commit()
    shop.publish()
    check(shop)


def test_a_foreign_writer_that_is_always_first_is_named_in_the_end(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.change()
    shop.commit()
    shop.publish()
    shop.change()
    shop.commit()
    from tussock.jobs.sinks.delta_located import DeltaLocatedSink

    commit = DeltaLocatedSink._commit

    def overtaken(self: DeltaLocatedSink, *args: Any) -> str:
        DeltaTable(self.place).alter.set_table_properties({"a": "b"}, raise_if_not_exists=False)
        return commit(self, *args)

    monkeypatch.setattr(DeltaLocatedSink, "_commit", overtaken)
    with pytest.raises(SinkBusyError, match="other writers committed first 20 times in a row"):
        shop.publish()
    monkeypatch.undo()
    shop.publish()
    check(shop)
