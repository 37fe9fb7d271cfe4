"""Sources with `changes 'snapshot'` whose deliveries consist of several files: random ones against a model. No Spark.

The model keeps the rows of each file of each taken delivery.
"""

import random
import re
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.faulty_store import stores_after_deaths
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows, run_twice_at_once
from tests.unit.jobs.driver.test_keyed_sources import BY_VALUE, EVERY_ROW, FIELDS, Record, late_changes, restate, write
from tussock.jobs.barriers.barrier import take_in
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.barriers.undo import inject_undo
from tussock.jobs.driver.epoch import advance_store, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.executors import keyed_deliveries
from tussock.jobs.logical.statements import CreateSource, CreateView, Drop, KeyedBy, SetSourceOptions
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.deliveries import deliveries_of, natural_order
from tussock.jobs.sources.errors import BadOptionError, CannotRestateError
from tussock.jobs.sources.keyed import deliveries_in
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.task import sealing, source_leaf, vnode_parts
from tussock.jobs.trouble.restate import Restating
from tussock.jobs.trouble.supersede import abandon_barrier, take_corrected
from tussock.jobs.wire.cell import Address
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore

KINDS = ("key", "scope", "no key")
DONE = "_DONE"
VIEWS = (CreateView("every_row", "SELECT …", EVERY_ROW), CreateView("by_value", "SELECT …", BY_VALUE))


def customers(folder: Path, kind: str = "key", path: str = "{day}/*.parquet", **options: str) -> CreateSource:
    given = {"path": f"{folder}/{path}", "retain": "files", "changes": "snapshot", "may_be_missing": "true"} | options
    given |= {"snapshot_scope": "s"} if kind == "scope" else {}
    keyed = {"key": KeyedBy((0,)), "scope": KeyedBy((0, 3)), "no key": None}[kind]
    return CreateSource("customers", "parquet", FIELDS, given, keyed=keyed)


@dataclass
class Model:
    """The files of each taken delivery. With a scope, deliveries are applied one after the other."""

    kind: str
    taken: dict[int, dict[str, list[Record]]] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return max(self.taken, default=-1)

    def rows(self) -> list[Record]:
        if self.kind == "scope":
            there: dict[tuple[int, str], Record] = {}
            for day in sorted(self.taken):
                came = [r for file in self.taken[day].values() for r in file]
                scopes = {r[3] for r in came}
                there = {k: r for k, r in there.items() if r[3] not in scopes} | {(r[0], r[3]): r for r in came}
            return sorted(there.values(), key=repr)
        newest = self.taken.get(self.newest, {})
        return sorted((r for file in newest.values() for r in file), key=repr)

    def by_value(self) -> list[tuple[object, ...]]:
        groups: dict[object, list[int]] = {}
        for _, n, v, _ in self.rows():
            groups.setdefault(v, []).append(n)
        return sorted(((v, len(ns), max(ns)) for v, ns in groups.items()), key=repr)


def some_files(chance: random.Random, kind: str) -> dict[str, list[Record]]:
    """One to three files. Without a key, rows repeat."""
    names = ["a", "b", "c"][: chance.randrange(1, 4)]
    files: dict[str, list[Record]] = {name: [] for name in names}
    scopes = chance.sample("ABC", chance.randrange(1, 4))
    keys = chance.choices(range(8), k=9) if kind == "no key" else chance.sample(range(12), chance.randrange(3, 12))
    for key in keys:
        files[chance.choice(names)].append(
            (key, chance.choice([1, 1, 2]), chance.choice([1, 1, 3]), scopes[key % len(scopes)])
        )
    return {name: records for name, records in files.items() if records}


