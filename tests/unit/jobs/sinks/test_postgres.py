"""Tables in Postgres: equal to the view at every epoch, all of an epoch at once, and each error with its remedy."""

import datetime as dt
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import append
from tests.support.jobs.sinks.dying import KilledError, dying
from tests.support.jobs.sinks.shop import EVENTS, ORDERS, Rows, Shop, in_order
from tests.support.postgres import PostgresServer, password_set
from tussock.jobs.logical.nodes import Column, Field, Project, Scan
from tussock.jobs.logical.statements import CreateTable, CreateView
from tussock.jobs.settings.connections import UnreadableConnectionError
from tussock.jobs.settings.home import home_of
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.publishing import PostgresSettings
from tussock.jobs.sinks.base import Publisher
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.kinds import open_place
from tussock.jobs.sinks.outline import outline_of
from tussock.jobs.sinks.postgres_errors import (
    PostgresBusyError,
    PostgresDeniedError,
    PostgresMissingError,
    PostgresUnavailableError,
)
from tussock.jobs.sinks.publication import TablesNotPublishedError, publish_tables, tidy_tables
from tussock.statestore.types import arrow_type

RELATIONS = ("orders", "ratios", "events", "by_shop", "shops")
TYPES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "float": [math.nan, 0.1],
    "double": [math.inf, 1e300],
    "decimal(38,18)": [Decimal("-99999999999999999999.999999999999999999"), Decimal("0.000000000000000001")],
    "string": ["", "\\x00"],
    "binary": [b"\x00\xff/", b""],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC), dt.datetime(2024, 2, 29, tzinfo=dt.UTC)],
    "timestamp_ntz": [dt.datetime(1900, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 2, 29)],
    "interval day to second": [dt.timedelta(days=-400, microseconds=1), dt.timedelta(hours=30)],
    "time(6)": [dt.time(0, 0, 0, 1), dt.time(23, 59, 59)],
    "array<decimal(38,2)>": [[Decimal("1.20"), None], []],
    "map<string,struct<a:int,b:binary>>": [[("k", {"a": None, "b": b"x"}), ("a", None)], []],
    "struct<`x y`:struct<z:array<date>>,n:double>": [
        {"x y": {"z": [dt.date(2024, 1, 1)]}, "n": math.nan},
        {"x y": None, "n": 1e300},
    ],
}
REQUESTS = ((psycopg.Connection, "execute"), (psycopg.Cursor, "copy"), (psycopg.Connection, "commit"))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server, password_set():
        yield server


@pytest.fixture
def shop(server: PostgresServer, tmp_path: Path) -> Shop:
    return shop_on(server, tmp_path, seed=3)


def shop_on(server: PostgresServer, folder: Path, seed: int) -> Shop:
    shop = Shop(folder, seed=seed)
    shop.settings = PostgresSettings(server.create_database("shop"), RELATIONS)
    return shop


def order(key: int, shop: str | None) -> tuple[Any, ...]:
    return key, shop, Decimal(1), None, None, None


def rows_in(server: PostgresServer, relation: str) -> Rows:
    return in_order(server.read("shop", f'SELECT * FROM "{relation}"'))


def assert_equal(server: PostgresServer, model: dict[str, Rows]) -> None:
    for name, rows in model.items():
        assert rows_in(server, name) == in_order(rows), name


def rows_in_sink(shop: Shop, relation: str) -> pa.Table:
    """The rows as `tussock read --published` shows them."""
    home, catalog = home_of(shop.meta.objects), shop.meta.read_latest().catalog
    found = next(r for r in catalog.live_relations() if r.name == relation)
    with open_place(shop.settings, Publisher(shop.meta, home, lambda _: "")) as place:
        return place.sink_of(outline_of(found, home)).read_rows().read_all()


def as_tuples(rows: pa.Table) -> Rows:
    return in_order(list(zip(*(column.to_pylist() for column in rows.columns), strict=True)))


