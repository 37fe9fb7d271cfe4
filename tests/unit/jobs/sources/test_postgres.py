"""Tables of a Postgres server as sources, against the server's own tables at every epoch. No Spark."""

import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from tests.support.jobs.driver.embedded import append, open_store, rows
from tests.support.jobs.sinks.dying import KilledError, dying
from tests.support.jobs.sources.postgres_shop import ORDERS, ROW, TABLES, Shop, commands_in, held_reason, reload
from tests.support.postgres import PostgresServer, password_set
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.release import release_taken_input
from tussock.jobs.chunks.failure import SourceAwayError
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.sources import list_sources
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.credentials import MissingReferenceError
from tussock.jobs.sources.errors import BadOptionError, CredentialInOptionError
from tussock.jobs.sources.postgres_errors import (
    DatabaseDeniedError,
    DatabaseMissingError,
    LoginDeniedError,
    LogLevelError,
    MissingTableError,
    NoIdentityError,
    OtherColumnsError,
    UndeclaredTableError,
)
from tussock.jobs.sources.postgres_log import Log
from tussock.jobs.sources.postgres_slot import Database
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.texts.status import _sources_text
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.objectstore.local import LocalObjectStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = "long text " * 1000  # longer than a page, so it is stored apart from its row


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer("wal_level=logical\nmax_replication_slots=30\nmax_wal_senders=30\n") as server, password_set():
        yield server


@pytest.fixture
def shop(server: PostgresServer, tmp_path: Path) -> Shop:
    return Shop(server, tmp_path)


def test_a_source_has_the_rows_of_its_table_from_the_first_epoch_on(shop: Shop) -> None:
    shop.run(
        "INSERT INTO orders VALUES (1, 'a', 1.50, NULL, '2026-01-02 03:04:05.678+00', true, '\\x00ff'),"
        " (2, '', -0.01, 'x,\"y\"\nz', NULL, NULL, NULL)",
        "INSERT INTO items VALUES (1, 1, 'NaN', '2026-01-01'), (1, 2, 1e-7, NULL)",
    )
    append(shop.meta, shop.orders, shop.items)
    shop.advance()
    assert rows(shop.meta, "orders")[0][2] == Decimal("1.50")
    shop.run("UPDATE items SET price = 0 WHERE place = 1")
    shop.advance()
    shop.assert_equal()
    shop.run(
        "UPDATE orders SET shop = 'b' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
        "INSERT INTO orders VALUES (3, 'c', 3, NULL, NULL, false, NULL)",
        "UPDATE items SET place = 7 WHERE place = 2",
    )
    shop.advance()
    shop.assert_equal()
    shop.run("TRUNCATE orders, items", "INSERT INTO orders VALUES (9, 'z', 9, NULL, NULL, false, NULL)")
    shop.advance()
    shop.assert_equal()


