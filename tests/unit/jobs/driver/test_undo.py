"""The return to an earlier epoch, against a model over Python values: rows, changes, input, relations, and kills."""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import FaultyObjectStore, Killed
from tests.support.jobs.driver.embedded import append, epoch, new_store, open_store, rows
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.undo import CannotUndoError, UndoInputError, inject_undo
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import AggCall, AggFunction, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import (
    AddColumns,
    AlterTable,
    CreateSchema,
    CreateSource,
    CreateTable,
    CreateView,
    Drop,
    DropSchema,
    RecordZone,
    Transaction,
)
from tussock.jobs.operations.compaction import compact
from tussock.jobs.operations.store import open_store as open_pipeline_store
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.statements.statement_writer import StatementWriter
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.hummock.row_shape import value_bytes
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.errors import EpochExpiredError, EpochNotCommittedError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.progress import no_progress
from tussock.statestore.zones import ZoneRules

K, G, A = Field("k", "int"), Field("g", "int"), Field("a", "int")


def with_columns(count: int) -> CreateTable:
    """The table t with this many added columns."""
    return CreateTable("t", (K, G, A, *(Field(f"b{i}", "int") for i in range(count))), (0,))


TABLE = with_columns(0)


def sums(of: int) -> CreateView:
    """Per group, a count and the sum of column `of` of t."""
    scan = Scan("t", (1, of), (G, (K, G, A)[of]))
    calls = AggCall(AggFunction.COUNT, "bigint", ()), AggCall(AggFunction.SUM, "bigint", (Column(1, "int"),), "ANSI")
    fields = G, Field("n", "bigint"), Field("total", "bigint")
    return CreateView("sums", f"SELECT {of}", Aggregate(scan, (Column(0, "int"),), calls, fields))


def all_sums() -> CreateView:
    """The sum of all sums: a reader of another view."""
    scan = Scan("sums", (2,), (Field("total", "bigint"),))
    calls = AggCall(AggFunction.COUNT, "bigint", ()), AggCall(AggFunction.SUM, "bigint", (Column(0, "bigint"),), "ANSI")
    fields = Field("n", "bigint"), Field("total", "bigint")
    return CreateView("all_sums", "SELECT …", Aggregate(scan, (), calls, fields))


def counted(folder: Path) -> tuple[CreateSource, CreateView]:
    calls, fields = (AggCall(AggFunction.COUNT, "bigint", ()),), (A, Field("n", "bigint"))
    plan = Aggregate(Scan("s", (0,), (A,)), (Column(0, "int"),), calls, fields)
    return CreateSource("s", "parquet", (A,), {"path": str(folder)}), CreateView("counted", "…", plan)


@dataclass(frozen=True)
class World:
    """The state of an epoch.

    `table`: group, amount, and the values of added columns, by key. `defaults`: of the added columns. `of`: the column
    that `sums` adds; 0: there is no view.
    """

    table: dict[int, tuple[int, ...]] = field(default_factory=dict)
    defaults: tuple[int, ...] = ()
    of: int = 2
    has_reader: bool = True
    read: frozenset[int] = frozenset()  # numbers of the files whose rows count
    left_out: frozenset[int] = frozenset()

    def rows(self) -> dict[str, list[tuple[object, ...]]]:
        groups: dict[int, list[int]] = defaultdict(list)
        for k, (g, a, *_) in self.table.items():
            groups[g].append((k, g, a)[self.of])
        values = [n % 3 for n in self.read]
        of_views: dict[str, list[tuple[object, ...]]] = {
            "t": [(k, *values) for k, values in self.table.items()],
            "counted": [(v, values.count(v)) for v in set(values)],
        }
        if self.of:
            of_views["sums"] = [(g, len(of), sum(of)) for g, of in groups.items()]
        if self.has_reader:
            totals = [sum(of) for of in groups.values()]
            of_views["all_sums"] = [(len(totals), sum(totals) if totals else None)]
        return {name: sorted(found, key=repr) for name, found in of_views.items()}