@dataclass
class Feed:
    """Writes files of deliveries, and keeps the model of the taken ones."""

    chance: random.Random
    folder: Path
    model: Model
    day: int = 7
    waiting: dict[int, dict[str, list[Record]]] = field(default_factory=dict)  # without a marker

    def path(self, day: int, name: str) -> Path:
        return self.folder / f"{day}/{name}.parquet"

    def write_delivery(self, day: int, *, complete: bool) -> None:
        self.waiting[day] = some_files(self.chance, self.model.kind)
        self.folder.mkdir(exist_ok=True)
        for name, records in self.waiting[day].items():
            write(self.path(day, name), records)
        if complete:
            self.complete(day)

    def complete(self, day: int) -> None:
        (self.folder / f"{day}/{DONE}").touch()
        files = self.waiting.pop(day)
        if day >= self.model.newest or self.model.kind == "scope":
            self.model.taken[day] = files

    def late_day(self) -> int | None:
        free = [d for d in range(1, self.day) if d not in self.waiting and not (self.folder / str(d)).exists()]
        return self.chance.choice(free) if free else None

    def correct(self, meta: MetaStore) -> None:
        """Replace a file of a taken delivery: mostly the newest one."""
        day = self.model.newest
        name = self.chance.choice(sorted(self.model.taken[day]))
        others = {(r[0], r[3]) for n, rs in self.model.taken[day].items() if n != name for r in rs}
        fresh = [r for file in some_files(self.chance, self.model.kind).values() for r in file]
        if self.model.kind == "key":
            fresh = [r for r in fresh if r[0] not in {k for k, _ in others}]
        elif self.model.kind == "scope":
            fresh = [r for r in fresh if (r[0], r[3]) not in others]
        if fresh:
            self.model.taken[day][name] = fresh
            write(self.path(day, name), fresh)
            restate(meta, "customers", self.path(day, name))

    def withdraw(self, meta: MetaStore) -> None:
        """Remove a file of the newest delivery; with its last file, the delivery before counts again."""
        day = self.model.newest
        name = self.chance.choice(sorted(self.model.taken[day]))
        del self.model.taken[day][name]
        if not self.model.taken[day]:
            del self.model.taken[day]
        self.path(day, name).unlink()
        restate(meta, "customers", self.path(day, name), gone=True)

    def add_file(self) -> None:
        """Write one more file of the newest delivery."""
        day = self.model.newest
        record: Record = (100 + self.day, 1, 1, "A")
        self.model.taken[day]["z"] = [record]
        write(self.path(day, "z"), [record])


def change_feed(feed: Feed, meta: MetaStore) -> bool:
    """Write, complete, correct or withdraw something. False: start another process instead."""
    match feed.chance.choice(
        ["next"] * 4 + ["incomplete", "completed", "late", "corrected", "withdrawn", "more", "again"]
    ):
        case "next":
            feed.day += 1
            feed.write_delivery(feed.day, complete=True)
        case "incomplete":
            feed.day += 1
            feed.write_delivery(feed.day, complete=False)
        case "completed" if feed.waiting:
            feed.complete(feed.chance.choice(sorted(feed.waiting)))
        case "late" if (day := feed.late_day()) is not None:
            feed.write_delivery(day, complete=True)
        case "corrected" if feed.model.taken:
            feed.correct(meta)
        case "withdrawn" if len(feed.model.taken) > 1:
            feed.withdraw(meta)
        case "more" if "z" not in feed.model.taken.get(feed.model.newest, {"z": []}):
            feed.add_file()
        case _:
            return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.deep) for n in range(2, 100))])