def test_changed_rows_stay_in_their_page_so_that_the_index_does_not_grow(server: PostgresServer, shop: Shop) -> None:
    sizes = list[Any]()
    for name, step in (("first", 1), *((f"later {n}", 20) for n in range(8))):
        shop._insert("orders", ORDERS, [order(key, name) for key in range(0, 2_000, step)])
        shop.commit()
        shop.publish()
        sizes.append(server.read("shop", "SELECT pg_indexes_size('orders'), pg_relation_size('orders')"))
    assert sizes[-1] == sizes[0]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 101))])
def test_each_table_equals_its_relation_at_every_epoch(server: PostgresServer, tmp_path: Path, seed: int) -> None:
    shop = shop_on(server, tmp_path, seed)
    for step in range(6):
        shop.empty() if step == 4 else shop.change()
        epoch = shop.commit()
        if step == 2:
            continue  # the next publish brings two epochs
        shop.publish()
        model = shop.model()
        assert_equal(server, model)
        for name in ("ratios", "events", "by_shop", "shops"):
            assert as_tuples(rows_in_sink(shop, name)) == in_order(model[name]), (epoch, name)
        assert server.read("shop", "SELECT max(epoch) FROM _tussock_epochs") == [(epoch,)]
        assert set(server.read("shop", "SELECT relation, rows FROM _tussock_tables")) == {
            (name, len(rows)) for name, rows in model.items()
        }
    assert shop.publish() == ()


def test_a_table_has_the_types_the_comments_and_the_key_of_its_relation(server: PostgresServer, shop: Shop) -> None:
    shop.change()
    shop.commit()
    shop.publish()
    columns = server.read(
        "shop",
        "SELECT attname, format_type(atttypid, atttypmod), col_description(attrelid, attnum) FROM pg_attribute"
        " WHERE attrelid = 'orders'::regclass AND attnum > 0 ORDER BY attnum",
    )
    assert columns == [
        ("id", "bigint", None),
        ("shop", "text", None),
        ("amount", "numeric(12,2)", "in euros"),
        ("at", "timestamp with time zone", None),
        ("tags", "jsonb", None),
        ("ratio", "double precision", None),
    ]
    assert server.read("shop", "SELECT obj_description('orders'::regclass)") == [("what was bought",)]
    keys = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'orders'::regclass"
    assert server.read("shop", keys) == [("PRIMARY KEY (id)",)]


def test_the_tables_of_an_epoch_become_visible_together(server: PostgresServer, shop: Shop) -> None:
    """A reader in one transaction sees all tables before or after, while the publisher is at any of its requests."""
    shop.change()
    shop.commit()
    shop.publish()
    before = shop.model()
    shop.change()
    shop.commit()
    for at in range(0, 400, 37):
        try:
            with dying(REQUESTS, at):
                shop.publish()
        except KilledError:
            pass
        else:
            break
        seen = server.read("shop", "SELECT max(epoch) FROM _tussock_epochs")[0][0]
        assert_equal(server, shop.model() if seen == shop.meta.read_latest().published else before)
    shop.publish()
    assert_equal(server, shop.model())


@pytest.mark.deep
def test_a_publisher_may_die_at_every_request(server: PostgresServer, shop: Shop) -> None:
    died = 0
    for _ in range(3):
        before = shop.model() if died else None
        shop.change()
        shop.commit()
        for at in range(10_000):
            try:
                with dying(REQUESTS, at):
                    publish_tables(open_meta(shop.address), shop.settings)
            except KilledError:
                died += 1
            else:
                break
            if before is not None:
                seen = server.read("shop", "SELECT max(epoch) FROM _tussock_epochs")[0][0]
                assert_equal(server, shop.model() if seen == shop.meta.read_latest().published else before)
        assert_equal(server, shop.model())
    assert died > 200


def test_two_publishers_at_once_publish_each_epoch_once(server: PostgresServer, shop: Shop) -> None:
    for _ in range(4):
        shop.change()
        shop.commit()
        with ThreadPoolExecutor(2) as threads:
            running = [threads.submit(publish_tables, open_meta(shop.address), shop.settings) for _ in range(2)]
        for one in running:
            one.result()
        assert_equal(server, shop.model())
    versions = server.read("shop", "SELECT version FROM _tussock_tables WHERE relation = 'orders'")
    assert versions == [(4,)]