class Changes:
    """Random transactions over both tables, with long values, changed keys and truncations."""

    def __init__(self, shop: Shop, seed: int, *, moves_long: bool) -> None:
        self.shop, self.random, self.moves_long = shop, random.Random(seed), moves_long

    def run(self) -> None:
        """One transaction, of which an eighth is taken back."""
        statements = [self._statement() for _ in range(self.random.randint(1, 12))]
        with psycopg.connect(self.shop.server.address(self.shop.name), password="secret") as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]
            if self.random.random() < 0.125:
                connection.rollback()

    def _statement(self) -> str:
        key, other, n = (self.random.randint(1, 15) for _ in range(3))
        note = self.random.choice(["NULL", "''", f"'{n}'", f"repeat('{n} long ', 2000)"])
        unused = "AND NOT EXISTS (SELECT 1 FROM orders WHERE id = {0})"
        match self.random.randint(0, 11):
            case 0 | 1 | 2:
                values = f"{key}, 's{n}', {n}.25, {note}, to_timestamp({n} * 1.000001), {n} > 7, '\\x00{n:02x}'"
                return f"INSERT INTO orders VALUES ({values}) ON CONFLICT (id) DO UPDATE SET shop = excluded.shop"
            case 3 | 4:
                return f"UPDATE orders SET amount = {n} WHERE id IN ({key}, {other})"
            case 5:
                return f"UPDATE orders SET note = {note} WHERE id = {key}"
            case 6:
                short = "" if self.moves_long else "AND coalesce(length(note), 0) < 100"
                return f"UPDATE orders SET id = {key} WHERE id = {other} {short} {unused.format(key)}"
            case 7:
                return f"DELETE FROM orders WHERE id = {key}"
            case 8 | 9:
                return f"INSERT INTO items VALUES ({key}, {n}, {other} / 3.0, '2026-01-{n:02d}') ON CONFLICT DO NOTHING"
            case 10:
                return f"DELETE FROM items WHERE order_id = {key}"
            case _:
                kind = self.random.choice(
                    ["TRUNCATE orders", "TRUNCATE items, orders", f"UPDATE items SET price = {n}"]
                )
                return kind if self.random.random() < 0.3 else f"UPDATE items SET price = {n} WHERE place = {key}"


@pytest.mark.parametrize("whole_rows", [False, True])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 101))])
def test_each_epoch_has_the_rows_of_the_tables(
    server: PostgresServer, tmp_path: Path, seed: int, whole_rows: bool
) -> None:
    shop = Shop(server, tmp_path, whole_rows=whole_rows)
    changes = Changes(shop, seed, moves_long=whole_rows)
    append(shop.meta, shop.orders)
    for step in range(12):
        for _ in range(changes.random.randint(0, 6)):
            changes.run()
        if step == 2:
            append(shop.meta, shop.items)  # joins the slot later
        if step in (5, 9):
            shop.meta = open_store(shop.folder / "store", writer=f"run {step}")
        shop.advance()
        if step >= 2:
            shop.assert_equal()
    shop.server.execute(shop.name, f"SELECT pg_drop_replication_slot('{shop.slot}')")
    shop.drop()


@pytest.fixture
def read_shop(shop: Shop) -> Shop:
    """Both sources have been read once."""
    shop.run(*(ROW.format(n) for n in range(1, 6)), "INSERT INTO items VALUES (1, 1, 1, NULL)")
    append(shop.meta, shop.orders, shop.items)
    shop.advance()
    shop.assert_equal()
    return shop


@pytest.mark.parametrize("loss", ["dropped", "advanced", "lost"])
def test_a_lost_slot_holds_its_sources_until_their_tables_are_loaded_again(read_shop: Shop, loss: str) -> None:
    shop = read_shop
    shop.run(ROW.format(8), "DELETE FROM orders WHERE id = 1", "UPDATE items SET price = 7")
    match loss:
        case "dropped":
            shop.run(f"SELECT pg_drop_replication_slot('{shop.slot}')")
        case "advanced":
            shop.run(f"SELECT pg_replication_slot_advance('{shop.slot}', pg_current_wal_lsn())")
        case "lost":
            lose_slot(shop)
    shop.run("UPDATE orders SET amount = 5 WHERE id = 2")
    assert f"slot {shop.slot}" in held_reason(shop)
    for source in ("orders", "items"):
        (command,) = commands_in(held_reason(shop, source))
        reload(shop, command)
    shop.assert_equal()
    shop.run("DELETE FROM orders WHERE id = 2", "DELETE FROM items")
    shop.advance()
    shop.assert_equal()