def test_random_deliveries_of_several_files_give_the_rows_of_the_model(
    tmp_path: Path, seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(keyed_deliveries, "_PART_ROWS", chance.choice([3, 100]))
    monkeypatch.setattr(source_leaf, "_CHANGED_AT_ONCE", chance.choice([3, 100]))
    monkeypatch.setattr(vnode_parts, "DIVIDED_ROWS", chance.choice([1, 3, 100]))
    monkeypatch.setattr(vnode_parts, "ENCODED_BYTES", chance.choice([0, 1 << 20]))
    monkeypatch.setattr(vnode_parts, "KEPT_BYTES", chance.choice([0, 1 << 20]))
    monkeypatch.setattr(sealing, "SEALED_ROWS", chance.choice([1, 3, 100]))
    meta = new_store(tmp_path / "store", units=chance.choice([1, 2, 4]))
    feed = Feed(chance, tmp_path / "in", Model(kind))
    append(meta, customers(feed.folder, kind, snapshot_done=DONE), *VIEWS)
    feed.write_delivery(feed.day, complete=True)
    advance_store(LocalRunner(), meta)
    for step in range(30):
        assert rows(meta, "every_row") == feed.model.rows()
        assert rows(meta, "by_value") == feed.model.by_value()
        if not change_feed(feed, meta):
            meta = open_store(tmp_path / "store", f"run {step}")
        advance_store(LocalRunner(), meta)


def test_an_incomplete_delivery_waits_for_its_marker(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store")
    append(meta, customers(tmp_path / "in", path="*", snapshot_done=DONE))
    (tmp_path / "in").mkdir()
    write(tmp_path / "in/1/a.parquet", [(1, 1, 1, "a")])
    assert advance_store(LocalRunner(), meta)  # creates the source
    assert rows(meta, "customers") == []
    write(tmp_path / "in/1/b.parquet", [(2, 1, 1, "b")])
    assert advance_store(LocalRunner(), meta) == []
    (tmp_path / "in/1" / DONE).touch()
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(1, 1, 1, "a"), (2, 1, 1, "b")]


def test_a_delivery_that_is_older_than_the_newest_taken_one_is_skipped_and_named(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store")
    append(meta, customers(tmp_path / "in", path="dump_{day}_*.parquet"))
    write(tmp_path / "in/dump_10_a.parquet", [(1, 1, 1, "new")])
    advance_store(LocalRunner(), meta)
    write(tmp_path / "in/dump_9_a.parquet", [(1, 1, 1, "old")])
    write(tmp_path / "in/dump_9_b.parquet", [(2, 1, 1, "old")])
    (summary,) = advance_store(LocalRunner(), meta)
    assert summary.notes == ("source customers: skipped delivery 9, which is older than 10, the newest one",)
    assert rows(meta, "customers") == [(1, 1, 1, "new")]
    assert advance_store(LocalRunner(), meta) == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_incomplete_delivery_counts_if_the_newer_one_is_withdrawn(tmp_path: Path, kind: str) -> None:
    folder, meta = tmp_path / "in", new_store(tmp_path / "store")
    append(meta, customers(folder, kind, path="{day}/*", snapshot_done=DONE), *VIEWS)
    folder.mkdir()
    for day in (1, 2, 3):
        write(folder / f"{day}/a.parquet", [(day, 1, 1, "A")])
        if day != 2:
            (folder / f"{day}" / DONE).touch()
        advance_store(LocalRunner(), meta)
    restate(meta, "customers", folder / "3/a.parquet", gone=True)
    (folder / "3/a.parquet").unlink()
    advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == [(1, 1, 1, "A")]
    (folder / "2" / DONE).touch()
    advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == [(2, 1, 1, "A")]


def test_an_epoch_takes_one_delivery_with_all_of_its_files(tmp_path: Path) -> None:
    for day in (8, 9, 10):
        (tmp_path / "in").mkdir(exist_ok=True)
        write(tmp_path / f"in/{day}/a.parquet", [(1, day, 1, "a")])
        write(tmp_path / f"in/{day}/b.parquet", [(day, day, 1, "b")])
    meta = new_store(tmp_path / "store", units=2)
    append(meta, customers(tmp_path / "in"))
    assert len(advance_store(LocalRunner(), meta)) == 3
    assert rows(meta, "customers") == [(1, 10, 1, "a"), (10, 10, 1, "b")]


def test_a_key_in_two_files_of_a_delivery_holds_the_source(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store")
    (tmp_path / "in").mkdir()
    append(meta, customers(tmp_path / "in"))
    write(tmp_path / "in/1/a.parquet", [(1, 1, 1, "a")])
    advance_store(LocalRunner(), meta)
    write(tmp_path / "in/1/b.parquet", [(1, 1, 1, "b")])
    advance_store(LocalRunner(), meta)
    assert "more than one row with the key (1)" in held_sources(meta.read_latest().catalog)["customers"]
    assert rows(meta, "customers") == [(1, 1, 1, "a")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_delivery_sends_only_the_rows_that_differ(tmp_path: Path, kind: str) -> None:
    records: list[Record] = [(k, 0, k % 3, "a") for k in range(1_000)]
    (tmp_path / "in").mkdir()
    meta = new_store(tmp_path / "store", units=2)
    append(meta, customers(tmp_path / "in", kind), *VIEWS)
    write(tmp_path / "in/1/a.parquet", records)
    advance_store(LocalRunner(), meta)
    changed: list[Record] = [(5, 1, 7, "a"), *records[:5], *records[10:], (2_000, 0, 1, "a")]
    write(tmp_path / "in/2/a.parquet", changed[:300])
    write(tmp_path / "in/2/b.parquet", changed[300:])
    (summary,) = advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == sorted(changed, key=repr)
    assert summary.rows["every_row"].rows_out == 2 + 4 + 1


@pytest.mark.parametrize("kept_bytes", [0, 1 << 20])
@pytest.mark.parametrize("kind", ["key", "scope"])
def test_a_large_delivery_is_compared_in_parts(
    tmp_path: Path, kind: str, kept_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_leaf, "_CHANGED_AT_ONCE", 100)
    monkeypatch.setattr(vnode_parts, "DIVIDED_ROWS", 300)
    monkeypatch.setattr(vnode_parts, "ENCODED_BYTES", 4_000)
    monkeypatch.setattr(vnode_parts, "KEPT_BYTES", kept_bytes)
    put, cells = vnode_parts.PartCells.put_cell, list[int]()

    def count_cell(self: vnode_parts.PartCells, address: Address, cell: pa.RecordBatch) -> None:
        cells.append(address.input)
        put(self, address, cell)

    monkeypatch.setattr(vnode_parts.PartCells, "put_cell", count_cell)
    (tmp_path / "in").mkdir()
    meta = new_store(tmp_path / "store", units=2)
    append(meta, customers(tmp_path / "in", kind, delete_limit="30%"), *VIEWS)
    records: list[Record] = [(k, 0, k % 3, "a") for k in range(1_000)]
    write(tmp_path / "in/1/a.parquet", records)
    advance_store(LocalRunner(), meta)
    assert len(set(cells)) > 8  # the rest of 100 rows is not divided
    assert rows(meta, "every_row") == sorted(records, key=repr)
    changed: list[Record] = [(5, 1, 7, "a"), *records[:5], *records[10:], (2_000, 0, 1, "a")]
    write(tmp_path / "in/2/a.parquet", changed)
    (summary,) = advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == sorted(changed, key=repr)
    assert summary.rows["every_row"].rows_out == 2 + 4 + 1
    write(tmp_path / "in/3/a.parquet", [*changed, changed[-2]])
    advance_store(LocalRunner(), meta)
    key = f"{changed[-2][0]}" if kind == "key" else f"{changed[-2][0]}, 'a'"
    assert f"more than one row with the key ({key})" in held_sources(meta.read_latest().catalog)["customers"]
    write(tmp_path / "in/3/a.parquet", changed[:500])
    advance_store(LocalRunner(), meta)
    assert "30%" in held_sources(meta.read_latest().catalog)["customers"]
    write(tmp_path / "in/3/a.parquet", changed[:800])
    advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == sorted(changed[:800], key=repr)


def test_a_scope_keeps_the_rows_that_a_delivery_does_not_speak_of(tmp_path: Path) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    append(meta, customers(folder, "scope"))
    write(folder / "1/a.parquet", [(1, 1, 1, "CH"), (2, 1, 1, "CH"), (3, 1, 1, "DE")])
    advance_store(LocalRunner(), meta)
    write(folder / "3/a.parquet", [(2, 3, 3, "CH"), (9, 3, 3, "FR")])
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(2, 3, 3, "CH"), (3, 1, 1, "DE"), (9, 3, 3, "FR")]
    write(folder / "2/a.parquet", [(7, 2, 2, "CH"), (8, 2, 2, "DE")])  # late for CH, new for DE
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(2, 3, 3, "CH"), (8, 2, 2, "DE"), (9, 3, 3, "FR")]
    assert late_changes(meta) == 1


def test_a_row_may_move_to_another_scope(tmp_path: Path) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    append(meta, CreateSource("customers", "parquet", FIELDS, customers(folder, "scope").options, keyed=KeyedBy((0,))))
    for day, records in enumerate([[(1, 1, 1, "CH"), (2, 1, 1, "CH")], [(1, 2, 2, "DE")], [(2, 3, 3, "CH")]]):
        write(folder / f"{day}/a.parquet", records)  # type: ignore[arg-type]
        advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(1, 2, 2, "DE"), (2, 3, 3, "CH")]


def test_a_late_delivery_does_not_take_back_a_row_that_a_newer_one_has_moved(tmp_path: Path) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    append(meta, CreateSource("customers", "parquet", FIELDS, customers(folder, "scope").options, keyed=KeyedBy((0,))))
    for day, scope in ((1, "CH"), (3, "DE"), (2, "CH")):
        write(folder / f"{day}/a.parquet", [(1, day, day, scope), (day + 10, 1, 1, scope)])
        advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(1, 3, 3, "DE"), (12, 1, 1, "CH"), (13, 1, 1, "DE")]
    assert late_changes(meta) == 1


