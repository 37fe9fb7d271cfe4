"""Branches that follow their parent, epoch by epoch. No Spark.

The expected rows are computed from the rows of the tables and files by DuckDB.
"""

import itertools
import random
from collections.abc import Mapping
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import FaultyObjectStore, Killed
from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, open_store, rows
from tests.support.jobs.plan.catalogs import counted, joined, scan, table, view
from tests.unit.jobs.driver.test_builds import replacing
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.follow import BranchConflictError
from tussock.jobs.driver.epoch import advance_store, epochs_of_branch
from tussock.jobs.driver.merge import CannotMergeError, merge_branch, plan_merge
from tussock.jobs.driver.runner import LevelRunner, LocalRunner
from tussock.jobs.logical.nodes import Call, Column, Field, Filter, Literal, Project, Scan
from tussock.jobs.logical.statements import (
    AddColumns,
    CreateSchema,
    CreateSource,
    CreateTable,
    CreateView,
    Delete,
    Drop,
    Insert,
    SetSourceColumns,
    Transaction,
)
from tussock.jobs.reading.reader import scan_relation
from tussock.jobs.settings.process import open_meta
from tussock.jobs.statements.statement_writer import FollowingBranchError, StatementWriter
from tussock.jobs.task.hot_key import FEWEST_ROWS
from tussock.jobs.trouble.row_names import ViewRowError
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.errors import TussockError
from tussock.statestore.hummock.row_shape import value_bytes
from tussock.statestore.hummock.scrub import scrub_store
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.meta.barrier import BarrierPlan
from tussock.statestore.meta.branch import own_ids
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.delta import EpochCommitted
from tussock.statestore.meta.errors import BranchGoneError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.branch import BranchObjects

Row = tuple[int, int, int]
FIELDS = tuple(Field(name, "int") for name in "kga")
FILES = Scan("s", (0, 1, 2), FIELDS)

VIEWS = {
    "per_g": "SELECT g, count(*) AS n FROM t GROUP BY g",
    "per_n": "SELECT n, count(*) AS k FROM per_g GROUP BY n",
    "of_files": "SELECT g, count(*) AS n FROM s GROUP BY g",
    "pairs": "SELECT t.g, count(*) AS n FROM t JOIN s ON t.k = s.k GROUP BY t.g",
    "alone": "SELECT a, count(*) AS n FROM t GROUP BY a",
}
CHANGED = {
    **VIEWS,
    "per_g": "SELECT g, count(*) AS n FROM t WHERE a > 3 GROUP BY g",
    "of_files": "SELECT a, count(*) AS n FROM s GROUP BY a",
    "pairs": "SELECT t.a, count(*) AS n FROM t JOIN s ON t.k = s.k GROUP BY t.a",
}
#: The names in the store, by the names in VIEWS: in one schema, and in two schemas that share names.
ONE_SCHEMA = {name: name for name in ("t", "s", *VIEWS)}
TWO_SCHEMAS = {**ONE_SCHEMA, "s": "twin.t", "per_n": "twin.per_g", "pairs": "twin.of_files"}


def statements(names: Mapping[str, str] = ONE_SCHEMA) -> list[CreateView]:
    table, files = scan(names["t"]), Scan(names["s"], (0, 1, 2), FIELDS)
    per_g = Scan(names["per_g"], (0, 1), (Field("g", "int"), Field("n", "bigint")))
    return [
        view(names["per_g"], counted(table, 1)),
        view(names["per_n"], counted(per_g, 1)),
        view(names["of_files"], counted(files, 1)),
        view(names["pairs"], counted(joined(table, files, 0, 0), 1)),
        view(names["alone"], counted(table, 2)),
    ]


def changed_statements(names: Mapping[str, str] = ONE_SCHEMA) -> list[CreateView]:
    """The views that differ, and those that read them."""
    table, files = scan(names["t"]), Scan(names["s"], (0, 1, 2), FIELDS)
    over_three = Filter(table, Call("GreaterThan", "boolean", (Column(2, "int"), Literal(3, "int"))))
    per_g, per_n, of_files, pairs, _ = statements(names)
    return [
        msgspec.structs.replace(per_g, plan=counted(over_three, 1), sql="changed"),
        per_n,
        msgspec.structs.replace(of_files, plan=counted(files, 2), sql="changed"),
        msgspec.structs.replace(pairs, plan=counted(joined(table, files, 0, 0), 2), sql="changed"),
    ]


