"""A database with two tables that a store reads, and the remedies that messages of its sources print. No JVM."""

import re
from pathlib import Path

import psycopg

from tests.support.jobs.driver.embedded import new_store, rows
from tests.support.postgres import PostgresServer
from tussock.jobs.barriers.release import release_taken_input
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource, KeyedBy
from tussock.jobs.sources.base import Restated
from tussock.jobs.trouble.restate import Restating

ORDERS = (
    Field("id", "bigint"),
    Field("shop", "string"),
    Field("amount", "decimal(10,2)"),
    Field("note", "string"),
    Field("at", "timestamp"),
    Field("paid", "boolean"),
    Field("raw", "binary"),
)
ITEMS = (Field("order_id", "bigint"), Field("place", "int"), Field("price", "double"), Field("day", "date"))
TABLES = """
    CREATE TABLE orders (id bigint PRIMARY KEY, shop text, amount numeric(10,2), note text, at timestamptz,
                         paid boolean, raw bytea);
    CREATE TABLE items (order_id bigint, place int, price float8, day date, PRIMARY KEY (order_id, place));
    ALTER TABLE orders ALTER note SET STORAGE EXTERNAL
"""
ROW = "INSERT INTO orders VALUES ({0}, 'a', {0}, NULL, NULL, NULL, NULL)"


class Shop:
    """A database with two tables, and a store that reads them."""

    def __init__(self, server: PostgresServer, folder: Path, *, whole_rows: bool = False) -> None:
        self.server, self.folder, self.name = server, folder, folder.name.replace("-", "_")[-40:]
        server.create_database(self.name)
        self.meta = new_store(folder / "store")
        self.run(*TABLES.split(";"))
        if whole_rows:
            self.run("ALTER TABLE orders REPLICA IDENTITY FULL", "ALTER TABLE items REPLICA IDENTITY FULL")

    def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with psycopg.connect(self.server.address(self.name), password="secret") as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]

    def source(self, name: str, fields: tuple[Field, ...], *key: int, **options: str) -> CreateSource:
        given = {"host": str(self.server.folder), "dbname": self.name, "user": "owner", "table": f"public.{name}"}
        return CreateSource(name, "postgres", fields, given | {"slot": self.slot} | options, keyed=KeyedBy(key))

    @property
    def slot(self) -> str:
        return f"s_{self.name}"

    @property
    def orders(self) -> CreateSource:
        return self.source("orders", ORDERS, 0)

    @property
    def items(self) -> CreateSource:
        return self.source("items", ITEMS, 0, 1)

    def advance(self) -> None:
        """A run: epochs over all waiting input, then the slot moves."""
        for _ in advance_store(LocalRunner(), self.meta):
            pass
        release_taken_input(self.meta)

    def holds(self) -> dict[str, str]:
        return held_sources(self.meta.read_latest().catalog)

    def assert_equal(self) -> None:
        """The rows of each source are those of its table."""
        assert self.holds() == {}
        for name in ("orders", "items"):
            there = self.server.read(self.name, f"SELECT * FROM {name}")
            assert sorted(rows(self.meta, name), key=repr) == sorted(there, key=repr), name

    def drop(self) -> None:
        self.server.execute("postgres", f"DROP DATABASE {self.name} WITH (FORCE)")


def commands_in(text: str) -> list[str]:
    """The commands that a message prints."""
    return re.findall(r"`([^`]+)`", text)


def reload(shop: Shop, command: str) -> None:
    """Run `tussock restate SOURCE --all`."""
    words = command.split()
    assert words[:2] == ["tussock", "restate"]
    assert words[3:] == ["--all"]
    Restating(shop.meta, words[2], Restated()).begin_restating()
    shop.advance()


def held_reason(shop: Shop, source: str = "orders") -> str:
    shop.advance()
    return shop.holds()[source]