def test_a_row_that_a_newer_delivery_moved_stays_away_after_a_correction_of_another_one(tmp_path: Path) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    append(meta, CreateSource("customers", "parquet", FIELDS, customers(folder, "scope").options, keyed=KeyedBy((0,))))
    deliveries: list[list[Record]] = [[(1, 1, 1, "B")], [(1, 2, 2, "A"), (5, 1, 1, "A")], [(5, 2, 2, "A")]]
    for day, records in enumerate([*deliveries, [(9, 1, 1, "C")]]):
        write(folder / f"{day}/a.parquet", records)
        advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(5, 2, 2, "A"), (9, 1, 1, "C")]
    write(folder / "3/a.parquet", [(9, 1, 2, "C")])
    restate(meta, "customers", folder / "3/a.parquet")
    assert rows(meta, "customers") == [(5, 2, 2, "A"), (9, 1, 2, "C")]


def test_rows_of_a_delivery_that_counts_again_have_ids_of_their_own(tmp_path: Path) -> None:
    """A row of the newest delivery has the id of another row of the delivery before, and equals a third one of it."""
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    append(meta, customers(folder, "no key"), *VIEWS)
    a, b, c, d = ((k, 1, 1, "A") for k in range(4))
    for day, records in ((1, [a, b, d]), (2, [a, c])):
        write(folder / f"{day}/a.parquet", records)
        advance_store(LocalRunner(), meta)
    write(folder / "2/a.parquet", [d, c])  # d takes the place and the id of a
    restate(meta, "customers", folder / "2/a.parquet")
    restate(meta, "customers", folder / "2/a.parquet", gone=True)
    assert rows(meta, "every_row") == [a, b, d]
    (folder / "2/a.parquet").unlink()
    write(folder / "3/a.parquet", [b, b, d])  # takes the rows of the first delivery back
    advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == [b, b, d]


