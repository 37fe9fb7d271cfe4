"""Branches that follow a parent with sources of each kind: followed epochs, a changed view, a merge. No Spark.

The rows of the source come from a list that the test keeps beside it.
"""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.jobs.iceberg.tables import NAME, catalog_in, options_of
from tests.support.postgres import PostgresServer, password_set
from tests.unit.jobs.driver.test_builds import replacing
from tests.unit.jobs.driver.test_following import follow
from tussock.jobs.barriers.follow import BranchConflictError
from tussock.jobs.barriers.release import release_taken_input
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.merge import merge_branch, plan_merge
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import AggCall, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, Drop, KeyedBy
from tussock.jobs.settings.process import clock_ms
from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.compaction import compact_store
from tussock.jobs.upkeep.vacuum import clean_store
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.pin import delete_pins
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

FIELDS = (Field("id", "bigint"), Field("p", "string"))
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


def counted(column: int) -> CreateView:
    """The view `counted`: how many rows have each value of a column of the source."""
    field = FIELDS[column]
    calls, fields = (AggCall("Count", "bigint", ()),), (field, Field("n", "bigint"))
    plan = Aggregate(Scan("s", (column,), (field,)), (Column(0, field.type),), calls, fields)
    return CreateView("counted", f"SELECT {field.name}, count(*)", plan)


COPY = CreateView("copy", "SELECT *", Scan("s", (0, 1), FIELDS))


class Feed(ABC):
    """A source and the rows that it has now, by key."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.turn = folder, 0
        self.rows: dict[int, str] = {}
        self.begin()

    def begin(self) -> None:
        """Make the source's table, if it has one."""
        return

    @abstractmethod
    def statement(self) -> CreateSource: ...

    @abstractmethod
    def put(self, new: dict[int, str]) -> None:
        """Insert or replace these rows."""

    def forget(self) -> None:
        """Remove from the outside what the parent has taken, as its upkeep may."""
        return

    def change(self, rng: random.Random) -> None:
        self.turn += 1
        new = {rng.randrange(20): f"{rng.choice('ab')}" for _ in range(5)}
        self.put(new)
        self.rows |= new


class Upserts(Feed):
    def statement(self) -> CreateSource:
        options = {"path": str(self.folder / "in"), "changes": "upsert", "retain": "none"}
        return CreateSource("s", "parquet", FIELDS, options, keyed=KeyedBy((0,)))

    def put(self, new: dict[int, str]) -> None:
        (self.folder / "in").mkdir(exist_ok=True)
        pq.write_table(arrow(new), self.folder / f"in/{self.turn}.parquet")

    def forget(self) -> None:
        for file in (self.folder / "in").iterdir():
            file.unlink()


class Delta(Feed):
    def begin(self) -> None:
        write_deltalake(self.folder / "lake", arrow({}))

    def statement(self) -> CreateSource:
        return CreateSource("s", "delta", FIELDS, {"path": str(self.folder / "lake")})

    def put(self, new: dict[int, str]) -> None:
        merge = DeltaTable(self.folder / "lake").merge(arrow(new), "s.id = t.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()


class Iceberg(Feed):
    def begin(self) -> None:
        catalog_in(self.folder / "lake").create_table(NAME, SCHEMA)

    def statement(self) -> CreateSource:
        return CreateSource("s", "iceberg", FIELDS, options_of(self.folder / "lake"))

    def put(self, new: dict[int, str]) -> None:
        table = catalog_in(self.folder / "lake").load_table(NAME)
        if old := [key for key in new if key in self.rows]:
            table.delete(f"id in ({', '.join(map(str, old))})")
        table.append(arrow(new))


class Other(Feed):
    """A table of another store, which keeps one epoch besides the pinned ones."""

    def begin(self) -> None:
        self.meta = new_store(self.folder / "other")
        options = {"path": str(self.folder / "in"), "changes": "upsert"}
        append(self.meta, CreateSource("people", "parquet", FIELDS, options, keyed=KeyedBy((0,))))
        self.advance()

    def statement(self) -> CreateSource:
        return CreateSource("s", "tussock", FIELDS, {"store": str(self.folder / "other"), "relation": "people"})

    def put(self, new: dict[int, str]) -> None:
        (self.folder / "in").mkdir(exist_ok=True)
        pq.write_table(arrow(new), self.folder / f"in/{self.turn}.parquet")
        self.advance()

    def advance(self) -> None:
        advance_store(LocalRunner(), self.meta)
        self.meta.publish(self.meta.read_latest().epoch)

    def forget(self) -> None:
        meta = MetaStore(open_object_store(str(self.folder / "other")), "vacuum", clock_ms)
        meta.apply_retention(keep_epochs=1)
        compact_store(meta, full=True)
        clean_store(meta, Retention(keep_epochs=1, keep_ms=0))


class Postgres(Feed):
    server: PostgresServer

    def begin(self) -> None:
        self.name = f"db_{self.folder.name.replace('-', '_')[-30:]}"
        self.server.create_database(self.name)
        self.run("CREATE TABLE people (id bigint PRIMARY KEY, p text)")

    def run(self, statement: str) -> None:
        with psycopg.connect(self.server.address(self.name), password="secret") as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def statement(self) -> CreateSource:
        place = {"host": str(self.server.folder), "dbname": self.name, "user": "owner", "table": "public.people"}
        return CreateSource("s", "postgres", FIELDS, place | {"slot": f"s_{self.name}"}, keyed=KeyedBy((0,)))

    def put(self, new: dict[int, str]) -> None:
        values = ", ".join(f"({key}, '{p}')" for key, p in new.items())
        self.run(f"INSERT INTO people VALUES {values} ON CONFLICT (id) DO UPDATE SET p = excluded.p")


def arrow(new: dict[int, str]) -> pa.Table:
    return pa.table([list(new), list(new.values())], schema=SCHEMA)


@pytest.fixture(params=[Upserts, Delta, Iceberg, Other, Postgres])
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Feed]:
    if request.param is not Postgres:
        yield request.param(tmp_path)
        return
    with PostgresServer("wal_level=logical\n") as Postgres.server, password_set():
        yield Postgres(tmp_path)