def test_a_server_restored_from_an_older_copy_holds_its_sources_until_they_are_loaded_again(tmp_path: Path) -> None:
    with PostgresServer("wal_level=logical\n") as server, password_set():
        shop = Shop(server, tmp_path)
        shop.run(*(ROW.format(n) for n in range(1, 6)))
        append(shop.meta, shop.orders, shop.items)
        shop.advance()
        with server.restoring():
            shop.run("UPDATE orders SET note = repeat('long ', 100000)", "DELETE FROM orders WHERE id = 1")
            shop.advance()
            shop.assert_equal()
        shop.run(ROW.format(8), "DELETE FROM orders WHERE id = 2")
        assert "an older copy was restored" in held_reason(shop)
        shop.run("UPDATE orders SET note = repeat('longer ', 200000)")  # the log passes the position
        for source in ("orders", "items"):
            (command,) = commands_in(held_reason(shop, source))
            reload(shop, command)
        shop.assert_equal()
        shop.run("DELETE FROM orders WHERE id = 3")
        shop.advance()
        shop.assert_equal()


def lose_slot(shop: Shop) -> None:
    """Let the log outgrow max_slot_wal_keep_size."""
    server = shop.server
    server.execute("postgres", "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    server.execute("postgres", "SELECT pg_reload_conf()")
    try:
        for _ in range(4):
            server.execute("postgres", "SELECT pg_switch_wal()")
            server.execute("postgres", "CREATE TABLE IF NOT EXISTS filler (x text)")
            server.execute("postgres", "INSERT INTO filler SELECT repeat('x', 100) FROM generate_series(1, 2000)")
        server.execute("postgres", "CHECKPOINT")
        status = server.read("postgres", f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{shop.slot}'")
        assert status == [("lost",)]
    finally:
        server.execute("postgres", "ALTER SYSTEM RESET max_slot_wal_keep_size")
        server.execute("postgres", "SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ("ALTER TABLE items DROP COLUMN price", "no column 'price'"),
        ("ALTER TABLE items RENAME COLUMN price TO cost", "no column 'price'"),
        ("ALTER TABLE items ALTER COLUMN price TYPE text", "column 'price'"),
    ],
)
def test_other_columns_hold_all_sources_of_the_slot(read_shop: Shop, change: str, finding: str) -> None:
    shop = read_shop
    shop.run(change, "UPDATE orders SET amount = 9", "INSERT INTO items (order_id, place) VALUES (8, 8)")
    assert finding in held_reason(shop, "items")
    assert "source 'items', which is held" in shop.holds()["orders"]
    match change.split()[3]:
        case "DROP":
            shop.run("ALTER TABLE items ADD COLUMN price float8")
        case "RENAME":
            shop.run("ALTER TABLE items RENAME COLUMN cost TO price")
        case _:
            shop.run("ALTER TABLE items ALTER COLUMN price TYPE float8 USING price::float8")
    reload(shop, commands_in(held_reason(shop, "items"))[0])
    shop.advance()
    assert shop.holds() == {}
    assert sorted(rows(shop.meta, "orders")) == sorted(shop.server.read(shop.name, "SELECT * FROM orders"))
    there = shop.server.read(shop.name, "SELECT order_id, place, price, day FROM items")
    assert sorted(rows(shop.meta, "items"), key=repr) == sorted(there, key=repr)


@pytest.mark.parametrize(
    "changes",
    [
        ["ALTER TABLE orders ALTER COLUMN amount TYPE numeric(10,2) USING amount * 100"],
        ["ALTER TABLE orders ALTER COLUMN shop TYPE varchar(20) USING upper(shop)"],
        ["ALTER TABLE orders DROP COLUMN shop", "ALTER TABLE orders ADD COLUMN shop text DEFAULT 'new'"],
        [
            "ALTER TABLE orders RENAME COLUMN shop TO other",
            "ALTER TABLE orders RENAME COLUMN note TO shop",
            "ALTER TABLE orders RENAME COLUMN other TO note",
        ],
    ],
)
def test_values_that_alter_table_changes_are_loaded_again(read_shop: Shop, changes: list[str]) -> None:
    shop = read_shop
    shop.run(*changes, "INSERT INTO orders (id) VALUES (7)")
    reload(shop, commands_in(held_reason(shop))[0])
    shop.advance()
    assert shop.holds() == {}
    there = shop.server.read(shop.name, "SELECT id, shop, amount, note, at, paid, raw FROM orders")
    assert sorted(rows(shop.meta, "orders")) == sorted(there)


def test_a_new_file_or_another_length_of_a_column_is_no_trouble(read_shop: Shop) -> None:
    shop = read_shop
    shop.server.execute(shop.name, "VACUUM FULL orders")
    shop.run("UPDATE orders SET amount = 9 WHERE id = 2")
    shop.advance()
    shop.assert_equal()
    shop.run("ALTER TABLE orders ALTER COLUMN amount TYPE numeric(12,2)", "ALTER TABLE orders ALTER shop SET NOT NULL")
    shop.run("UPDATE orders SET amount = 10 WHERE id = 2")
    shop.advance()
    shop.assert_equal()


def test_a_further_column_is_no_trouble(read_shop: Shop) -> None:
    shop = read_shop
    shop.run("ALTER TABLE orders ADD COLUMN more text DEFAULT 'x'", "UPDATE orders SET amount = 9 WHERE id = 2")
    shop.advance()
    there = shop.server.read(shop.name, "SELECT id, shop, amount, note, at, paid, raw FROM orders")
    assert sorted(rows(shop.meta, "orders")) == sorted(there)


def test_a_changed_key_beside_an_omitted_value_asks_for_all_old_values(read_shop: Shop) -> None:
    shop = read_shop
    shop.run(f"UPDATE orders SET note = '{LONG}' WHERE id = 1")
    shop.run("UPDATE orders SET id = 100 WHERE id = 1")
    identity, again = commands_in(held_reason(shop))
    shop.run(identity)
    reload(shop, again)
    shop.advance()
    shop.assert_equal()
    shop.run("UPDATE orders SET id = 101 WHERE id = 100")
    shop.advance()
    shop.assert_equal()


def test_a_value_that_does_not_fit_holds_the_sources(read_shop: Shop) -> None:
    shop = read_shop
    shop.run("UPDATE orders SET at = 'infinity' WHERE id = 1")
    reason = held_reason(shop)
    assert "column 'at'" in reason
    shop.run("UPDATE orders SET at = NULL WHERE id = 1")
    reload(shop, commands_in(reason)[0])
    shop.assert_equal()


def test_a_first_snapshot_has_values_of_any_length(shop: Shop) -> None:
    shop.run("INSERT INTO orders VALUES (1, repeat('é', 17000000), 1, NULL, NULL, NULL, NULL)", ROW.format(2))
    append(shop.meta, shop.orders)
    shop.advance()
    assert rows(shop.meta, "orders") == shop.server.read(shop.name, "SELECT * FROM orders ORDER BY id")


def test_a_table_that_is_created_again_is_loaded_again(read_shop: Shop) -> None:
    shop = read_shop
    shop.run("DROP TABLE items", *(s for s in TABLES.split(";") if "items" in s))
    shop.run("INSERT INTO items VALUES (5, 5, 5, NULL)")
    reason = held_reason(shop, "items")
    assert "dropped and created again" in reason
    reload(shop, commands_in(reason)[0])
    shop.advance()
    shop.assert_equal()


def test_a_table_that_left_the_publication_is_loaded_again(read_shop: Shop) -> None:
    shop = read_shop
    shop.run(f"ALTER PUBLICATION {shop.slot} DROP TABLE items", "DELETE FROM items", ROW.format(9))
    reload(shop, commands_in(held_reason(shop, "items"))[0])
    shop.advance()
    shop.assert_equal()


def describe(source: CreateSource) -> None:
    reader = reader_of(source)
    reader.check(source)
    reader.describe(source, lambda: pytest.fail("no Spark"))


def changed(source: CreateSource, **options: str) -> CreateSource:
    return msgspec.structs.replace(source, options=source.options | options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"password": "${env:WRONG}"}, LoginDeniedError, "password authentication failed"),
        ({"password": "${env:NO_SUCH}"}, MissingReferenceError, "NO_SUCH"),
        ({"password": "secret"}, CredentialInOptionError, "password"),
        ({"dbname": "nowhere"}, DatabaseMissingError, "nowhere"),
        ({"table": "public.order"}, MissingTableError, "public.items, public.orders"),
        ({"host": "/nowhere"}, SourceAwayError, "does not answer"),
        ({"slot": "Bad slot"}, BadOptionError, "lower-case"),
        ({"max_changes": "0"}, BadOptionError, "max_changes"),
        ({"max_changes": "²"}, BadOptionError, "a whole number from 1 to 2147483647"),
        ({"max_changes": "3000000000"}, BadOptionError, "a whole number from 1 to 2147483647"),
        ({"changes": "upsert"}, BadOptionError, "changes"),
        ({"path": "/a"}, BadOptionError, "path"),
    ],
)
def test_a_statement_that_cannot_be_honoured_is_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], error: type[Exception], text: str
) -> None:
    monkeypatch.setenv("WRONG", "wrong")
    with pytest.raises(error, match=re.escape(text)) as raised:
        describe(changed(shop.orders, **options))
    assert "secret" not in str(raised.value)