def test_a_withdrawn_delivery_does_not_return_when_a_newer_one_is_withdrawn(tmp_path: Path) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    append(meta, customers(folder, "no key"), *VIEWS)
    for day in (1, 2, 3):
        write(folder / f"{day}/a.parquet", [(day, 1, 1, "A")])
        advance_store(LocalRunner(), meta)
        if day > 1:  # the file stays
            restate(meta, "customers", folder / f"{day}/a.parquet", gone=True)
    assert rows(meta, "every_row") == [(1, 1, 1, "A")]


@pytest.mark.parametrize("kind", ["scope", "no key"])
def test_a_delivery_is_read_again_with_the_options_of_its_first_reading(tmp_path: Path, kind: str) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    parquet = customers(folder, kind, path="{day}/*.csv", header="true", sep=",")
    source = CreateSource("customers", "csv", FIELDS, parquet.options, keyed=parquet.keyed)
    for day, sep in ((1, ","), (2, ";")):
        (folder / str(day)).mkdir(parents=True)
        (folder / f"{day}/a.csv").write_text(sep.join("idnvs").replace(f"i{sep}d", "id") + f"\n{sep.join('111A')}\n")
    (folder / "2/a.csv").rename(tmp_path / "2.csv")
    append(meta, source, *VIEWS)
    advance_store(LocalRunner(), meta)
    append(meta, SetSourceOptions("customers", source.options, source.options | {"sep": ";"}))
    advance_store(LocalRunner(), meta)
    (tmp_path / "2.csv").rename(folder / "2/a.csv")
    advance_store(LocalRunner(), meta)
    restate(meta, "customers", folder / "2/a.csv", gone=True)
    assert rows(meta, "every_row") == [(1, 1, 1, "A")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_is_withdrawn_and_added_again_has_the_rows_of_the_newest_delivery(
    tmp_path: Path, kind: str
) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    for day in (1, 2):
        write(folder / f"{day}/a.parquet", [(day, 1, 1, "A"), (7, day, 1, "A")])
    append(meta, customers(folder, kind), *VIEWS)
    advance_store(LocalRunner(), meta)
    there = rows(meta, "every_row")
    append(meta, Drop(RelationKind.SOURCE, "customers", cascade=True))
    advance_store(LocalRunner(), meta)
    append(meta, customers(folder, kind), *VIEWS)
    advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == there == [(2, 1, 1, "A"), (7, 2, 1, "A")]


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_killed_at_any_request_takes_each_delivery_exactly_once(tmp_path: Path, kind: str) -> None:
    """Two deliveries and a late one; then the runs of two other processes."""
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    append(meta, customers(folder, kind), *VIEWS)
    write(folder / "2/a.parquet", [(1, 1, 1, "A"), (2, 1, 1, "A")])
    advance_store(LocalRunner(), meta)
    write(folder / "9/a.parquet", [(1, 9, 1, "A"), (3, 9, 1, "A")])
    write(folder / "10/a.parquet", [(1, 10, 1, "A")])
    write(folder / "10/b.parquet", [(4, 10, 1, "A")])
    write(folder / "1/a.parquet", [(5, 1, 1, "A")])

    def run(store: MetaStore) -> None:
        advance_store(LocalRunner(), store)

    calls: list[tuple[str, str]] = []
    for copy in stores_after_deaths(tmp_path / "store", run, calls):
        again, other = (open_store(copy, name) for name in ("again", "other"))
        advance_store(LocalRunner(), again)
        assert advance_store(LocalRunner(), other) == []
        assert rows(other, "every_row") == [(1, 10, 1, "A"), (4, 10, 1, "A")]
        assert rows(other, "by_value") == [(1, 2, 10)]
    assert len([name for name, _ in calls if name == "put_if_absent"]) >= 6


@pytest.mark.parametrize("kind", KINDS)
def test_two_runs_at_once_take_each_delivery_once(tmp_path: Path, kind: str) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    append(meta, customers(folder, kind), *VIEWS)
    for day in (1, 2, 3):
        write(folder / f"{day}/a.parquet", [(1, day, 1, "A"), (day + 5, day, 1, "A")])
    run_twice_at_once(tmp_path / "store")
    advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == [(1, 3, 1, "A"), (8, 3, 1, "A")]
    assert rows(meta, "by_value") == [(1, 2, 3)]


def test_names_are_in_natural_order() -> None:
    names = [
        "1.json",
        "9.json",
        "10.json",
        "010.json",
        "a",
        "a-1",
        "a1",
        "a1b",
        "a2",
        "a10",
        "b_2026-01-09",
        "b_2026-01-10",
    ]
    assert sorted(random.Random(1).sample(names, len(names)), key=natural_order) == [
        *(
            "1.json",
            "9.json",
            "010.json",
            "10.json",
            "a",
            "a-1",
            "a1",
            "a1b",
            "a2",
            "a10",
            "b_2026-01-09",
            "b_2026-01-10",
        )
    ]


@pytest.mark.parametrize(
    ("path", "done", "file", "name", "marker"),
    [
        ("", "", "x/a.parquet", "x/a.parquet", ""),
        ("{date}", "", "2026-01-01/a.parquet", "2026-01-01", ""),
        ("{date}", "_OK", "2026-01-01/a.parquet", "2026-01-01", "2026-01-01/_OK"),
        ("{date}/*/*.csv", "_OK", "2026/de/a.csv", "2026", "2026/_OK"),
        ("x_{date}_{part}.csv", "", "x_2026-01-01_7.csv", "2026-01-01/7", ""),
        ("x_{date}_*.csv", "OK", "x_2026-01-01_7.csv", "2026-01-01", "OK"),
        ("{start:%Y/%m}/*.csv", "_OK", "2026/01/a.csv", "2026/01", "2026/01/_OK"),
        ("**/{date}/*.csv", "_OK", "x/y/1/a.csv", "1", "x/y/1/_OK"),
        ("*", "_OK", "2026-01-01/a.csv", "2026-01-01", "2026-01-01/_OK"),
    ],
)
def test_files_form_deliveries(tmp_path: Path, path: str, done: str, file: str, name: str, marker: str) -> None:
    deliveries = deliveries_of(
        customers(tmp_path, path=path, **({"snapshot_done": done} if done else {})), scoped=False
    )
    assert deliveries.name_of(f"{tmp_path}/{file}") == name
    if done:
        assert deliveries.marker_path(f"{tmp_path}/{file}") == f"{tmp_path}/{marker}"


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("key", {"snapshot_done": "a/b"}, "expected the name of a file in the folder of a delivery"),
        ("key", {"snapshot_done": ""}, "expected the name of a file in the folder of a delivery"),
        ("key", {"snapshot_scope": "x"}, "'x' is no column of it"),
        ("no key", {"snapshot_scope": "s"}, "the option needs rows with a PRIMARY KEY"),
        ("no key", {"retain": "none"}, "the rows of the delivery before are read again"),
        ("no key", {"delete_when": "true"}, "the newest delivery alone decides the rows"),
        ("key", {"changes": "upsert", "snapshot_scope": "s"}, "changes must be 'snapshot'"),
    ],
)
def test_an_option_without_meaning_is_refused(kind: str, options: dict[str, str], reason: str) -> None:
    source = customers(Path("/data"), kind, **options)
    with pytest.raises(BadOptionError, match=re.escape(reason)):
        reader_of(source).check(source)


