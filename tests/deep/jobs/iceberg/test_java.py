"""Iceberg's Java: it writes histories that a source follows, and reads the tables that a sink publishes.

ICEBERG_SEEDS is the number of histories; ICEBERG_SEED is the first one.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyiceberg.catalog import load_catalog

from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.jobs.iceberg.java import Java, java_in
from tests.support.jobs.iceberg.tables import NAME, catalog_in, options_of
from tests.support.jobs.sinks.shop import Shop
from tussock.jobs.barriers.source_holds import require_not_held
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, KeyedBy
from tussock.jobs.sinks.publication import tidy_tables

pytestmark = [pytest.mark.deep, pytest.mark.timeout(1300)]

BASE = 1 << 40  # py4j passes a small number as an Integer
SEEDS = int(os.environ.get("ICEBERG_SEEDS", "6"))
SEED = int(os.environ.get("ICEBERG_SEED", "0"))
FIELDS = (Field("id", "bigint"), Field("v", "double"), Field("p", "string"))
COPY = CreateView("copy", "SELECT * FROM s", Scan("s", (0, 1, 2), FIELDS))


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    with java_in(tmp_path_factory.mktemp("java")) as made:
        yield made


class Table:
    """A table that Java changes at random."""

    def __init__(self, java: Java, name: str, seed: int) -> None:
        self.java, self.name, self.random = java, name, random.Random(seed)
        mode = self.random.choice(("merge-on-read", "copy-on-write"))
        self.format = self.random.choice((2, 3))
        kinds = ", ".join(f"'write.{kind}.mode'='{mode}'" for kind in ("delete", "update", "merge"))
        java.run(
            sql=f"CREATE TABLE {name} (id bigint, v double, p string) USING iceberg "
            f"TBLPROPERTIES ('format-version'='{self.format}', {kinds})"
        )
        self._insert()
        self.columns, self.partitions = 0, set[str]()

    def _insert(self) -> None:
        draw = self.random
        values = [
            f"({BASE + draw.randrange(12)}, {draw.choice(('0.5D', 'NULL', '1.5D'))}, {draw.choice(('NULL', quoted))})"
            for quoted in draw.choices(("'a'", "'b %'", "'c'"), k=6)
        ]
        names = "id, v, p"
        self.java.run(sql=f"INSERT INTO {self.name} ({names}) VALUES {', '.join(values)}")

    def change(self) -> str:
        """Make one change, and return its kind."""
        kinds = ["insert", "delete", "update", "merge", "compact", "column", "partition", "equal", "equal"]
        kind, at = self.random.choice(kinds), BASE + self.random.randrange(12)
        sql = {
            "delete": f"DELETE FROM {self.name} WHERE id = {at}",
            "update": f"UPDATE {self.name} SET v = 9.5D WHERE id = {at}",
            "merge": f"MERGE INTO {self.name} t USING (SELECT {at}L AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET p = 'm' WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (s.id, 7.5D, 'n')",
            "compact": f"CALL java.system.rewrite_data_files(table => '{self.name}', "
            "options => map('rewrite-all', 'true'))",
        }
        if kind == "insert":
            self._insert()
        elif kind == "column":
            self.columns += 1
            self.java.run(sql=f"ALTER TABLE {self.name} ADD COLUMN c{self.columns} int FIRST")
        elif kind == "partition":
            part = self.random.choice(("bucket(3, id)", "truncate(1, p)", "p"))
            if part not in self.partitions:
                self.partitions.add(part)
                self.java.run(sql=f"ALTER TABLE {self.name} ADD PARTITION FIELD {part}")
        elif kind == "equal":
            self._delete_equal(at)
        else:
            self.java.run(sql=sql[kind])
        return kind

    def _delete_equal(self, at: int) -> None:
        if self.partitions:
            return  # the delete would need a partition
        by = self.random.choice((["id"], ["p"], ["id", "p"]))
        row = {"id": at, "p": self.random.choice(("a", "m", None))}
        self.java.run(equal=self.name, columns=by, rows=[[row[name] for name in by]])

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows, as Spark reads them."""
        read = self.java.run(sql=f"SELECT id, v, p FROM {self.name}")
        return [tuple(None if value == "None" else value for value in row) for row in read]


