"""Two schemas share all names: the rows of each relation are in its own table, folder, namespace or topic.

Folders, a bucket of moto and a cluster of Kafka in this process; the deep variants use versitygw and a real broker.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sinks.kafka_cluster import replaced_client
from tests.support.jobs.sinks.kafka_topics import Topics
from tests.support.jobs.sinks.shop import RELATIONS, Rows, Shop, in_order, read_back, sorted_rows
from tests.support.postgres import PostgresServer, password_set
from tests.support.s3_servers import BUCKET, KEY, SECRET, moto_process, versitygw_binary, versitygw_server
from tussock.jobs.delta.location import location_of
from tussock.jobs.logical.relation_names import join_name
from tussock.jobs.settings.publishing import KINDS, KafkaSettings, PostgresSettings, PublishSettings
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.publication import tidy_tables

FEW = ("orders", "by_shop", "north.orders", "north.by_shop")
BOTH = (*RELATIONS, *(join_name("north", name) for name in RELATIONS))
LONG = ("both", "orders", "empty north", "both", "orders", "both")
MONTH_MS = 30 * 86_400_000

Read = Callable[[str], Rows]


def follow(folder: Path, settings: PublishSettings, read: Read, model: Callable[[str, Rows], Rows]) -> None:
    """Publish a few epochs of both schemas, and compare each table with its relation.

    `read`: the rows of a relation's copy. `model`: the part of a relation's rows that `read` returns.
    """
    shop = Shop(folder, seed=3)
    shop.settings, twin = settings, shop.twin(4, "north")
    for step in ("both", "empty north", "both") if settings.relations == FEW else LONG:
        if step == "empty north":
            twin.empty()  # the tables of the same names keep their rows
        else:
            shop.change()
        if step == "both":
            twin.change()
        shop.commit()
        shop.publish()
        for name, rows in (shop.model() | twin.model()).items():
            if name in (settings.relations or ()):
                assert read(name) == model(name, rows), (step, name)
        assert shop.publish() == ()
    tidy_tables(shop.meta, shop.settings, (shop.meta.read_latest().published >> 16) + MONTH_MS)
    assert {one.relation: one.objection for one in check_tables(shop.meta, settings)} == dict.fromkeys(
        settings.relations or ()
    )


def whole(name: str, rows: Rows) -> Rows:
    return in_order(rows)


def test_postgres_has_a_schema_for_each_schema(tmp_path: Path) -> None:
    with PostgresServer() as server, password_set():
        settings = PostgresSettings(server.create_database("shop"), BOTH)

        def read(name: str) -> Rows:
            schema, _, table = name.rpartition(".")
            return in_order(server.read("shop", f'SELECT * FROM "{"public_north" if schema else "public"}"."{table}"'))

        follow(tmp_path, settings, read, whole)


@pytest.fixture(params=["here", pytest.param("broker", marks=pytest.mark.deep)])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "here":
        with replaced_client():
            yield "here:9092"
        return
    from tests.support.jobs.sources.kafka_broker import Broker

    with Broker(tmp_path / "broker") as broker:
        yield broker.servers


@pytest.mark.parametrize("form", ["upsert", "debezium"])
def test_kafka_has_a_topic_for_each_name_with_its_schema(tmp_path: Path, servers: str, form: str) -> None:
    settings = msgspec.convert({"kind": "kafka", "to": servers, "relations": FEW, "format": form}, KafkaSettings)

    def read(name: str) -> Rows:
        rows = Topics(settings).rows_of(name).values()
        return sorted((row["id" if name.endswith("orders") else "n"], str(row["shop"])) for row in rows)

    def model(name: str, rows: Rows) -> Rows:
        if name.endswith("orders"):
            return sorted((row[0], str(row[1])) for row in rows)
        return sorted((n, str(shop)) for shop, n, _ in rows)

    follow(tmp_path, settings, read, model)


@contextmanager
def s3_server(real: bool, folder: Path) -> Iterator[str]:
    if not real:  # in a process, since deltalake holds the interpreter's lock in requests
        with moto_process() as endpoint:
            yield endpoint
        return
    if (binary := versitygw_binary()) is None:
        pytest.skip("needs versitygw")
    with versitygw_server(binary, folder) as endpoint:
        yield endpoint


def iceberg_rows(catalog: dict[str, str], name: str) -> tuple[Rows, list[int]]:
    """The rows of the columns that are no lists, and the places of these columns."""
    from pyiceberg.catalog import load_catalog

    schema, _, table = name.rpartition(".")
    found = load_catalog("lake", **catalog).load_table((f"tussock_{schema}" if schema else "tussock", table))
    flat = [i for i, field in enumerate(found.schema().fields) if field.field_type.is_primitive]
    names = tuple(found.schema().fields[i].name for i in flat)
    return sorted_rows(found.scan(selected_fields=names).to_arrow()), flat


def newest_snapshot(to: str, name: str) -> Rows:
    """The rows of the newest Parquet file of a relation."""
    location = location_of(to)
    newest = max(found.name for found in location.objects.list(f"{name}/"))
    return sorted_rows(pq.read_table(location.open_file(newest)))


@pytest.mark.parametrize("kind", ["delta", "parquet", "iceberg"])
@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_a_bucket_has_a_folder_or_a_table_for_each_relation(tmp_path: Path, kind: str, real: bool) -> None:
    with s3_server(real, tmp_path / "server") as endpoint:
        to = f"s3://{BUCKET}/tables?endpoint={endpoint}&path_style=true"
        lake = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"s3://{BUCKET}/tables"}
        wanted: dict[str, Any] = {"kind": kind, "to": to, "relations": BOTH if real else FEW}
        if kind == "iceberg":
            wanted["catalog"] = {"name": "lake", **lake}
        settings = msgspec.convert(wanted, KINDS[kind])
        server = {"s3.endpoint": endpoint, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET}
        places = dict[str, list[int]]()

        def read(name: str) -> Rows:
            if kind == "delta":
                location = location_of(to)
                return read_back(location.table_uri(name), options=location.delta_options)
            if kind == "parquet":
                return newest_snapshot(to, name)
            rows, places[name] = iceberg_rows({**lake, **server}, name)
            return rows

        def model(name: str, rows: Rows) -> Rows:
            return in_order([tuple(row[place] for place in places[name]) for row in rows] if places else rows)

        follow(tmp_path, settings, read, model)
