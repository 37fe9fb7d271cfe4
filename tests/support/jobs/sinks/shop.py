"""A store whose tables change epoch by epoch, and a separate model of its relations' rows. No JVM.

A second shop in another schema of the store has relations of the same names.
"""

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from tests.support.jobs.driver.embedded import append
from tests.support.jobs.sinks.delta_readers import duckdb_rows, package_rows
from tussock.jobs.logical.nodes import AggCall, Aggregate, Call, Column, Field, Literal, Project, Scan
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, join_name
from tussock.jobs.logical.statements import CreateSchema, CreateTable, CreateView, Delete, Statement
from tussock.jobs.session import Session
from tussock.jobs.settings.publishing import KINDS
from tussock.jobs.sinks.publication import PublishedTable, publish_tables
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.types import arrow_type

ORDERS = (
    Field("id", "bigint"),
    Field("shop", "string"),
    Field("amount", "decimal(12,2)"),
    Field("at", "timestamp"),
    Field("tags", "array<struct<name:string,n:int>>"),
    Field("ratio", "double"),
)
EVENTS = Field("kind", "string"), Field("n", "int")
RATIOS = Field("ratio", "double"), Field("n", "int")
Rows = list[tuple[Any, ...]]


RELATIONS = ("orders", "ratios", "events", "by_shop", "shops")


def statements(schema: str = DEFAULT_SCHEMA) -> list[Statement]:
    """Tables with a key, with a double as key, and without one; an aggregate with a NULL group; a projection without
    its key.
    """
    orders, ratios, events, *views = (join_name(schema, name) for name in RELATIONS)
    by_shop = Aggregate(
        Scan(orders, (1, 2), ORDERS[1:3]),
        (Column(0, "string"),),
        (AggCall("Count", "bigint", ()), AggCall("Sum", "decimal(22,2)", (Column(1, "decimal(12,2)"),), "ANSI")),
        (Field("shop", "string"), Field("n", "bigint"), Field("total", "decimal(22,2)")),
    )
    shops = Project(Scan(orders, (1,), ORDERS[1:2]), (Column(0, "string"),), (Field("shop", "string"),))
    return [
        *([] if schema == DEFAULT_SCHEMA else [CreateSchema(schema)]),
        CreateTable(orders, ORDERS, (0,), comment="what was bought", comments=((2, "in euros"),)),
        CreateTable(ratios, RATIOS, (0,)),
        CreateTable(events, EVENTS, ()),
        CreateView(views[0], f"SELECT shop, count(*) AS n, sum(amount) AS total FROM {orders} GROUP BY shop", by_shop),
        CreateView(views[1], f"SELECT shop FROM {orders}", shops),
    ]


