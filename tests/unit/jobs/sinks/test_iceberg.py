"""Iceberg tables of published relations: equal to the relations at every epoch, for pyiceberg and for DuckDB."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.statistics import StatisticsFile

from tests.support.jobs.iceberg.tables import commit_file, replace_files
from tests.support.jobs.sinks.publishing import publish
from tests.support.jobs.sinks.shop import ORDERS, Rows, Shop, in_order
from tests.support.s3_servers import BUCKET, Seen, moto_server
from tussock.jobs.iceberg import row_delta
from tussock.jobs.iceberg.table_files import normal_path_of
from tussock.jobs.locator.document import FOLDER
from tussock.jobs.logical.nodes import AggCall, AggFunction, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import CreateView, Drop
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.locators import drop_locators
from tussock.jobs.sinks.publication import TablesNotPublishedError, tidy_tables
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.objectstore.local import LocalObjectStore

DAY_MS = 86_400_000


class Died(BaseException):
    """A process that ends at a step."""


class Steps:
    """Dies before or after a write to the folder, the store or the catalog that others could see."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _maybe_die(self) -> None:
        if self.left == 0:
            raise Died
        self.left -= 1

    def _stepped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self._maybe_die()
            answer = function(*args, **named)
            self._maybe_die()
            return answer

        return call

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Count the steps in this context."""
        places = ((LocalObjectStore, "put"), (LocalObjectStore, "put_if_absent"), (SqlCatalog, "commit_table"))
        with ExitStack() as stack:
            for holder, name in places:
                stack.enter_context(patch.object(holder, name, self._stepped(getattr(holder, name))))
            yield


@pytest.fixture(params=[2, 3], ids=["format 2", "format 3"])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    return shop_of_format(tmp_path, request.param)


def shop_of_format(folder: Path, version: int) -> Shop:
    shop = Shop(folder, kind="iceberg")
    shop.settings = msgspec.structs.replace(shop.settings, format_version=version)
    return shop


def catalog_of(shop: Shop) -> Catalog:
    folder = shop.folder / "tables"
    properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    return load_catalog("tussock", type="sql", **properties)


def table_of(shop: Shop, relation: str) -> Table:
    return catalog_of(shop).load_table(f"tussock.{relation}")


def rows_of(table: Table, **scan: Any) -> Rows:
    """The rows, read by pyiceberg and by DuckDB, which must agree.

    pyiceberg 0.12 reads a list that is NULL as an empty one. So lists are compared by DuckDB alone.
    """
    tasks = list(table.scan(**scan).plan_files())
    by_duck = read_by_duckdb(table, tasks)
    flat = [i for i, field in enumerate(table.schema().fields) if field.field_type.is_primitive]
    names = tuple(table.schema().fields[i].name for i in flat)
    by_package = table.scan(selected_fields=names, **scan).to_arrow()
    package_rows = list(zip(*(column.to_pylist() for column in by_package.columns), strict=True))
    assert in_order(package_rows) == in_order([tuple(row[i] for i in flat) for row in by_duck])
    return by_duck


def read_by_duckdb(table: Table, tasks: list[FileScanTask]) -> Rows:
    """Read data files without the rows that position deletes name."""
    names = ", ".join(f'"{field.name}"' for field in table.schema().fields)
    rows = list[dict[str, Any]]()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for task in tasks:
            path, deletes = task.file.file_path, [normal_path_of(d.file_path) for d in task.delete_files]
            dead = f"SELECT pos FROM read_parquet({deletes}) WHERE file_path = '{path}'" if deletes else "SELECT -1"
            if deletes and deletes[0].endswith(".puffin"):
                dead = f"SELECT unnest({positions_in(deletes, path)}::bigint[])"
            query = f"SELECT {names} FROM read_parquet('{normal_path_of(path)}', file_row_number = true)"
            rows += connection.sql(f"{query} WHERE file_row_number NOT IN ({dead})").to_arrow_table().to_pylist()
    return [tuple(row.values()) for row in rows]


def positions_in(puffins: list[str], path: str) -> list[int]:
    """The deleted positions of a data file, read by pyiceberg. It plans all vectors of a partition for each file."""
    files = [PuffinFile(Path(puffin).read_bytes()) for puffin in puffins]
    vectors = [v for file in files for v in deletion_vectors_from_puffin_file(file) if v.referenced_data_file == path]
    return sorted({position for vector in vectors for position in vector.to_vector().to_pylist()})


def check(shop: Shop) -> None:
    for relation, rows in shop.model().items():
        assert in_order(rows_of(table_of(shop, relation))) == in_order(rows), relation


def test_tables_equal_their_relations_at_every_epoch_and_by_its_tag(shop: Shop) -> None:
    kept = {}
    for number in range(6):
        shop.empty() if number == 4 else shop.change()
        epoch = shop.commit()
        shop.publish()
        check(shop)
        kept[epoch] = {name: in_order(rows) for name, rows in shop.model().items()}
    for epoch, relations in kept.items():
        for name, rows in relations.items():
            table = table_of(shop, name)
            snapshot = table.snapshot_by_name(f"tussock-epoch-{epoch}")
            assert snapshot is not None
            assert in_order(rows_of(table, snapshot_id=snapshot.snapshot_id)) == rows, (epoch, name)
    kinds = Counter(f["content"] for f in table_of(shop, "orders").inspect.delete_files().to_pylist())
    assert kinds[1], "rows are marked by position deletes"
    assert not kinds[2], "equality deletes are never written"


def publish_change(shop: Shop) -> int:
    shop.change()
    epoch = shop.commit()
    shop.publish()
    return epoch


def summary_of(table: Table) -> dict[str, str]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary.additional_properties


def test_a_snapshot_has_the_epoch_the_store_and_right_totals_and_a_table_its_comments_and_key(shop: Shop) -> None:
    for _ in range(3):
        epoch = publish_change(shop)
    table = table_of(shop, "orders")
    summary = summary_of(table)
    assert summary["tussock.epoch"] == str(epoch)
    assert summary["tussock.digest"] == shop.meta.epoch_digest(epoch)
    assert table.properties["tussock.store"] == summary["tussock.store"]
    dead = sum(f["record_count"] for f in table.inspect.delete_files().to_pylist())
    assert int(summary["total-position-deletes"]) == dead > 0
    assert int(summary["total-records"]) - dead == len(shop.orders)
    assert table.properties["comment"] == "what was bought"
    assert table.schema().find_field("amount").doc == "in euros"
    assert table.schema().identifier_field_names() == {"id"}
    assert table_of(shop, "ratios").schema().identifier_field_names() == set(), "a double identifies no row"


def test_a_key_that_becomes_null_is_no_identifier_any_more_and_nothing_is_rewritten(tmp_path: Path) -> None:
    shop = Shop(tmp_path, kind="iceberg")
    shop._insert("orders", ORDERS, [(1, "Kiel", Decimal("1.50"), None, None, None)])
    shop.commit()
    shop.publish()
    assert table_of(shop, "by_shop").schema().identifier_field_names() == {"shop"}
    shop._insert("orders", ORDERS, [(2, None, Decimal("2.50"), None, None, None)])
    shop.commit()
    shop.publish()
    table = table_of(shop, "by_shop")
    assert table.schema().identifier_field_names() == set()
    assert len(table.inspect.data_files()) == 2
    check(shop)


def test_a_new_definition_of_a_view_keeps_the_ids_of_its_columns(shop: Shop) -> None:
    publish_change(shop)
    before = {f.name: f.field_id for f in table_of(shop, "by_shop").schema().fields}
    other = Aggregate(
        Scan("orders", (1, 0), (ORDERS[1], ORDERS[0])),
        (Column(0, "string"),),
        (AggCall(AggFunction.MAX, "bigint", (Column(1, "bigint"),)), AggCall(AggFunction.COUNT, "bigint", ())),
        (Field("shop", "string"), Field("latest", "bigint"), Field("n", "bigint")),
    )
    shop.append(Drop(RelationKind.VIEW, "by_shop"), CreateView("by_shop", "SELECT …", other))
    publish_change(shop)
    table = table_of(shop, "by_shop")
    after = {f.name: f.field_id for f in table.schema().fields}
    assert list(after) == ["shop", "latest", "n"]
    assert (after["shop"], after["n"]) == (before["shop"], before["n"])
    assert after["latest"] not in before.values()
    assert sum(row[2] for row in rows_of(table)) == len(shop.orders)


def test_a_partitioned_table_has_files_and_deletes_of_one_partition_each(tmp_path: Path) -> None:
    shop = Shop(tmp_path, kind="iceberg")
    partitions = {"orders": "days(at), bucket(4, id)", "by_shop": "shop"}
    shop.settings = msgspec.structs.replace(shop.settings, partition_by=partitions)
    for _ in range(4):
        publish_change(shop)
        check(shop)
    table = table_of(shop, "orders")
    assert [str(field.transform) for field in table.spec().fields] == ["day", "bucket[4]"]
    assert len(table.inspect.data_files()) > 4
    assert table.inspect.delete_files().num_rows
    shop.settings = msgspec.structs.replace(shop.settings, partition_by={"orders": "truncate(2, shop)"})
    publish_change(shop)
    check(shop)
    assert [str(field.transform) for field in table_of(shop, "orders").spec().fields] == ["truncate[2]"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dayz(at)", "'dayz(at)' has the unknown transform 'dayz'"),
        ("bucket(id)", "lacks a number"),
        ("nothing", "'nothing' is not a column of it"),
        ("days(shop)", "does not fit the type string"),
        ("bucket(0, id)", "'bucket(0, id)' has the number 0"),
        ("id, `ID`", "'id, `ID`' contains a term twice"),
        ("days(at), hours(at)", "the column at has more than one of years, months, days, hours"),
        ("(", "is neither a column nor a transform"),
    ],
)
@pytest.mark.parametrize("exists", [False, True])
def test_a_wrong_partition_is_named_and_the_other_relations_are_published(
    shop: Shop, text: str, says: str, exists: bool
) -> None:
    if exists:
        publish_change(shop)
    shop.settings = msgspec.structs.replace(shop.settings, partition_by={"orders": text})
    shop.change()
    shop.commit()
    with pytest.raises(TablesNotPublishedError, match=r"1 of 5 tables") as caught:
        shop.publish()
    assert says in str(caught.value)


def test_upkeep_rewrites_worn_files_and_removes_old_ones_and_publishing_continues(shop: Shop) -> None:
    for _ in range(5):
        publish_change(shop)
    far_future = (shop.meta.read_latest().published >> 16) + 30 * DAY_MS
    tidy_tables(shop.meta, shop.settings, far_future)
    check(shop)
    table = table_of(shop, "orders")
    current = table.current_snapshot()
    assert current is not None
    assert current.summary is not None
    assert current.summary.operation.value == "replace"
    assert len(table.inspect.data_files()) == 1
    assert not table.inspect.delete_files().num_rows
    assert len(table.snapshots()) <= 2
    data = {Path(f["file_path"]).name for f in table.inspect.all_data_files().to_pylist()}
    there = {file.name for file in (shop.folder / "tables" / "orders" / "data").iterdir()}
    assert {name for name in there if "deletes" not in name} == data
    for _ in range(2):
        publish_change(shop)
        check(shop)


def test_upkeep_keeps_the_statistics_and_the_tags_of_other_programs(shop: Shop) -> None:
    publish_change(shop)
    table = table_of(shop, "orders")
    (snapshot,) = table.snapshots()
    path = shop.folder / "tables/orders/metadata/of-trino.stats"
    path.write_bytes(b"PFA1")
    with table.update_statistics() as update:
        update.set_statistics(
            StatisticsFile.model_validate(
                {
                    "snapshot-id": snapshot.snapshot_id,
                    "statistics-path": f"file://{path}",
                    "file-size-in-bytes": 4,
                    "file-footer-size-in-bytes": 0,
                    "blob-metadata": [],
                }
            )
        )
    tag = "tussock-epoch-1-audited"
    table_of(shop, "orders").manage_snapshots().create_tag(snapshot.snapshot_id, tag).commit()
    publish_change(shop)
    tidy_tables(shop.meta, shop.settings, (shop.meta.read_latest().published >> 16) + 30 * DAY_MS)
    assert path.exists()
    assert tag in table_of(shop, "orders").metadata.refs
    assert len(table_of(shop, "orders").metadata.refs) == 3, "the branch, this tag, and that of the newest epoch"


def test_a_table_that_another_program_compacted_and_no_epoch_changed_survives_upkeep(shop: Shop) -> None:
    publish_change(shop)
    for _ in range(2):  # the file of the second compaction is not worth a rewrite
        replace_files(table_of(shop, "ratios"))
    shop.add_event("view", 1)  # its tag is on the compacted snapshot
    shop.commit()
    shop.publish()
    far_future = (shop.meta.read_latest().published >> 16) + 30 * DAY_MS
    for day in range(2):
        tidy_tables(shop.meta, shop.settings, far_future + day * DAY_MS)
    assert len(table_of(shop, "ratios").snapshots()) == 2, "the tagged one and Tussock's own"
    for _ in range(2):
        publish_change(shop)
        check(shop)


def test_files_that_another_program_compacted_are_followed_and_changed_rows_are_refused(shop: Shop) -> None:
    for _ in range(2):
        publish_change(shop)
    shop.publish()
    table = table_of(shop, "orders")
    rewritten = table_of(shop, "ratios")
    replace_files(rewritten)
    publish_change(shop)
    check(shop)
    assert summary_of(table_of(shop, "ratios"))["tussock.epoch"]
    rows = table.scan(limit=1).to_arrow().cast(schema_to_pyarrow(table.schema(), include_field_ids=True))
    pq.write_table(rows, path := f"{shop.folder}/tables/orders/data/foreign.parquet")
    if table.format_version == 3:
        commit_file(table_of(shop, "orders"), f"file://{path}")
    else:
        table_of(shop, "orders").add_files([f"file://{path}"], check_duplicate_files=False)
    shop.change()
    shop.commit()
    with pytest.raises(TablesNotPublishedError, match=r"1 of 5 tables.*\n.*was changed in snapshot \d+ .append by"):
        shop.publish()
    catalog_of(shop).drop_table("tussock.orders")
    shop.publish()
    check(shop)


def test_a_table_whose_compactions_have_expired_is_written_again(shop: Shop) -> None:
    publish_change(shop)
    for _ in range(3):
        replace_files(table_of(shop, "ratios"))
    table = table_of(shop, "ratios")
    moves = [s.snapshot_id for s in table.snapshots() if s.snapshot_id != table.metadata.current_snapshot_id]
    table.maintenance.expire_snapshots().by_ids(moves[1:]).commit()
    tidy_tables(shop.meta, shop.settings, (shop.meta.read_latest().published >> 16) + 30 * DAY_MS)
    publish_change(shop)
    check(shop)
    assert {c.relation: c.objection for c in check_tables(shop.meta, shop.settings)} == dict.fromkeys(shop.model())


def test_files_that_java_names_in_its_own_form_are_followed_and_stay(tmp_path: Path) -> None:
    shop = shop_of_format(tmp_path, 2)
    publish_change(shop)
    replace_files(table_of(shop, "ratios"), root="file:")
    for _ in range(2):
        publish_change(shop)
        assert {c.relation: c.objection for c in check_tables(shop.meta, shop.settings)} == dict.fromkeys(shop.model())
        tidy_tables(shop.meta, shop.settings, (shop.meta.read_latest().published >> 16) + 30 * DAY_MS)


def test_upkeep_joins_files_of_another_program_with_own_ones(shop: Shop) -> None:
    def without_lists(rows: Rows) -> Rows:
        return in_order([(*row[:4], *row[5:]) for row in rows])  # pyiceberg writes NULL lists as empty ones

    publish_change(shop)
    replace_files(table_of(shop, "orders"))  # its required columns are "not null", unlike those of own files
    for _ in range(2):
        publish_change(shop)
    tidy_tables(shop.meta, shop.settings, (shop.meta.read_latest().published >> 16) + 30 * DAY_MS)
    publish_change(shop)
    assert without_lists(rows_of(table_of(shop, "orders"))) == without_lists(shop.model()["orders"])


def test_a_check_finds_rows_and_places_that_differ(shop: Shop) -> None:
    for _ in range(2):
        publish_change(shop)
    replace_files(table_of(shop, "by_shop"))
    objections = lambda: {c.relation: c.objection for c in check_tables(shop.meta, shop.settings)}  # noqa: E731
    assert objections() == dict.fromkeys(shop.model())
    table = table_of(shop, "orders")
    path = max((task.file for task in table.scan().plan_files()), key=lambda file: file.record_count).file_path
    file = Path(path.removeprefix("file://"))
    content, rows = file.read_bytes(), pq.read_table(file)
    pq.write_table(rows.take(pa.array(range(rows.num_rows)[::-1])), file)
    assert "its locator has wrong places for" in str(objections()["orders"])
    file.write_bytes(content)
    assert objections() == dict.fromkeys(shop.model())
    for document in (Path(shop.address) / FOLDER).rglob("*.json"):
        document.unlink()
    assert objections() == dict.fromkeys(shop.model(), "its locator is missing, and the next publish makes it again")


def test_a_publish_copies_the_metadata_a_few_times_and_writes_manifests_in_blocks(tmp_path: Path) -> None:
    shop = shop_of_format(tmp_path, 3)
    shop.settings = msgspec.structs.replace(shop.settings, relations=("orders",), partition_by={"orders": "id"})
    update, copies = row_delta.update_table_metadata, list[int]()

    def counted(*args: Any) -> Any:
        copies[-1] += 1
        return update(*args)

    with patch.object(row_delta, "update_table_metadata", counted):
        for _ in range(4):
            copies.append(0)
            publish_change(shop)
    assert max(copies) <= 6, "pyiceberg copies all metadata at each use"
    snapshot = table_of(shop, "orders").current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table_of(shop, "orders").io):
        with Path(manifest.manifest_path.removeprefix("file://")).open("rb") as file:
            assert sum(1 for _ in fastavro.block_reader(file)) == 1, "entries are compressed together"
    assert in_order(rows_of(table_of(shop, "orders"))) == in_order(shop.model()["orders"])


@pytest.mark.parametrize("version", [2, 3])
def test_a_publish_with_its_tag_sends_few_requests_to_a_bucket(tmp_path: Path, version: int) -> None:
    seen = list[Seen]()
    with moto_server(seen) as endpoint:
        shop = Shop(tmp_path, kind="iceberg", to=f"s3://{BUCKET}/ice-{version}?endpoint={endpoint}&path_style=true")
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
        shop.settings = msgspec.structs.replace(
            shop.settings, catalog=catalog, relations=("orders",), format_version=version
        )
        counts = list[int]()
        for _ in range(4):
            shop.change()
            shop.commit()
            before = len(seen)
            shop.publish()
            counts.append(sum("/metadata/" in request.path or "/data/" in request.path for request in seen[before:]))
    assert max(counts[1:]) <= 12 + version, "the locator's three requests are in the store"


@pytest.mark.sampled(7)
@pytest.mark.parametrize("step", range(40))
def test_killed_at_any_step_a_publish_continues_with_the_same_files(tmp_path: Path, step: int) -> None:
    shop = shop_of_format(tmp_path, 2 + step % 2)
    shop.settings = msgspec.structs.replace(shop.settings, relations=("orders", "by_shop"))
    publish_change(shop)
    shop.change()
    shop.commit()
    with Steps(step).patched(), suppress(Died):
        shop.publish()
    shop.publish()
    for name in ("orders", "by_shop"):
        table = table_of(shop, name)
        assert in_order(rows_of(table)) == in_order(shop.model()[name])
        epochs = [s.summary.additional_properties["tussock.epoch"] for s in table.snapshots() if s.summary is not None]
        assert len(epochs) == len(set(epochs)) == 2
        known = {Path(f["file_path"]).name for f in table.inspect.all_files().to_pylist()}
        assert {file.name for file in (shop.folder / "tables" / name / "data").iterdir()} == known


def test_publishers_at_once_end_as_one(shop: Shop) -> None:
    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            shop.change()
            epoch = shop.commit()
            for done in [pool.submit(publish, shop.address, shop.settings, epoch) for _ in range(3)]:
                done.result()
            check(shop)


def test_the_locator_of_a_removed_sink_is_dropped_and_the_sink_may_return(shop: Shop) -> None:
    publish_change(shop)
    others = msgspec.structs.replace(shop.settings, relations=("orders", "by_shop"))
    later = (shop.meta.read_latest().published >> 16) + DAY_MS
    folders = lambda: {name.split("/")[2] for name in names_below(shop, "publish/locators/")}  # noqa: E731
    assert len(folders()) == 5
    drop_locators(shop.meta, [shop.settings], later)
    assert len(folders()) == 5, "all are in use"
    drop_locators(shop.meta, [others], 0)
    assert len(folders()) == 5, "a publish may still write them"
    drop_locators(shop.meta, [others], later)
    assert len(folders()) == 2
    drop_locators(shop.meta, [], later)
    assert not folders()
    publish_change(shop)
    check(shop)
    last = table_of(shop, "orders").current_snapshot()
    assert last is not None
    assert last.parent_snapshot_id is not None, "the table was continued"
    assert int(summary_of(table_of(shop, "orders"))["total-data-files"]) > 1, "no rewrite"


def names_below(shop: Shop, prefix: str) -> list[str]:
    return [info.name for info in shop.meta.objects.list(prefix)]