def test_an_ordinary_source_has_no_deliveries() -> None:
    assert deliveries_in(customers(Path("/data"), changes="upsert")) is None


def test_a_delivery_that_an_undo_leaves_out_does_not_return(tmp_path: Path) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    append(meta, customers(folder, "no key"), *VIEWS)
    for day in (1, 2):
        write(folder / f"{day}/a.parquet", [(day, 1, 1, "A")])
        advance_store(LocalRunner(), meta)
    before = meta.read_latest().epochs[-2]
    run_epoch(LocalRunner(), meta, inject_undo(meta, before, keeps_input=True, run={}))
    assert rows(meta, "every_row") == [(1, 1, 1, "A")]
    write(folder / "3/a.parquet", [(3, 1, 1, "A")])
    advance_store(LocalRunner(), meta)
    restate(meta, "customers", folder / "3/a.parquet", gone=True)
    assert rows(meta, "every_row") == [(1, 1, 1, "A")]


def replace_file(meta: MetaStore, path: Path, by: Path) -> None:
    Restating(meta, "customers", Restated(str(path), by=str(by))).begin_restating()
    advance_store(LocalRunner(), meta)


@pytest.mark.parametrize("kind", ["key", "no key"])
def test_a_file_that_replaces_another_one_is_of_the_same_delivery(tmp_path: Path, kind: str) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    append(meta, customers(folder, kind, path="dump_{day}.parquet"), *VIEWS)
    for day in (1, 2):
        write(folder / f"dump_{day}.parquet", [(day, 1, 1, "A")])
        advance_store(LocalRunner(), meta)
    for name in ("dump_9", "corrected_2"):
        write(tmp_path / f"fixes/{name}.parquet", [(8, 1, 1, "A")])
        with pytest.raises(CannotRestateError, match="has another place than"):
            replace_file(meta, folder / "dump_2.parquet", tmp_path / f"fixes/{name}.parquet")
    write(tmp_path / "fixes/dump_2.parquet", [(9, 1, 1, "A")])
    replace_file(meta, folder / "dump_2.parquet", tmp_path / "fixes/dump_2.parquet")
    assert rows(meta, "every_row") == [(9, 1, 1, "A")]