class Pair:
    """A parent that takes random input, and its rows."""

    def __init__(
        self, folder: Path, seed: int, runner: LevelRunner | None = None, names: Mapping[str, str] = ONE_SCHEMA
    ) -> None:
        """`runner`: of the parent's epochs; None: LocalRunner. `names`: ONE_SCHEMA or TWO_SCHEMAS."""
        self.folder, self.rng, self.runner, self.names = folder, random.Random(seed), runner, names
        self.parent = new_store(folder / "store")
        self.table: dict[int, Row] = {}
        self.files: list[Row] = []
        schemas = [] if names is ONE_SCHEMA else [CreateSchema("twin")]
        files = CreateSource(names["s"], "parquet", FIELDS, {"path": str(folder / "files")})
        append(self.parent, *schemas, table(names["t"]), files, *statements(names))
        self.take_input()

    def take_input(self) -> None:
        """An epoch of the parent with rows of the table, and mostly a file."""
        self.write_input()
        self.parent.publish(epoch(self.parent, self.runner).epoch)

    def write_input(self) -> None:
        """Input of the next epoch."""
        found = [self._row() for _ in range(self.rng.randint(1, 6))]
        self.table |= {row[0]: row for row in found}
        insert(self.parent, self.names["t"], *found)
        if not self.files or self.rng.random() < 0.7:
            read = [self._row() for _ in range(self.rng.randint(1, 5))]
            self.files += read
            columns = {n: pa.array([r[i] for r in read], pa.int32()) for i, n in enumerate("kga")}
            (self.folder / "files").mkdir(exist_ok=True)
            pq.write_table(pa.table(columns), self.folder / "files" / f"{len(self.files)}.parquet")

    def answers(self, views: dict[str, str]) -> dict[str, list[tuple[object, ...]]]:
        return self.answers_of(views, [*self.table.values()], self.files)

    def answers_of(
        self, views: dict[str, str], table: list[Row], files: list[Row]
    ) -> dict[str, list[tuple[object, ...]]]:
        """The rows of views over these rows of the table and the files."""
        with duckdb.connect() as db:
            for name, found in (("t", table), ("s", files)):
                columns = zip(*found, strict=True) if found else ((), (), ())
                db.register(name, pa.table([pa.array(c, pa.int32()) for c in columns], ["k", "g", "a"]))
            for name, sql in views.items():
                db.execute(f"CREATE TABLE {name} AS {sql}")
            return {n: sorted(db.execute(f"SELECT * FROM {n}").fetchall(), key=repr) for n in views}

    def _row(self) -> Row:
        return self.rng.randrange(30), self.rng.randrange(4), self.rng.randrange(8)


def follow(branch: MetaStore, runner: LevelRunner | None = None) -> int:
    return len(list(epochs_of_branch(runner or LocalRunner(), branch)))


def rows_at(meta: MetaStore, name: str, epoch: int) -> list[tuple[object, ...]]:
    """A relation's rows at a readable epoch, sorted."""
    version = meta.read_latest()
    (relation,) = [r for r in version.catalog.relations_at(epoch) if r.name == name]
    found = [*scan_relation(meta.objects, version, relation, epoch)]
    return sorted((row for part in found for row in zip(*(c.to_pylist() for c in part.columns), strict=True)), key=repr)


def stored(meta: MetaStore) -> dict[str, list[tuple[object, ...]]]:
    return {name: rows(meta, name) for name in VIEWS}


def committed_by(meta: MetaStore) -> dict[int, tuple[str, ...]]:
    """The SSTs of each epoch in the version log."""
    deltas = meta.read_deltas(1, meta.read_latest().id)
    changes = [delta.change for delta in deltas if isinstance(delta.change, EpochCommitted)]
    return {change.epoch: tuple(sst.name for sst in change.ssts) for change in changes}


def test_a_branch_without_changes_has_the_ssts_of_its_parent_at_each_of_fifty_epochs(tmp_path: Path) -> None:
    require_equal_while_following(Pair(tmp_path, seed=1), epochs=50)