class KeyedTable(Table):
    """A table with at most one row per id, as writers of upserts leave it."""

    def _insert(self) -> None:
        draw = self.random
        ids = draw.sample(range(12), 4)
        if hasattr(self, "partitions"):  # not the first rows
            if self.partitions:
                self.java.run(sql=f"DELETE FROM {self.name} WHERE id IN ({', '.join(str(BASE + i) for i in ids)})")
            else:
                self.java.run(equal=self.name, columns=["id"], rows=[[BASE + i] for i in ids])
        drawn = [(BASE + i, draw.choice(("0.5D", "NULL")), draw.choice(("NULL", "'a'"))) for i in ids]
        values = [f"({i}, {v}, {p})" for i, v, p in drawn]
        self.java.run(sql=f"INSERT INTO {self.name} (id, v, p) VALUES {', '.join(values)}")


@pytest.mark.parametrize("keyed", [None, KeyedBy((0,))], ids=["without_a_key", "with_a_key"])
@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
def test_a_source_follows_histories_that_java_writes(
    tmp_path: Path, java: Java, seed: int, keyed: KeyedBy | None
) -> None:
    table = Table(java, f"db.t{seed}", seed) if keyed is None else KeyedTable(java, f"db.k{seed}", seed)
    catalog, meta = catalog_in(tmp_path / "lake"), new_store(tmp_path / "store")
    append(meta, CreateSource("s", "iceberg", FIELDS, options_of(tmp_path / "lake"), keyed=keyed), COPY)
    kinds = list[str]()
    for _ in range(8):
        kinds += [table.change() for _ in range(table.random.randrange(1, 4))]
        if catalog.table_exists(NAME):
            catalog.drop_table(NAME)
        catalog.register_table(NAME, f"file://{java.run(metadata=table.name)}")
        while advance_store(LocalRunner(), meta):
            require_not_held(meta.read_latest().catalog)
        ours = [tuple(None if value is None else str(value) for value in row) for row in rows(meta, "copy")]
        assert sorted(map(repr, ours)) == sorted(map(repr, table.rows())), (table.format, kinds)


@pytest.mark.parametrize("version", [2, 3])
def test_java_reads_published_tables_equal_at_every_epoch(tmp_path: Path, java: Java, version: int) -> None:
    shop = Shop(tmp_path, kind="iceberg")
    partitions, orders = {"orders": "months(at), bucket(2, id)"}, {"orders": "shop, id desc"}
    shop.settings = msgspec.structs.replace(
        shop.settings, format_version=version, partition_by=partitions, sort_by=orders
    )
    uri, warehouse = f"sqlite:///{tmp_path}/tables/catalog.db", f"file://{tmp_path}/tables"
    for number in range(6):
        shop.change()
        shop.commit()
        shop.publish()
        if number == 3:
            tidy_tables(shop.meta, shop.settings, (shop.meta.read_latest().published >> 16) + 30 * 86_400_000)
        catalog = load_catalog("tussock", type="sql", uri=uri, warehouse=warehouse)
        for name in ("orders", "ratios", "events", "by_shop", "shops"):
            table = catalog.load_table(f"tussock.{name}")
            read = java.run(read=table.metadata_location)
            model = shop.model()[name]
            assert len(read) == len(model), name
            flat = [i for i, field in enumerate(table.schema().fields) if str(field.field_type) in ("long", "string")]
            ours = [tuple(None if row[i] is None else str(row[i]) for i in flat) for row in model]
            assert sorted(map(repr, (tuple(row[i] for i in flat) for row in read))) == sorted(map(repr, ours)), name
            columns = ["content", "file_format", "referenced_data_file"]
            deletes = java.run(read=f"{table.metadata_location}#delete_files", columns=columns)
            assert {content for content, _, _ in deletes} <= {"1"}, "no equality deletes"
            assert {form for _, form, _ in deletes} <= {"PARQUET" if version == 2 else "PUFFIN"}
            if version == 3:
                ids = java.run(read=table.metadata_location, columns=["_row_id"])
                assert len({number for (number,) in ids}) == len(model), "each row has its id"
                vectors = [row[-1] for row in deletes]
                assert len(vectors) == len(set(vectors)), "a data file has at most one vector"