def test_a_file_of_changes_that_replaces_another_one_has_its_name(tmp_path: Path) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    source = customers(folder, path="*.parquet")
    options = {**source.options, "changes": "upsert"}
    append(meta, CreateSource("customers", "parquet", FIELDS, options, keyed=KeyedBy((0,))), *VIEWS)
    for n in (1, 2):
        write(folder / f"{n}.parquet", [(1, 1, n, "A"), (n + 5, 1, n, "A")])
        advance_store(LocalRunner(), meta)
    write(tmp_path / "fixes/fixed.parquet", [(1, 1, 7, "A")])
    with pytest.raises(CannotRestateError, match="the names of its files order its changes"):
        replace_file(meta, folder / "1.parquet", tmp_path / "fixes/fixed.parquet")
    write(tmp_path / "fixes/1.parquet", [(1, 1, 7, "A")])
    replace_file(meta, folder / "1.parquet", tmp_path / "fixes/1.parquet")
    assert rows(meta, "every_row") == [(1, 1, 2, "A"), (7, 1, 2, "A")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left_out", ["held", "in the barrier", "deleted"])
def test_a_delivery_that_is_left_out_leaves_the_rows_before(tmp_path: Path, kind: str, left_out: str) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    folder.mkdir()
    append(meta, customers(folder, kind), *VIEWS)
    write(folder / "1/a.parquet", [(1, 1, 1, "A")])
    advance_store(LocalRunner(), meta)
    second = folder / "2/a.parquet"
    write(second, [(2, 1, 1, "A")])
    if left_out == "held":
        second.write_bytes(b"no Parquet file")
        advance_store(LocalRunner(), meta)
        assert held_sources(meta.read_latest().catalog)
    else:
        barrier = take_in(meta)
        assert barrier is not None
    if left_out == "deleted":
        second.unlink()
        assert take_corrected(meta, barrier.barrier, set())
    else:
        abandon_barrier(meta, Detour(skip_files=(str(second),)))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == [(1, 1, 1, "A")]
    write(folder / "3/a.parquet", [(3, 1, 1, "A")])
    advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == [(3, 1, 1, "A")]
    restate(meta, "customers", folder / "3/a.parquet", gone=True)
    assert rows(meta, "every_row") == [(1, 1, 1, "A")]