def require_equal_while_following(pair: Pair, epochs: int) -> None:
    """Check that a branch without changes has the same SSTs at each epoch. The runner of the pair runs both."""
    branch = pair.parent.open_branch("b")
    for _ in range(epochs):
        pair.take_input()
        if pair.rng.random() < 0.1:
            compact_store(pair.parent)
            vacuum_store(pair.parent)
        assert follow(branch, pair.runner) == 1
        version, theirs = branch.read_latest(), pair.parent.read_latest()
        assert (version.epoch, version.rows, version.moment) == (theirs.epoch, theirs.rows, theirs.moment)
        assert version.catalog.relations == theirs.catalog.relations
        assert committed_by(branch)[version.epoch] == committed_by(pair.parent)[version.epoch]
    assert stored(branch) == stored(pair.parent) == pair.answers(VIEWS)
    assert not list(branch.objects.list("data/"))


@pytest.mark.parametrize("seed", range(3))
def test_a_branch_with_changed_views_equals_a_store_with_these_views_at_each_epoch(tmp_path: Path, seed: int) -> None:
    pair = Pair(tmp_path, seed)
    branch = pair.parent.open_branch("b")
    append(branch, replacing(*changed_statements()))
    assert follow(branch) == 1
    assert stored(branch) == pair.answers(CHANGED)
    for _ in range(6):
        for _ in range(pair.rng.choice([1, 1, 2])):
            pair.take_input()
        follow(branch)
        version = branch.read_latest()
        assert version.epoch == pair.parent.read_latest().epoch
        assert stored(branch) == pair.answers(CHANGED)
        assert stored(pair.parent) == pair.answers(VIEWS)
        tables = {s.table_id for sst in version.levels[0] if _is_own(branch, sst.name) for s in sst.sections}
        assert tables <= {*own_ids(version.catalog)}, "the branch stores rows of its own relations only"
        net = {r.name: version.rows[r.id] for r in version.catalog.live_relations() if r.id in version.rows}
        assert {name: net[name] for name in VIEWS if name in net} == {
            name: len(found) for name, found in pair.answers(CHANGED).items() if name in net
        }


def _is_own(branch: MetaStore, name: str) -> bool:
    assert isinstance(branch.objects, BranchObjects)
    return next(branch.objects.own.list(name), None) is not None


def test_a_killed_run_of_a_followed_epoch_is_finished_by_the_next(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=5)
    first = pair.parent.open_branch("b")
    append(first, replacing(*changed_statements()))
    follow(first)
    expected: list[str] = []
    number = 0
    while True:
        pair.take_input()
        parent = FaultyObjectStore(pair.parent.objects)
        meta = MetaStore(parent, f"run {number}", lambda: 1_700_000_000_000).branch("b")
        calls = len(parent.calls)
        parent.kill(number)
        try:
            follow(meta)
        except Killed:
            number += 7
        else:
            break
        assert calls
        again = open_store(tmp_path / "store", f"again {number}").branch("b")
        follow(again)
        assert stored(again) == pair.answers(CHANGED)
        expected.append(again.writer)
    assert len(expected) > 3


def test_changes_of_the_parents_catalog_are_taken_unless_the_branch_changed_the_same(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=6)
    branch = pair.parent.open_branch("b")
    append(branch, replacing(*changed_statements()))
    follow(branch)
    append(pair.parent, view("more", counted(scan("t"), 0)))
    pair.take_input()
    follow(branch)
    assert rows(branch, "more") == rows(pair.parent, "more")
    append(pair.parent, Drop(RelationKind.VIEW, "alone"))
    pair.take_input()
    follow(branch)
    assert "alone" not in {r.name for r in branch.read_latest().catalog.live_relations()}
    append(pair.parent, replacing(msgspec.structs.replace(statements()[2], plan=counted(FILES, 0), sql="theirs")))
    pair.take_input()
    with pytest.raises(BranchConflictError, match="have both changed or created 'of_files'"):
        follow(branch)


def above(least: int) -> CreateView:
    """The rows of the table without a key whose n is greater."""
    greater = Call("GreaterThan", "boolean", (Column(0, "int"), Literal(least, "int")))
    return CreateView(
        "few", f"SELECT n FROM e WHERE n > {least}", Filter(Scan("e", (0,), (Field("n", "int"),)), greater)
    )