def test_columns_that_the_table_does_not_have_are_refused(shop: Shop) -> None:
    with pytest.raises(OtherColumnsError, match="no column 'what'"):
        describe(msgspec.structs.replace(shop.orders, fields=(*ORDERS, Field("what", "int"))))
    with pytest.raises(OtherColumnsError, match="numeric"):
        describe(msgspec.structs.replace(shop.orders, fields=(Field("id", "bigint"), Field("amount", "int"))))
    with pytest.raises(UndeclaredTableError, match=r"id bigint, .* PRIMARY KEY \(id\)"):
        describe(msgspec.structs.replace(shop.orders, fields=(), keyed=None))


def test_a_table_without_the_key_asks_for_all_old_values(shop: Shop) -> None:
    shop.run("CREATE TABLE plain (id bigint, v int)", "INSERT INTO plain VALUES (1, 1)")
    plain = shop.source("plain", (Field("id", "bigint"), Field("v", "int")), 0)
    with pytest.raises(NoIdentityError) as raised:
        describe(plain)
    shop.run(*commands_in(str(raised.value)))
    describe(plain)
    append(shop.meta, plain)
    shop.advance()
    shop.run("UPDATE plain SET v = 2", "INSERT INTO plain VALUES (3, 3)", "UPDATE plain SET id = 4 WHERE id = 3")
    shop.advance()
    assert rows(shop.meta, "plain") == [(1, 2), (4, 3)]