def test_a_server_that_restarts_continues_with_the_next_publish(server: PostgresServer, shop: Shop) -> None:
    shop.change()
    shop.commit()
    shop.publish()
    shop.change()
    shop.commit()
    server.kill()
    with pytest.raises(PostgresUnavailableError) as failure:
        shop.publish()
    assert "then run `tussock publish` again: it catches up in one step" in str(failure.value)
    server.start()
    shop.change()
    shop.commit()
    shop.publish()
    assert_equal(server, shop.model())


def test_a_key_that_becomes_null_replaces_the_primary_key(server: PostgresServer, shop: Shop) -> None:
    keys = "SELECT count(*) FROM pg_constraint WHERE conrelid = 'by_shop'::regclass AND contype = 'p'"
    shop._insert("orders", ORDERS, [order(1, "Kiel")])
    shop.commit()
    shop.publish()
    assert server.read("shop", keys) == [(1,)]
    for shops in ([None, "Kiel"], [None, None]):
        shop._insert("orders", ORDERS, [order(i, name) for i, name in enumerate(shops)])
        shop.commit()
        shop.publish()
        assert dict(server.read("shop", "SELECT shop, n FROM by_shop")) == {
            name: shops.count(name) for name in dict.fromkeys(shops)
        }
    assert server.read("shop", keys) == [(0,)]


def test_a_complete_load_with_a_null_key_replaces_the_primary_key(server: PostgresServer, shop: Shop) -> None:
    """The epoch of the table is no longer readable, so all rows of the view replace its rows."""
    keys = "SELECT count(*) FROM pg_constraint WHERE conrelid = 'by_shop'::regclass AND contype = 'p'"
    shop._insert("orders", ORDERS, [order(1, "Kiel")])
    shop.commit()
    shop.publish()
    assert server.read("shop", keys) == [(1,)]
    server.execute("shop", "UPDATE _tussock_tables SET epoch = 1 WHERE relation = 'by_shop'")
    shop._insert("orders", ORDERS, [order(2, None)])
    shop.commit()
    said: list[str] = []
    publish_tables(shop.meta, shop.settings, progress=said.append)
    assert any(line.startswith("by_shop: all rows") for line in said), said
    assert_equal(server, shop.model())
    assert server.read("shop", keys) == [(0,)]


def test_changed_columns_replace_the_table_with_its_grants_unless_views_read_it(
    server: PostgresServer, shop: Shop
) -> None:
    for role in ("reader",):
        if not server.read("postgres", f"SELECT 1 FROM pg_roles WHERE rolname = '{role}'"):
            server.execute("postgres", f"CREATE ROLE {role}")
    shop.change()
    shop.commit()
    shop.publish()
    server.execute("shop", "GRANT SELECT ON shops TO reader")
    server.execute("shop", "CREATE VIEW dashboard AS SELECT shop FROM shops")
    columns = (Column(1, "string"), Column(0, "bigint"))
    wider = Project(Scan("orders", (0, 1), ORDERS[:2]), columns, (ORDERS[1], ORDERS[0]))
    append(shop._writer, CreateView("shops", "SELECT shop, id FROM orders", wider, or_replace=True))
    shop.commit()
    with pytest.raises(TablesNotPublishedError, match="views of the database read it: dashboard"):
        shop.publish()
    server.execute("shop", "DROP VIEW dashboard")  # as the message says
    shop.publish()
    expected = [(row[1], row[0]) for row in shop.orders.values()]
    assert rows_in(server, "shops") == in_order(expected)
    assert server.read("shop", "SELECT has_table_privilege('reader', 'shops', 'SELECT')") == [(True,)]


def test_upkeep_vacuums_the_tables_and_forgets_old_epochs(server: PostgresServer, shop: Shop) -> None:
    for _ in range(2):
        shop.change()
        shop.commit()
        shop.publish()
    server.execute("shop", "UPDATE _tussock_epochs SET published_at = now() - interval '8 days'")
    said: list[str] = []
    tidy_tables(shop.meta, shop.settings, 1_700_000_100_000, said.append)
    assert said[0] == "orders: vacuumed, removed 2 rows of epochs"
    assert_equal(server, shop.model())