def test_a_new_column_of_a_parents_table_leaves_the_changed_views_that_read_it(tmp_path: Path) -> None:
    parent = new_store(tmp_path / "store")
    bags = [CreateTable("e", tuple(Field(name, "int") for name in names), ()) for names in ("n", "nb", "nbc")]

    def insert_rows(width: int, *values: int) -> None:
        given = pa.table({name: pa.array(values, pa.int32()) for name in "nbc"[:width]})
        append(parent, StatementWriter(parent).store_insert("e", given))
        epoch(parent)

    append(parent, bags[0], above(0))
    insert_rows(1, 1, 5, 5)
    branch = parent.open_branch("b")
    append(branch, replacing(above(3)))
    follow(branch)
    held = value_bytes(pa.array([7], pa.int32()))
    for width in (1, 2):
        append(parent, AddColumns(bags[width - 1], bags[width], (held,)))
        insert_rows(width + 1, 2, 6 + width)
    append(parent, Delete("e", Call("EqualTo", "boolean", (Column(0, "int"), Literal(5, "int")))))
    epoch(parent)
    follow(branch)
    assert rows(branch, "few") == [(7,), (8,)]
    assert rows(branch, "e") == rows(parent, "e")
    version = merge_branch(branch, plan_merge(branch))
    parent.publish(version.epoch)
    insert_rows(3, 3, 9)
    assert rows(parent, "few") == [(7,), (8,), (9,)]


def test_a_parents_source_whose_columns_become_wider_ends_the_following_of_views_that_read_them(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=9)
    branch, other = pair.parent.open_branch("b"), pair.parent.open_branch("other")
    append(branch, view("by_a", counted(FILES, 2)))
    append(other, view("by_g", counted(Scan("s", (1,), FIELDS[1:2]), 0)))
    follow(branch)
    follow(other)
    wider = (*FIELDS[:2], Field("a", "bigint"))
    reader = CreateView("of_files", "SELECT …", counted(Scan("s", (0, 1, 2), wider), 1), or_replace=True, rebuilt=True)
    append(pair.parent, Drop(RelationKind.VIEW, "pairs"))
    append(pair.parent, Transaction((SetSourceColumns("s", FIELDS, wider), reader)))
    pair.take_input()
    with pytest.raises(BranchConflictError, match=r"it changes the type of s\.a, which 'by_a' reads"):
        follow(branch)
    follow(other)
    assert rows(other, "by_g") == rows(pair.parent, "of_files")


def test_a_following_branch_refuses_statements_on_tables_and_sources(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=7)
    branch = pair.parent.open_branch("b")
    for statement in (Insert("t", 0, "x"), table("u")):
        with pytest.raises(FollowingBranchError, match="--own"):
            StatementWriter(branch).log_statement(statement)
    StatementWriter(branch).log_statement(Drop(RelationKind.VIEW, "alone"))
    own = pair.parent.open_branch("own", follows=False)
    StatementWriter(own).log_statement(table("u"))
    advance_store(LocalRunner(), own)
    assert rows(own, "u") == []


def test_a_process_on_a_branch_that_has_ended_stops_and_the_address_leads_nowhere(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=16)
    branch = pair.parent.open_branch("b")
    pair.parent.open_branch("other")
    append(branch, replacing(*changed_statements()))
    follow(branch)
    pair.take_input()
    pair.parent.end_branch("b")
    vacuum_store(pair.parent)
    with pytest.raises(BranchGoneError, match="the open branches are other"):
        follow(branch)
    assert not list(pair.parent.objects.list("branches/0000000001/")), "nothing was written"
    with pytest.raises(BranchGoneError, match=r"or has ended\. Its rows are gone with it\. Create it with"):
        _ = open_meta(branch.objects.uri).settings


def test_an_epoch_of_an_ended_branch_with_its_own_input_writes_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=16)
    branch = pair.parent.open_branch("b", follows=False)
    insert(branch, "t", (1, 1, 1))
    assert len(advance_store(LocalRunner(), branch)) == 1
    pair.parent.end_branch("b")
    vacuum_store(pair.parent)
    pair.write_input()
    with pytest.raises(BranchGoneError, match="the store has no open branch"):
        advance_store(LocalRunner(), branch)
    left = [info.name for info in pair.parent.objects.list("branches/0000000001/")]
    assert not [name for name in left if "/data/" in name or "/barrier/" in name or "/version/" in name]


def test_following_past_an_epoch_whose_input_is_gone_is_an_error_that_says_so(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=8)
    branch = pair.parent.open_branch("b")
    append(branch, replacing(*changed_statements()))
    follow(branch)
    pair.take_input()
    pair.parent.objects.delete([info.name for info in pair.parent.objects.list("meta/barrier/")])
    with pytest.raises(BranchConflictError, match="no longer keeps the input"):
        follow(branch)
    assert isinstance(BranchConflictError("b", 1, "x"), TussockError)