def test_a_user_gets_each_permission_by_the_printed_commands(shop: Shop) -> None:
    shop.run("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN PASSWORD 'secret'")
    source = changed(shop.orders, user="reader")
    with pytest.raises(DatabaseDeniedError, match="REPLICATION") as denied:
        describe(source)
    shop.run(*commands_in(str(denied.value)))
    describe(source)
    append(shop.meta, source)
    (statement,) = commands_in(held_reason(shop))
    shop.run(statement)
    shop.run(ROW.format(1))
    shop.advance()
    assert shop.holds() == {}
    assert len(rows(shop.meta, "orders")) == 1
    shop.run(f"SELECT pg_drop_replication_slot('{shop.slot}')")


def test_a_server_without_logical_changes_names_the_setting(tmp_path: Path) -> None:
    with PostgresServer() as plain, password_set():
        shop = Shop(plain, tmp_path)
        with pytest.raises(LogLevelError) as raised:
            describe(shop.orders)
        (command,) = commands_in(str(raised.value))
        plain.execute("postgres", command)
        plain.kill()
        plain.start()
        describe(shop.orders)


def test_the_log_is_released_after_the_commit_and_not_before(read_shop: Shop) -> None:
    def confirmed() -> Any:
        query = f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{shop.slot}'"
        return shop.server.read(shop.name, query)[0][0]

    shop = read_shop
    before = confirmed()
    shop.run(ROW.format(20))
    assert inject_barrier(shop.meta) is not None
    release_taken_input(shop.meta)
    assert confirmed() == before
    shop.advance()
    assert confirmed() > before
    shop.assert_equal()