class Shop:
    """The store in `folder / "store"`, published to `folder / "tables"`; and a model of its relations."""

    def __init__(
        self,
        folder: Path,
        seed: int = 1,
        *,
        to: str | None = None,
        kind: str = "delta",
        store: str | None = None,
        schema: str = DEFAULT_SCHEMA,
    ) -> None:
        self.folder, self.random, self.schema = folder, np.random.default_rng(seed), schema
        self.settings = KINDS[kind](to or str(folder / "tables"), RELATIONS)
        self.address = store or str(folder / "store")
        if schema == DEFAULT_SCHEMA:
            MetaStore.init(open_object_store(self.address), units=2)
        self._writer = MetaStore(open_object_store(self.address), f"statements {schema}", lambda: 1_700_000_000_000)
        self.append(*statements(schema))
        self.session = Session(self.address, create=False, runner="local")
        self.orders: dict[int, tuple[Any, ...]] = {}
        self.ratios: dict[str, tuple[float, int]] = {}
        self.events: Rows = []

    def twin(self, seed: int, schema: str) -> "Shop":
        """Another shop in the same store. Its schema shares the names of all relations."""
        return Shop(self.folder, seed, store=self.address, schema=schema)

    @property
    def meta(self) -> MetaStore:
        return self.session.meta

    def append(self, *bound: Statement) -> None:
        """Append statements to the log."""
        append(self._writer, *bound)

    def add_event(self, kind: str, n: int) -> None:
        """A statement that changes only `events`."""
        self._insert("events", EVENTS, [(kind, n)])

    def change(self) -> None:
        """Statements of one epoch: rows are inserted, changed, deleted and inserted again, in tables of every kind."""
        ids = self.random.choice(40, int(self.random.integers(1, 12)), replace=False).tolist()
        self._insert("orders", ORDERS, [self._order(i) for i in ids])
        for i in self.random.choice(40, 4, replace=False).tolist():
            self._delete("orders", Call("EqualTo", "boolean", (Column(0, "bigint"), Literal(i, "bigint"))))
            self.orders.pop(i, None)
        ratios = self.random.choice([0.0, -0.0, 1.5, 2.5, math.inf, math.nan], 2, replace=False).tolist()
        self._insert(
            "ratios", RATIOS, [(ratio, int(self.random.integers(9))) for ratio in dict.fromkeys(abs(r) for r in ratios)]
        )
        for _ in range(int(self.random.integers(0, 3))):
            kind, n = str(self.random.choice(["view", "click"])), int(self.random.integers(0, 2))
            self._insert("events", EVENTS, [(kind, n), (kind, None), (kind, n)])
        if self.random.random() < 0.3:
            self._delete("events", Call("EqualTo", "boolean", (Column(0, "string"), Literal("click", "string"))))
            self.events = [row for row in self.events if row[0] != "click"]

    def empty(self) -> None:
        """Statements of an epoch that leaves no row."""
        for table in ("orders", "ratios", "events"):
            self._delete(table, None)
        self.orders, self.ratios, self.events = {}, {}, []

    def commit(self) -> int:
        """Run an epoch over the waiting statements. It is published in the store, but not in the tables yet."""
        return self.session.flush().epoch

    def publish(self, epoch: int | None = None) -> tuple[PublishedTable, ...]:
        """Update the tables to a published epoch."""
        return publish_tables(self.meta, self.settings, epoch)

    def model(self) -> dict[str, Rows]:
        """The rows of each relation, computed without the engine."""
        orders = list(self.orders.values())
        groups: dict[str | None, list[Decimal]] = {}
        for _, shop, amount, *_ in orders:
            groups.setdefault(shop, []).append(amount)
        rows = {
            "orders": orders,
            "ratios": list(self.ratios.values()),
            "events": self.events,
            "by_shop": [(shop, len(amounts), sum(amounts, Decimal(0))) for shop, amounts in groups.items()],
            "shops": [(shop,) for _, shop, *_ in orders],
        }
        return {join_name(self.schema, name): of_relation for name, of_relation in rows.items()}

    def _order(self, key: int) -> tuple[Any, ...]:
        shop = str(self.random.choice(["Kiel", "Köln", "it's", ""])) if self.random.random() < 0.8 else None
        tags = (
            None
            if self.random.random() < 0.3
            else [{"name": "a", "n": int(self.random.integers(5))}, {"name": None, "n": None}]
        )
        at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=int(self.random.integers(10**12)))
        ratio = float(self.random.choice([math.nan, math.inf, 0.1, 0.0]))
        return key, shop, Decimal(int(self.random.integers(-(10**6), 10**6))) / 100, at, tags, ratio

    def _insert(self, table: str, fields: tuple[Field, ...], rows: Rows) -> None:
        schema = pa.schema([(f.name, arrow_type(f.type)) for f in fields])
        columns = [[row[place] for row in rows] for place in range(len(fields))]
        self.session.insert(join_name(self.schema, table), pa.table(columns, schema=schema))
        if table == "orders":
            self.orders |= {row[0]: row for row in rows}
        elif table == "ratios":
            self.ratios |= {repr(row[0]): row for row in rows}
        else:
            self.events = self.events + rows

    def _delete(self, table: str, where: Call | None) -> None:
        self.append(Delete(join_name(self.schema, table), where))


def read_back(place: str, *, version: str | None = None, options: dict[str, str] | None = None) -> Rows:
    """The rows of a Delta table, read by the deltalake package and by DuckDB, which must agree."""
    table = DeltaTable(place, version=None if version is None else int(version), storage_options=options)
    by_package = sorted_rows(package_rows(table))
    if options is None:
        assert sorted_rows(duckdb_rows(table)) == by_package
    return by_package


def sorted_rows(rows: pa.Table) -> Rows:
    """The rows as sorted Python values."""
    return in_order(list(zip(*(column.to_pylist() for column in rows.columns), strict=True)))


def in_order(rows: Rows) -> Rows:
    """The rows, sorted and normalized: NaN is not equal to itself, and an instant may have different time zones."""
    return sorted((tuple(map(_plain, row)) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    match value:
        case float():
            return repr(value)
        case Decimal():
            return str(value.normalize())
        case dt.datetime():
            return value.astimezone(dt.UTC).isoformat()
        case _:
            return value