def adding_up_to(greatest: int) -> CreateView:
    """A view that adds a number to k. It overflows for keys above `greatest`."""
    added = Call("Add", "int", (Column(0, "int"), Literal(2**31 - 1 - greatest, "int")), "ANSI")
    plan = Project(scan("t"), (Column(0, "int"), added), (Field("k", "int"), Field("s", "int")))
    return CreateView("sums", f"SELECT for keys up to {greatest}", plan)


def test_a_view_that_fails_on_a_row_is_corrected_by_a_later_statement_and_the_branch_goes_on(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=9)
    branch = pair.parent.open_branch("b")
    append(branch, adding_up_to(0))
    with pytest.raises(ViewRowError, match=r"Correct its SELECT and run `tussock apply PIPELINE`, or drop it"):
        follow(branch)
    append(branch, replacing(adding_up_to(30)))
    assert follow(branch) == 1, "the statement that fails and its correction"
    for key in (40, 60):
        pair.table[key] = (key, 1, 1)
        insert(pair.parent, "t", pair.table[key])
        pair.take_input()
        with pytest.raises(ViewRowError, match="the branch can only change the view"):
            follow(branch)
        with pytest.raises(FollowingBranchError, match="whose input is the parent's"):
            abandon_barrier(branch, Detour(drop=("sums",)))
        append(branch, replacing(adding_up_to(key)))
        assert follow(branch) == 2, "the correction, and then the parent's epoch"
    assert branch.read_latest().epoch == pair.parent.read_latest().epoch
    assert rows(branch, "sums") == sorted(((k, k + 2**31 - 61) for k in pair.table), key=repr)
    merge_branch(branch, plan_merge(branch))
    assert stored(pair.parent) == pair.answers(VIEWS)


def test_many_rows_of_a_followed_table_have_a_hot_key_by_its_name(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=15)
    branch = pair.parent.open_branch("b")
    append(branch, view("per_a", counted(scan("t"), 2)))
    follow(branch)
    insert(pair.parent, "t", *((key, 1, key) for key in range(100, 100 + 4 * FEWEST_ROWS)))
    epoch(pair.parent)
    assert follow(branch) == 1
    sealed = branch.read_manifest(branch.read_latest().epoch)
    assert sealed is not None
    (hot,) = {unit.hot.columns for unit in sealed.units or () if unit.hot is not None}
    assert hot == ("a",)