def advance(meta: MetaStore) -> None:
    advance_store(LocalRunner(), meta)
    assert held_sources(meta.read_latest().catalog) == {}
    release_taken_input(meta)
    meta.publish(meta.read_latest().epoch)


def require_equal(meta: MetaStore, now: dict[int, str], column: int) -> None:
    assert rows(meta, "copy") == sorted(now.items(), key=repr)
    groups = Counter(row[column] for row in now.items())
    assert rows(meta, "counted") == sorted(groups.items(), key=repr)


def test_a_branch_with_a_changed_view_follows_the_input_of_its_parent_and_merges(feed: Feed, tmp_path: Path) -> None:
    rng = random.Random(1)
    parent = new_store(tmp_path / "store")
    append(parent, feed.statement(), COPY, counted(1))
    feed.change(rng)
    advance(parent)
    branch = parent.open_branch("b")
    append(branch, replacing(counted(0)))
    for turn in range(6):
        feed.change(rng)
        advance(parent)
        if turn % 2:  # the branch follows one epoch, or two
            feed.forget()
            assert follow(branch) > 0
            require_equal(branch, dict(feed.rows), 0)
        require_equal(parent, dict(feed.rows), 1)
    merge_branch(branch, plan_merge(branch))
    parent.end_branch("b")
    require_equal(parent, feed.rows, 0)
    feed.change(rng)
    advance(parent)
    require_equal(parent, feed.rows, 0)


@pytest.mark.parametrize("kind", [Delta, Iceberg, Other])
def test_input_that_is_gone_ends_the_following_with_an_error_that_says_so(tmp_path: Path, kind: type[Feed]) -> None:
    rng, feed = random.Random(3), kind(tmp_path)
    parent = new_store(tmp_path / "store")
    append(parent, feed.statement(), COPY, counted(1))
    feed.change(rng)
    advance(parent)
    branch = parent.open_branch("b")
    append(branch, replacing(counted(0)))
    follow(branch)
    kept = dict(feed.rows)
    for _ in range(2):
        feed.change(rng)
        advance(parent)
    if isinstance(feed, Other):
        delete_pins(feed.meta.objects, *feed.meta.all_pins())
        feed.forget()
        process_cache().clear()
    for file in (tmp_path / "lake").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(BranchConflictError, match=r"its input cannot be read again: .*End it with `tussock branch end"):
        follow(branch)
    require_equal(branch, kept, 0)


def test_a_branch_drops_what_reads_a_source_and_its_merge_drops_it_in_the_parent(feed: Feed, tmp_path: Path) -> None:
    rng = random.Random(2)
    parent = new_store(tmp_path / "store")
    append(parent, feed.statement(), COPY, counted(1))
    feed.change(rng)
    advance(parent)
    branch = parent.open_branch("b")
    append(branch, Drop(RelationKind.VIEW, "copy"))
    feed.change(rng)
    advance(parent)
    follow(branch)
    merge_branch(branch, plan_merge(branch))
    parent.end_branch("b")
    feed.change(rng)
    advance(parent)
    assert [r.name for r in parent.read_latest().catalog.live_relations()] == ["s", "counted"]
    groups = Counter(feed.rows.values())
    assert rows(parent, "counted") == sorted(groups.items(), key=repr)