def test_status_shows_how_much_log_a_server_keeps(read_shop: Shop) -> None:
    shop = read_shop
    shop.run(ROW.format(30))
    (orders, _) = list_sources(shop.meta)
    assert orders.path.startswith("public.orders of Postgres")
    assert orders.waiting_bytes > 0
    assert orders.log_bytes is not None
    text = _sources_text([orders], NOW, 5)
    assert "the server keeps" in text
    assert "without a limit" in text


def test_a_run_ends_although_the_table_changes_all_the_time(read_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the log finds a further change."""
    shop, numbers, peek = read_shop, iter(range(100, 106)), Database.peek_log

    def peek_busily(database: Database, until: int, most: int | None) -> Log:
        shop.run(ROW.format(next(numbers)))
        return peek(database, until, most)

    monkeypatch.setattr(Database, "peek_log", peek_busily)
    shop.run(ROW.format(99))
    shop.advance()
    assert max(row[0] for row in rows(shop.meta, "orders")) == 99
    monkeypatch.undo()
    shop.advance()
    shop.assert_equal()


def test_a_run_takes_more_changes_than_an_epoch_may_have(shop: Shop) -> None:
    append(shop.meta, changed(shop.orders, max_changes="5"), changed(shop.items, max_changes="5"))
    shop.advance()
    for first in range(0, 40, 4):
        shop.run(*(ROW.format(n) for n in range(first, first + 4)))
    shop.advance()
    shop.assert_equal()


def test_two_runs_at_once_take_each_change_once(read_shop: Shop) -> None:
    shop = read_shop
    changes = Changes(shop, 11, moves_long=False)

    def run(number: int) -> None:
        meta = open_store(shop.folder / "store", writer=f"run {number}")
        try:
            for _ in advance_store(LocalRunner(), meta):
                pass
        except LostRaceError:
            pass
        release_taken_input(meta)

    for _ in range(4):
        changes.run()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, range(2)))
        shop.advance()
        shop.assert_equal()


REQUESTS = (
    (psycopg.Connection, "execute"),
    (psycopg.Cursor, "execute"),
    (psycopg.Cursor, "copy"),
    (LocalObjectStore, "put"),
    (LocalObjectStore, "put_if_absent"),
)


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.deep)])
def test_a_run_that_dies_anywhere_neither_loses_nor_repeats_a_change(shop: Shop, kills: int) -> None:
    changes, killed = Changes(shop, 7, moves_long=False), 0
    append(shop.meta, shop.orders, shop.items)
    while killed < kills:
        changes.run()
        while True:
            try:
                with dying(REQUESTS, changes.random.randint(0, 240)):
                    shop.advance()
            except KilledError:
                killed += 1
                shop.meta = open_store(shop.folder / "store", writer=f"run {killed}")
            else:
                break
        shop.advance()
        shop.assert_equal()


@pytest.mark.deep
def test_a_server_that_is_killed_under_load_neither_loses_nor_repeats_a_change(shop: Shop) -> None:
    changes, ended = Changes(shop, 13, moves_long=False), threading.Event()
    append(shop.meta, shop.orders, shop.items)

    def write() -> None:
        while not ended.is_set():
            with suppress(psycopg.OperationalError):
                changes.run()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        for _ in range(15):
            shop.advance()
            shop.server.kill()
            shop.advance()  # the sources wait
            shop.server.start()
        ended.set()
        writing.result()
    shop.advance()
    shop.assert_equal()
    assert len(shop.server.read(shop.name, "SELECT 1 FROM orders UNION ALL SELECT 1 FROM items")) > 0