def test_a_killed_correction_is_finished_by_the_next_run(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=10)
    branch = pair.parent.open_branch("b")
    append(branch, adding_up_to(30))
    follow(branch)
    for key in itertools.count(40, 10):
        pair.table[key] = (key, 1, 1)
        insert(pair.parent, "t", pair.table[key])
        pair.take_input()
        with pytest.raises(ViewRowError):
            follow(branch)
        append(branch, replacing(adding_up_to(key)))
        objects = FaultyObjectStore(pair.parent.objects)
        objects.kill((key - 40) // 10 * 4)
        dies = True
        try:
            follow(MetaStore(objects, f"run {key}", lambda: 1_700_000_000_000).branch("b"))
            dies = False
        except Killed:
            follow(branch)
        assert rows(branch, "sums") == sorted(((k, k + 2**31 - 1 - key) for k in pair.table), key=repr)
        if not dies:
            break
    assert key > 60


def test_a_merged_branch_gives_its_rows_to_the_parent_which_goes_on_with_them(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=11)
    branch = pair.parent.open_branch("b")
    append(branch, replacing(*changed_statements()), view("new", counted(scan("t"), 0)))
    for _ in range(3):
        pair.take_input()
    follow(branch)
    before, merge = pair.parent.read_latest(), plan_merge(branch)
    assert {r.name for r in merge.adopted} == {"per_g", "per_n", "of_files", "pairs", "new"}
    version = merge_branch(branch, merge)
    assert version.rows.keys() >= {r.id for r in merge.adopted}
    assert stored(pair.parent) == pair.answers(CHANGED)
    pair.parent.publish(version.epoch)
    again = plan_merge(branch)  # the caller was killed before it ended the branch
    assert (again.digest, merge_branch(branch, again).epoch) == (merge.digest, version.epoch)
    pair.parent.end_branch("b")
    for _ in range(3):
        pair.take_input()
        compact_store(pair.parent)
        vacuum_store(pair.parent)
        assert stored(pair.parent) == pair.answers(CHANGED)
    assert scrub_store(pair.parent.objects).is_whole
    later = pair.parent.open_branch("later")  # what an earlier branch gave is the parent's, and is shared
    append(later, replacing(CreateView("alone", "changed", counted(scan("t"), 0))))
    for _ in range(2):
        pair.take_input()
        follow(later)
    assert stored(later) == pair.answers({**CHANGED, "alone": "SELECT k, count(*) AS n FROM t GROUP BY k"})
    ssts = [sst for level in later.read_latest().levels for sst in level if _is_own(later, sst.name)]
    assert {s.table_id for sst in ssts for s in sst.sections} <= {*own_ids(later.read_latest().catalog)}
    assert before.epoch < version.epoch


def test_a_branch_that_has_forgotten_the_relations_it_replaced_still_ends_them_in_the_parent(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=14)
    branch = pair.parent.open_branch("b")
    append(branch, replacing(*changed_statements()), Drop(RelationKind.VIEW, "alone"))
    follow(branch)
    pair.take_input()
    follow(branch)
    branch.publish(branch.read_latest().epoch)
    branch.apply_retention(1)
    assert all(relation.dropped is None for relation in branch.read_latest().catalog.relations), "forgotten"
    merge = plan_merge(branch)
    assert {r.name for r in merge.ended} == {"per_g", "per_n", "of_files", "pairs", "alone"}
    version = merge_branch(branch, merge)
    names = [r.name for r in version.catalog.live_relations()]
    assert sorted(names) == ["of_files", "pairs", "per_g", "per_n", "s", "t"]


@pytest.mark.parametrize("computes", [False, True])
def test_a_killed_merge_is_whole_or_absent_and_any_run_of_the_parent_may_finish_it(
    tmp_path: Path, computes: bool
) -> None:
    pair = Pair(tmp_path, seed=12)
    branch = pair.parent.open_branch("b")
    append(branch, replacing(*changed_statements()))
    follow(branch)
    merge, calls = plan_merge(branch), 0
    while True:
        parent = FaultyObjectStore(pair.parent.objects)
        meta = MetaStore(parent, f"run {calls}", lambda: 1_700_000_900_000).branch("b")
        parent.kill(calls)
        try:
            merge_branch(meta, merge)
        except Killed:
            assert stored(pair.parent) in (pair.answers(VIEWS), pair.answers(CHANGED))
            calls += 1
            if computes and pair.parent.open_barrier() is not None:
                epoch(pair.parent)
                break
        else:
            break
    assert calls > 3
    assert stored(pair.parent) == pair.answers(CHANGED)
    pair.take_input()
    assert stored(pair.parent) == pair.answers(CHANGED)


def test_a_merge_is_refused_if_an_epoch_was_committed_since_it_was_planned(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=16)
    branch = pair.parent.open_branch("b")
    append(branch, replacing(*changed_statements()))
    follow(branch)
    merge = plan_merge(branch)
    pair.take_input()
    with pytest.raises(CannotMergeError, match="behind its parent"):
        merge_branch(branch, merge)
    follow(branch)
    with pytest.raises(CannotMergeError, match="since the merge was planned"):
        merge_branch(branch, merge)
    assert stored(pair.parent) == pair.answers(VIEWS)
    merge_branch(branch, plan_merge(branch))
    assert stored(pair.parent) == pair.answers(CHANGED)


def test_a_branch_merges_only_at_the_epoch_of_its_parent_and_without_waiting_statements(tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed=13)
    branch = pair.parent.open_branch("b")
    append(branch, replacing(*changed_statements()))
    with pytest.raises(CannotMergeError, match="behind its parent"):
        plan_merge(branch)
    follow(branch)
    insert(pair.parent, "t", (1, 1, 1))
    with pytest.raises(CannotMergeError, match="statements wait"):
        plan_merge(branch)
    version = branch.read_latest()
    branch.inject_barrier(version.epoch, BarrierPlan(mapping=version.mapping, log_end=version.log_end))
    with pytest.raises(CannotMergeError, match=r"Run `tussock epoch --branch b` first"):
        plan_merge(branch)
    with pytest.raises(CannotMergeError, match="its own input"):
        plan_merge(pair.parent.open_branch("own", follows=False))