def test_a_store_that_is_restored_replaces_the_rows_of_lost_epochs(
    server: PostgresServer, shop: Shop, tmp_path: Path
) -> None:
    import shutil

    shop.change()
    shop.commit()
    shop.publish()
    kept = shop.model()
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    shop.change()
    shop.commit()
    shop.publish()
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "copy").rename(tmp_path / "store")
    said: list[str] = []
    publish_tables(open_meta(shop.address), shop.settings, progress=said.append)
    assert any("the store was restored from a copy" in line for line in said)
    assert_equal(server, kept)


def test_each_trouble_has_a_message_whose_remedy_works(
    server: PostgresServer, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.change()
    shop.commit()
    shop.settings = PostgresSettings(server.address("nowhere"), RELATIONS)
    with pytest.raises(PostgresMissingError, match="createdb NAME"):
        shop.publish()
    server.create_database("nowhere")
    shop.publish()

    shop.settings = PostgresSettings("postgresql://owner@127.0.0.1:1/shop", RELATIONS)
    with pytest.raises(PostgresUnavailableError, match="Check the host, the port and the server"):
        shop.publish()

    shop.settings = PostgresSettings(server.address("shop"), RELATIONS)
    with monkeypatch.context() as patch:
        patch.setenv("PGPASSWORD", "wrong")
        with pytest.raises(PostgresDeniedError, match="The password comes from PGPASSWORD"):
            shop.publish()

    if not server.read("postgres", "SELECT 1 FROM pg_roles WHERE rolname = 'tussock_user'"):
        server.execute("postgres", "CREATE ROLE tussock_user LOGIN PASSWORD 'secret'")
    shop.settings = PostgresSettings(server.address("shop", "tussock_user"), RELATIONS)
    with pytest.raises(PostgresDeniedError, match="GRANT CREATE, USAGE ON SCHEMA") as denied:
        shop.publish()
    assert "secret" not in str(denied.value)
    server.execute("shop", str(denied.value).split("`")[1])
    server.execute("shop", "ALTER ROLE tussock_user CONNECTION LIMIT 0")
    with pytest.raises(PostgresBusyError, match=r"cannot take the rows now: .*too many connections.*limit of the role"):
        shop.publish()
    server.execute("shop", "ALTER ROLE tussock_user CONNECTION LIMIT -1")
    shop.publish()
    assert_equal(server, shop.model())


def test_a_table_of_another_program_and_a_value_without_a_form_are_named(server: PostgresServer, shop: Shop) -> None:
    server.execute("shop", "CREATE TABLE events (mine int)")
    shop._insert("orders", ORDERS, [order(1, "a\0b")])
    shop.commit()
    with pytest.raises(TablesNotPublishedError) as failure:
        shop.publish()
    assert "events: is a table that Tussock has not written" in str(failure.value).replace("public.", "")
    assert "cannot represent a value: invalid byte sequence" in str(failure.value)
    assert rows_in(server, "ratios") == []
    server.execute("shop", "DROP TABLE events")
    shop._insert("orders", ORDERS, [order(1, "ab")])
    shop.commit()
    shop.publish()
    assert_equal(server, shop.model())


def test_an_airflow_connection_gives_address_and_password(
    server: PostgresServer, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD")
    address = server.address("shop").replace("owner@", "owner:secret@")
    as_json = {"conn_type": "postgres", "host": str(server.folder), "login": "owner"}
    as_json |= {"password": "secret", "schema": "shop", "extra": {"sslmode": "prefer"}}
    for connection in (address, json.dumps(as_json)):
        monkeypatch.setenv("AIRFLOW_CONN_REPORTING", connection)
        shop.settings = PostgresSettings("airflow:reporting", RELATIONS)
        shop.change()
        shop.commit()
        shop.publish()
        assert_equal(server, shop.model())
    shop.settings = PostgresSettings("airflow:reprting", RELATIONS)
    with pytest.raises(UnreadableConnectionError, match="AIRFLOW_CONN_REPRTING is not set"):
        shop.publish()
    monkeypatch.setenv("AIRFLOW_CONN_REPRTING", f"{address}&cursor=dictcursor")
    with pytest.raises(PostgresMissingError, match='connection option "cursor"'):
        shop.publish()


@pytest.mark.parametrize("kind", TYPES)
def test_a_check_compares_values_of_each_type(server: PostgresServer, shop: Shop, kind: str) -> None:
    fields = (Field("id", "bigint"), Field("it's", kind))
    append(shop._writer, CreateTable("t", fields, (0,)))
    schema = pa.schema([(field.name, arrow_type(field.type)) for field in fields])
    values = [*TYPES[kind], None]
    shop.session.insert("t", pa.table([list(range(len(values))), values], schema=schema))
    shop.settings = PostgresSettings(shop.settings.to, ("t", "orders"))
    shop.commit()
    shop.publish()
    objections = lambda: [(c.objection, c.compared) for c in check_tables(shop.meta, shop.settings)]  # noqa: E731
    assert objections() == [(None, True)] * 2
    server.execute("shop", """UPDATE t SET "it's" = (SELECT "it's" FROM t WHERE id = 1) WHERE id = 0""")
    assert sorted(objections(), key=str) == [
        (f"2 rows of the table and of epoch {shop.meta.read_latest().published} differ", True),
        (None, True),
    ]


def test_a_check_reads_rows_of_any_length(server: PostgresServer, shop: Shop) -> None:
    fields = (Field("id", "bigint"), Field("note", "string"))
    append(shop._writer, CreateTable("t", fields, (0,)))
    shop._insert("t", fields, [(1, "é" * 3_000_000), (2, ""), (3, None)])
    shop.settings = PostgresSettings(shop.settings.to, ("t",))
    shop.commit()
    shop.publish()
    assert [(c.objection, c.compared) for c in check_tables(shop.meta, shop.settings)] == [(None, True)]


@pytest.mark.parametrize(
    ("kind", "numbers"), [("date", pa.int32()), ("timestamp", pa.int64()), ("timestamp_ntz", pa.int64())]
)
def test_a_check_compares_times_after_the_year_9999(
    server: PostgresServer, shop: Shop, kind: str, numbers: pa.DataType
) -> None:
    append(shop._writer, CreateTable("t", (Field("id", "bigint"), Field("at", kind)), (0,)))
    last_day = 2_932_896
    values = [n if kind == "date" else n * 86_400_000_000 + 1 for n in (last_day, last_day + 1, last_day + 20_000_000)]
    times = pa.array(values, numbers).cast(arrow_type(kind))
    shop.session.insert("t", pa.table({"id": pa.array([1, 2, 3], pa.int64()), "at": times}))
    shop.settings = PostgresSettings(shop.settings.to, ("t",))
    shop.commit()
    shop.publish()
    assert [(c.objection, c.compared) for c in check_tables(shop.meta, shop.settings)] == [(None, True)]


def test_settings_of_a_database_change_no_value(server: PostgresServer, shop: Shop) -> None:
    """Its encoding decides the bytes of texts, and its other settings how it prints values."""
    server.execute("shop", "DROP DATABASE IF EXISTS western")
    server.execute("shop", "CREATE DATABASE western ENCODING 'LATIN1' TEMPLATE template0")
    for setting in ("extra_float_digits = 0", "datestyle = 'German'", "timezone = 'Asia/Tokyo'"):
        server.execute("western", f"ALTER DATABASE western SET {setting}")
    fields = Field("name", "string"), Field("part", "double"), Field("at", "timestamp")
    shop.append(CreateTable("t", fields, (0,)))
    shop.settings = PostgresSettings(server.address("western"), ("t",))
    shop._insert("t", fields, [("Größe", 0.1 + 0.2, dt.datetime(2024, 2, 3, tzinfo=dt.UTC))])
    shop.commit()
    shop.publish()
    assert server.read("western", "SELECT name, length(name) FROM t") == [("Größe", 5)]
    assert [(c.objection, c.compared) for c in check_tables(shop.meta, shop.settings)] == [(None, True)]
    shop._insert("t", fields, [("5 €", 1.0, dt.datetime(2024, 2, 3, tzinfo=dt.UTC))])
    shop.commit()
    with pytest.raises(TablesNotPublishedError, match='has no equivalent in encoding "LATIN1"'):
        shop.publish()


def test_a_check_of_a_table_that_cannot_be_read_does_not_end_the_others(server: PostgresServer, shop: Shop) -> None:
    shop.change()
    shop.commit()
    shop.publish()
    server.execute("shop", "DELETE FROM _tussock_tables WHERE relation = 'orders'")
    found = {check.relation: check.objection for check in check_tables(shop.meta, shop.settings)}
    assert "is a table that Tussock has not written" in str(found.pop("orders"))
    assert set(found.values()) == {None}
    assert len(found) == len(RELATIONS) - 1


def test_odd_names_are_published_or_refused_by_name(server: PostgresServer, shop: Shop) -> None:
    schema = 'my "own" schéma'
    long, odd = "v" * 64, ('say "hi"', "%s {} \\", "a`b.c", "Größe", "order", "x" * 63)
    fields = tuple(Field(name, "bigint") for name in odd)
    shop.append(CreateTable(long, EVENTS, ()), CreateTable("select", fields, (0, 4)))
    shop.settings = PostgresSettings(server.address("shop"), (long, "select"), schema=schema)
    shop._insert("select", fields, [(1, 2, 3, 4, 5, 6), (7, 8, 9, 10, 11, 12)])
    shop.commit()
    with pytest.raises(TablesNotPublishedError, match=f"'{long}' cannot be published: its name has 64 bytes"):
        shop.publish()
    shop.settings = PostgresSettings(server.address("shop"), ("select",), schema=schema)
    shop.publish()
    shop._insert("select", fields, [(1, 20, 30, 40, 5, 60)])
    shop.commit()
    shop.publish()
    assert sorted(server.read("shop", 'SELECT * FROM "my ""own"" schéma"."select"')) == [
        (1, 20, 30, 40, 5, 60),
        (7, 8, 9, 10, 11, 12),
    ]


def test_a_table_that_everybody_may_read_stays_so_when_its_columns_change(server: PostgresServer, shop: Shop) -> None:
    shop.change()
    shop.commit()
    shop.publish()
    server.execute("shop", "GRANT SELECT ON shops TO PUBLIC")
    columns = (Column(1, "string"), Column(0, "bigint"))
    wider = Project(Scan("orders", (0, 1), ORDERS[:2]), columns, (ORDERS[1], ORDERS[0]))
    append(shop._writer, CreateView("shops", "SELECT shop, id FROM orders", wider, or_replace=True))
    shop.commit()
    shop.publish()
    assert server.read("shop", "SELECT has_table_privilege('public', 'shops', 'SELECT')") == [(True,)]


def test_a_relation_that_leaves_the_sink_and_returns_has_its_rows(server: PostgresServer, shop: Shop) -> None:
    everything = shop.settings
    shop.change()
    shop.commit()
    shop.publish()
    for _ in range(2):
        shop.settings = PostgresSettings(server.address("shop"), ("ratios",))
        shop.change()
        shop.commit()
        shop.publish()
        shop.settings = everything
        shop.change()
        shop.commit()
        shop.publish()
        assert_equal(server, shop.model())
    server.execute("shop", "DROP TABLE _tussock_tables")
    with pytest.raises(TablesNotPublishedError, match="Tussock has not written"):
        shop.publish()


def test_a_key_that_is_too_long_for_an_index_is_a_value_to_convert(server: PostgresServer, shop: Shop) -> None:
    fields = (Field("name", "string"),)
    shop.append(CreateTable("names", fields, (0,)))
    shop.settings = PostgresSettings(server.address("shop"), ("names",))
    shop._insert("names", fields, [("".join(f"{n * n:x}" for n in range(7, 1500)),)])
    shop.commit()
    with pytest.raises(TablesNotPublishedError, match=r"index row size .* sha2 for a long key"):
        shop.publish()