class Pipeline:
    """A store and the world of each epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files, self.file_count = folder, folder / "files", 0
        self.files.mkdir()
        self.meta = new_store(folder / "store")
        append(self.meta, TABLE, sums(2), all_sums(), *counted(self.files))
        self.worlds: dict[int, World] = {}
        self.world = World()
        self.run_epoch()

    def run_epoch(self) -> None:
        self.worlds[epoch(self.meta).epoch] = self.world

    def insert(self, *values: tuple[int, int, int]) -> None:
        """Insert rows; their values in added columns are their keys."""
        rows = [(*row, *(row[0] for _ in self.world.defaults)) for row in values]
        names = [f.name for f in with_columns(len(self.world.defaults)).fields]
        given = pa.table({name: pa.array([row[i] for row in rows], pa.int32()) for i, name in enumerate(names)})
        append(self.meta, StatementWriter(self.meta).store_insert("t", given))
        self.world = replace(self.world, table={**self.world.table, **{row[0]: row[1:] for row in rows}})

    def add_column(self, default: int) -> None:
        """Add a column to the table. Another one may have had its name."""
        before, count = self.world, len(self.world.defaults)
        held = value_bytes(pa.array([default], pa.int32()))
        append(self.meta, AddColumns(with_columns(count), with_columns(count + 1), (held,)))
        table = {k: (*values, default) for k, values in before.table.items()}
        self.world = replace(before, table=table, defaults=(*before.defaults, default))

    def add_file(self) -> None:
        rows_of_file = pa.table({"a": pa.array([self.file_count % 3], pa.int32())})
        pq.write_table(rows_of_file, self.files / f"{self.file_count}.parquet")
        self.file_count += 1

    def take_files(self) -> None:
        """Note that an epoch takes all files that are not left out."""
        self.world = replace(self.world, read=frozenset(range(self.file_count)) - self.world.left_out)

    def replace_view(self) -> None:
        of = 3 - self.world.of
        views = (sums(of), all_sums()) if self.world.has_reader else (sums(of),)
        append(self.meta, Transaction(tuple(msgspec.structs.replace(view, or_replace=True) for view in views)))
        self.world = replace(self.world, of=of)

    def drop_reader(self) -> None:
        append(self.meta, Drop(RelationKind.VIEW, "all_sums"))
        self.world = replace(self.world, has_reader=False)

    def undone(self, to: int, *, keeps: bool) -> World:
        before = self.worlds[to]
        taken_since = (self.world.read | self.world.left_out) - before.read
        return replace(before, left_out=taken_since if keeps else before.left_out)

    def undo(self, to: int, *, keeps: bool) -> int:
        barrier = inject_undo(self.meta, to, keeps_input=keeps, run={})
        run_epoch(LocalRunner(), self.meta, barrier)
        self.world = self.undone(to, keeps=keeps)
        self.worlds[barrier.epoch] = self.world
        return barrier.epoch

    def assert_agrees(self) -> None:
        """Check the committed epoch, and the counts of its version."""
        expected, version = self.world.rows(), self.meta.read_latest()
        live = {r.name: r for r in version.catalog.live_relations()}
        assert live.keys() - {"s"} == expected.keys()
        for name, wanted in expected.items():
            assert rows(self.meta, name) == wanted, name
            assert version.rows.get(live[name].id, len(wanted)) == len(wanted), name


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(3, 80))]


@pytest.mark.parametrize("seed", SEEDS)
def test_after_any_undo_the_store_has_the_old_rows_and_goes_on_from_them(pipeline: Pipeline, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(14):
        action = rng.choice(["insert", "insert", "file", "replace", "drop", "column", "undo", "undo", "compact"])
        if action == "undo" and len(pipeline.worlds) > 1:
            to = rng.choice([e for e in pipeline.worlds if e != max(pipeline.worlds)])
            pipeline.undo(to, keeps=rng.random() < 0.5)
        elif action == "compact":
            compact(
                open_pipeline_store(str(pipeline.folder / "store")), full=True, on_spark=False, progress=no_progress
            )
        else:
            if action == "replace":
                pipeline.replace_view()
            elif action == "drop" and pipeline.world.has_reader:
                pipeline.drop_reader()
            elif action == "file":
                pipeline.add_file()
            elif action == "column":
                pipeline.add_column(rng.randrange(100, 200))
            pipeline.insert(*((rng.randrange(9), rng.randrange(3), rng.randrange(100)) for _ in range(3)))
            pipeline.take_files()
            pipeline.run_epoch()
        pipeline.assert_agrees()
    stored = StoredRows(pipeline.meta)
    for at, world in pipeline.worlds.items():  # the epochs before an undo keep their rows
        for name, wanted in world.rows().items():
            width = len(wanted[0]) if wanted else 0  # columns that were added later have their default
            found = [tuple(row.values())[:width] for row in stored.read(name, epoch=at).to_pylist()]
            assert sorted(found, key=repr) == wanted, (name, at)


def test_readers_of_changes_get_the_reverse_difference(pipeline: Pipeline) -> None:
    pipeline.insert((1, 1, 10), (2, 2, 20))
    pipeline.run_epoch()
    before = max(pipeline.worlds)
    pipeline.insert((1, 1, 11), (3, 3, 30))
    pipeline.run_epoch()
    wrong = max(pipeline.worlds)
    after = pipeline.undo(before, keeps=False)
    stored = StoredRows(pipeline.meta)
    changes = [tuple(row.values()) for row in stored.changes("t", wrong, after).to_pylist()]
    assert sorted(changes) == [(1, 1, 10, "insert"), (1, 1, 11, "delete"), (3, 3, 30, "delete")]
    assert stored.changes("sums", before, after).num_rows == 0
    version = pipeline.meta.read_latest()
    assert version.moment == pipeline.meta.version_when(before).moment < pipeline.meta.version_when(wrong).moment


def test_the_choice_about_input_is_required_where_input_was_taken(pipeline: Pipeline) -> None:
    before = max(pipeline.worlds)
    pipeline.add_file()
    pipeline.take_files()
    pipeline.run_epoch()
    with pytest.raises(UndoInputError, match="the sources s have taken input"):
        inject_undo(pipeline.meta, before, keeps_input=None, run={})
    again = pipeline.undo(before, keeps=False)
    pipeline.take_files()
    pipeline.run_epoch()
    pipeline.assert_agrees()
    pipeline.undo(again, keeps=True)
    assert inject_barrier(pipeline.meta) is None
    pipeline.insert((1, 1, 1))
    pipeline.run_epoch()
    pipeline.assert_agrees()


def test_what_cannot_be_undone_is_refused_and_changes_nothing(pipeline: Pipeline) -> None:
    first = max(pipeline.worlds)
    with pytest.raises(CannotUndoError, match="it is the newest epoch"):
        inject_undo(pipeline.meta, first, keeps_input=None, run={})
    pipeline.insert((1, 1, 1))
    with pytest.raises(CannotUndoError, match="a statement waits"):
        inject_undo(pipeline.meta, 0, keeps_input=None, run={})
    pipeline.run_epoch()
    with pytest.raises(EpochNotCommittedError):
        inject_undo(pipeline.meta, 1 << 62, keeps_input=None, run={})
    pipeline.add_file()
    barrier = inject_barrier(pipeline.meta)
    assert barrier is not None
    with pytest.raises(CannotUndoError, match="an epoch has begun"):
        inject_undo(pipeline.meta, first, keeps_input=None, run={})
    pipeline.take_files()
    run_epoch(LocalRunner(), pipeline.meta, barrier)
    pipeline.worlds[barrier.epoch] = pipeline.world
    pipeline.meta.publish(barrier.epoch)
    pipeline.meta.raise_floor(barrier.epoch)
    with pytest.raises(EpochExpiredError):
        inject_undo(pipeline.meta, first, keeps_input=True, run={})
    pipeline.assert_agrees()


def test_an_undo_takes_a_column_back_and_another_undo_brings_it_again(pipeline: Pipeline) -> None:
    pipeline.insert((1, 1, 1), (2, 2, 2))
    pipeline.run_epoch()
    narrow = max(pipeline.worlds)
    pipeline.add_column(100)
    pipeline.insert((2, 2, 3), (3, 3, 3))
    pipeline.run_epoch()
    wide = max(pipeline.worlds)
    without = pipeline.undo(narrow, keeps=False)
    assert rows(pipeline.meta, "t") == [(1, 1, 1), (2, 2, 2)]
    pipeline.add_column(200)
    pipeline.run_epoch()
    assert rows(pipeline.meta, "t") == [(1, 1, 1, 200), (2, 2, 2, 200)]
    pipeline.undo(wide, keeps=False)
    assert rows(pipeline.meta, "t") == [(1, 1, 1, 100), (2, 2, 3, 2), (3, 3, 3, 3)]
    pipeline.undo(without, keeps=False)
    pipeline.assert_agrees()


def test_compaction_keeps_the_columns_of_all_readable_epochs(pipeline: Pipeline) -> None:
    pipeline.insert((1, 1, 1))
    pipeline.run_epoch()
    narrow = max(pipeline.worlds)
    pipeline.add_column(100)
    pipeline.insert((2, 2, 2))
    pipeline.run_epoch()
    wide = max(pipeline.worlds)
    pipeline.undo(narrow, keeps=False)
    pipeline.add_column(200)
    pipeline.insert((3, 3, 3))
    pipeline.run_epoch()
    compact(open_pipeline_store(str(pipeline.folder / "store")), full=True, on_spark=False, progress=no_progress)
    pipeline.assert_agrees()
    assert StoredRows(pipeline.meta).read("t", epoch=wide).sort_by("k").to_pylist() == [
        {"k": 1, "g": 1, "a": 1, "b0": 100},
        {"k": 2, "g": 2, "a": 2, "b0": 2},
    ]


def test_compaction_goes_on_when_the_last_epoch_with_a_removed_column_has_ended(pipeline: Pipeline) -> None:
    pipeline.insert((1, 1, 1))
    pipeline.run_epoch()
    narrow = max(pipeline.worlds)
    pipeline.add_column(100)
    pipeline.insert((2, 2, 2))
    pipeline.run_epoch()
    undone = pipeline.undo(narrow, keeps=False)
    pipeline.insert((3, 3, 3))
    pipeline.run_epoch()
    pipeline.meta.publish(max(pipeline.worlds))
    version = pipeline.meta.raise_floor(undone + 1)
    assert [r.name for r in version.catalog.relations].count("t") == 1
    compact(open_pipeline_store(str(pipeline.folder / "store")), full=True, on_spark=False, progress=no_progress)
    pipeline.assert_agrees()


def test_an_undo_takes_the_new_name_of_a_column_back(pipeline: Pipeline) -> None:
    before = max(pipeline.worlds)
    append(pipeline.meta, AlterTable(TABLE, CreateTable("t", (K, G, Field("b", "int")), (0,))))
    epoch(pipeline.meta)
    run_epoch(LocalRunner(), pipeline.meta, inject_undo(pipeline.meta, before, keeps_input=None, run={}))
    (table,) = [r for r in pipeline.meta.read_latest().catalog.live_relations() if r.name == "t"]
    assert [column.name for column in table.columns] == ["k", "g", "a"]
    pipeline.insert((1, 1, 1))
    pipeline.run_epoch()
    pipeline.assert_agrees()


def test_an_undo_takes_schemas_and_rules_of_time_zones_back(pipeline: Pipeline) -> None:
    rules = [ZoneRules("Mars/Base", digest=str(hours), origin="a test", first=hours * 3600) for hours in (1, 2)]
    append(pipeline.meta, CreateSchema("old"), RecordZone(rules[0]))
    pipeline.run_epoch()
    before = max(pipeline.worlds)
    moved = RecordZone(rules[1], before=rules[0].digest)
    append(pipeline.meta, DropSchema("old"), CreateSchema("new"), moved)
    epoch(pipeline.meta)
    run_epoch(LocalRunner(), pipeline.meta, inject_undo(pipeline.meta, before, keeps_input=None, run={}))
    catalog = pipeline.meta.read_latest().catalog
    assert catalog.schemas == ("old",)
    assert catalog.zones == (rules[0],)


def test_an_open_undo_keeps_its_epoch_readable_and_can_be_given_up(pipeline: Pipeline) -> None:
    before = max(pipeline.worlds)
    for k in range(2):
        pipeline.insert((k, 1, 1))
        pipeline.run_epoch()
    pipeline.meta.publish(max(pipeline.worlds))
    inject_undo(pipeline.meta, before, keeps_input=None, run={})
    assert pipeline.meta.raise_floor(max(pipeline.worlds)).min_readable_epoch <= before
    run_epoch(LocalRunner(), pipeline.meta, abandon_barrier(pipeline.meta, Detour(take_log=True)))
    pipeline.assert_agrees()


def test_an_undo_whose_epoch_expired_while_it_began_changes_nothing_and_can_be_given_up(pipeline: Pipeline) -> None:
    """A vacuum found no open barrier, the undo began, and then the vacuum raised the floor and a compaction ran."""
    before = max(pipeline.worlds)
    for k in range(2):
        pipeline.insert((k, 1, 1))
        pipeline.run_epoch()
    pipeline.meta.publish(max(pipeline.worlds))
    vacuum = open_pipeline_store(str(pipeline.folder / "store")).meta
    with patch.object(type(vacuum), "open_barrier", return_value=None):
        barrier = inject_undo(pipeline.meta, before, keeps_input=None, run={})
        vacuum.raise_floor(max(pipeline.worlds))
    compact(open_pipeline_store(str(pipeline.folder / "store")), full=True, on_spark=False, progress=no_progress)
    for _ in range(2):
        with pytest.raises(CannotUndoError, match=r"it expired meanwhile.*`tussock barrier abandon --take-log`"):
            run_epoch(LocalRunner(), open_pipeline_store(str(pipeline.folder / "store")).meta, barrier)
    run_epoch(LocalRunner(), pipeline.meta, abandon_barrier(pipeline.meta, Detour(take_log=True)))
    assert {name: rows(pipeline.meta, name) for name in ("t",)} == {"t": [(0, 1, 1), (1, 1, 1)]}


def killed_runs(pipeline: Pipeline, to: int) -> Iterator[MetaStore]:
    """The store after an undo was killed at each of its requests, each time in a new process."""
    at = 0
    while True:
        faulty = FaultyObjectStore(open_store(pipeline.folder / "store").objects)
        meta = MetaStore(faulty, f"killed {at}", open_store(pipeline.folder / "store")._clock_ms)
        faulty.kill(at)
        try:
            run_epoch(LocalRunner(), meta, inject_undo(meta, to, keeps_input=False, run={}))
        except Killed:
            yield open_store(pipeline.folder / "store", f"after {at}")
            at += 1
            continue
        return


def test_an_undo_that_is_killed_anywhere_has_happened_or_not(pipeline: Pipeline) -> None:
    pipeline.insert((1, 1, 10))
    pipeline.run_epoch()
    before = max(pipeline.worlds)
    pipeline.replace_view()
    pipeline.add_file()
    pipeline.insert((1, 1, 11), (3, 3, 30))
    pipeline.take_files()
    pipeline.run_epoch()
    newest, undone, kills = pipeline.world, pipeline.undone(before, keeps=False), 0
    for meta in killed_runs(pipeline, before):
        pipeline.meta, kills = meta, kills + 1
        version = pipeline.meta.read_latest()
        pipeline.world = newest if version.epoch in pipeline.worlds else undone
        pipeline.assert_agrees()
        if pipeline.world is undone:
            break
    pipeline.meta = open_store(pipeline.folder / "store", "last")
    pipeline.world = undone
    if (barrier := pipeline.meta.open_barrier()) is not None:
        run_epoch(LocalRunner(), pipeline.meta, barrier)
    pipeline.assert_agrees()
    assert kills > 20
