"""Views that read more than one epoch's share are built over several epochs, while other views continue. No Spark.

The expected rows are computed from the rows of the tables and files, in plain Python or by DuckDB.
"""

import random
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import FaultyObjectStore, Killed, next_death
from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, open_store, rows
from tests.support.jobs.plan.catalogs import counted, joined, scan, table, view
from tests.support.jobs.quality.hidden_views import hidden_views
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.undo import inject_undo
from tussock.jobs.catalog.apply import apply_statement
from tussock.jobs.catalog.builds import BeingBuiltError
from tussock.jobs.catalog.definition import UnknownRelationError, find_relation
from tussock.jobs.catalog.statement_log import pending_catalog
from tussock.jobs.driver.epoch import BuildFailedError, advance_store, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.facts.graph import NodeState, build_graph
from tussock.jobs.facts.views import ViewState, list_views
from tussock.jobs.logical.nodes import Call, Column, Field, Filter, Literal, Plan, Project, Scan
from tussock.jobs.logical.statements import (
    AlterTable,
    CreateSchema,
    CreateSource,
    CreateView,
    Delete,
    Drop,
    Show,
    Shown,
    Statement,
    Transaction,
)
from tussock.jobs.quality.epoch_check import check_epoch, refuse_spark
from tussock.jobs.quality.measures import find_measures
from tussock.jobs.quality.suite import read_suite
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.sources import file_portions
from tussock.jobs.statements.show import answer_show
from tussock.jobs.trouble.row_names import ViewRowError
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.errors import RetryableError
from tussock.statestore.hummock.compaction_picker import dropped_tables
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.vnode import vnodes_of

MAX_BYTES = 1500
Row = tuple[int, int, int]


def over(name: str, *columns: str) -> Scan:
    types = {"n": "bigint"}
    return Scan(name, tuple(range(len(columns))), tuple(Field(c, types.get(c, "int")) for c in columns))


def above(plan: Plan, column: int, least: int) -> Filter:
    return Filter(plan, Call("GreaterThan", "boolean", (Column(column, "int"), Literal(least, "int"))))


def replacing(*views: CreateView) -> Transaction:
    """These views as replacements of the views of the same names."""
    return Transaction(tuple(msgspec.structs.replace(v, or_replace=True) for v in views))


def answers(t: Sequence[Row], u: Sequence[Row], **views: str) -> dict[str, list[tuple[object, ...]]]:
    """The views' rows over tables t and u, computed by DuckDB; a view may read earlier ones."""
    with duckdb.connect() as db:
        for name, found in (("t", t), ("u", u)):
            columns = zip(*found, strict=True) if found else ((), (), ())
            arrow = pa.table([pa.array(c, pa.int32()) for c in columns], ["k", "g", "a"])
            db.register(name, arrow)
        made = {}
        for name, sql in views.items():
            db.execute(f"CREATE TABLE {name} AS {sql}")
            made[name] = sorted(db.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
        return made


PER_G = "SELECT g, count(*) AS n FROM t GROUP BY g"
PER_N = "SELECT n, count(*) AS k FROM per_g GROUP BY n"
FEW = "SELECT t.g, count(*) AS n FROM t JOIN u ON t.g = u.g WHERE u.a > 3 GROUP BY t.g"
#: The names in the store, by the names in these SELECTs: in one schema, and in two schemas that share names.
ONE_SCHEMA = {name: name for name in ("t", "u", "per_g", "per_n")}
TWO_SCHEMAS = {"t": "t", "u": "twin.t", "per_g": "twin.per_g", "per_n": "per_g"}


def few(name: str = "per_g", names: Mapping[str, str] = ONE_SCHEMA) -> CreateView:
    """FEW: per_g with another SELECT, over t and u."""
    pairs = joined(scan(names["t"]), above(scan(names["u"]), 2, 3), 1, 1)
    return CreateView(name, FEW, counted(pairs, 1))


def per_n(names: Mapping[str, str]) -> CreateView:
    return view(names["per_n"], counted(over(names["per_g"], "g", "n"), 1))


def store_of(folder: Path, names: Mapping[str, str] = ONE_SCHEMA) -> MetaStore:
    meta = new_store(folder / "store", units=3)
    schemas = [] if names is ONE_SCHEMA else [CreateSchema("twin")]
    append(meta, *schemas, table(names["t"]), table(names["u"]))
    epoch(meta)
    append(meta, view(names["per_g"], counted(scan(names["t"]), 1)), per_n(names))
    return meta


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    return store_of(tmp_path)


def random_rows(draw: random.Random, count: int) -> dict[int, Row]:
    return {k: (k, draw.randrange(40), draw.randrange(8)) for k in draw.sample(range(600), count)}


def next_barrier(meta: MetaStore, max_bytes: int | None = MAX_BYTES) -> None:
    barrier = inject_barrier(meta, settings=EpochSettings(max_bytes=max_bytes))
    assert barrier is not None
    run_epoch(LocalRunner(), meta, barrier)


@pytest.mark.parametrize(("seed", "names"), [(0, ONE_SCHEMA), (1, TWO_SCHEMAS)], ids=["one schema", "two schemas"])
def test_the_old_view_and_its_reader_continue_until_the_new_one_has_read_everything(
    tmp_path: Path, seed: int, names: Mapping[str, str]
) -> None:
    meta, draw = store_of(tmp_path, names), random.Random(seed)
    t, u = random_rows(draw, 500), random_rows(draw, 300)
    for name, found in (("t", t), ("u", u)):
        insert(meta, names[name], *found.values())
    epoch(meta)
    append(meta, replacing(few(names["per_g"], names), per_n(names)))
    steps = 0
    while not steps or meta.read_latest().catalog.builds:
        for name, found in (("t", t), ("u", u)):
            changed = random_rows(draw, 30)
            found |= changed
            insert(meta, names[name], *changed.values())
            for k in draw.sample(sorted(found), 5):
                del found[k]
                equal = Call("EqualTo", "boolean", (Column(0, "int"), Literal(k, "int")))
                append(meta, Delete(names[name], equal))
        next_barrier(meta)
        steps += 1
        built = not meta.read_latest().catalog.builds
        wanted = answers([*t.values()], [*u.values()], per_g=FEW if built else PER_G, per_n=PER_N)
        assert {name: rows(meta, names[name]) for name in wanted} == wanted, f"step {steps}, built: {built}"
    assert steps > 3
    assert inject_barrier(meta, settings=EpochSettings(max_bytes=MAX_BYTES)) is None, "nothing is left to do"


def replace_per_g(meta: MetaStore, *, units: int | None = None) -> tuple[list[Row], list[Row]]:
    """Tables with rows, and a statement that replaces per_g; the first step of its build is committed."""
    draw = random.Random(1)
    t, u = ([*random_rows(draw, count).values()] for count in (500, 300))
    insert(meta, "t", *t)
    insert(meta, "u", *u)
    epoch(meta)
    append(meta, replacing(few(), view("per_n", counted(over("per_g", "g", "n"), 1))))
    next_barrier(meta)
    assert meta.read_latest().catalog.builds
    return t, u


def test_a_train_of_epochs_completes_a_build_and_each_epoch_reports_progress(meta: MetaStore) -> None:
    t, u = replace_per_g(meta)
    said: list[str] = []
    done = advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=MAX_BYTES), progress=said.append)
    assert len(done) > 2
    assert any("builds per_g (since epoch" in line and "% read)" in line for line in said)
    assert any("per_g (being built)" in summary.rows for summary in done)
    wanted = answers(t, u, per_g=FEW, per_n=PER_N)
    assert {name: rows(meta, name) for name in wanted} == wanted
    assert "per_g (being built)" not in done[-1].rows
    version = meta.read_latest()
    assert {r.name: version.rows[r.id] for r in version.catalog.live_relations() if r.name in wanted} == {
        n: len(r) for n, r in wanted.items()
    }
    changed = len(set(rows(meta, "per_g")) ^ set(answers(t, u, v=PER_G)["v"]))
    assert done[-1].rows["per_n"].rows_in <= 2 * changed, "fed the difference alone, through two fragments"


def test_one_epoch_builds_it_if_there_is_no_bound_or_it_reads_less(meta: MetaStore) -> None:
    insert(meta, "t", (1, 1, 1), (2, 1, 1))
    insert(meta, "u", (1, 1, 5))
    epoch(meta)
    append(meta, replacing(few(), view("per_n", counted(over("per_g", "g", "n"), 1))))
    next_barrier(meta)
    assert not meta.read_latest().catalog.builds
    assert rows(meta, "per_g") == [(1, 2)]


def test_a_new_view_is_invisible_until_it_is_built_but_its_name_is_reserved(meta: MetaStore) -> None:
    insert(meta, "t", *random_rows(random.Random(3), 500).values())
    epoch(meta)
    append(meta, view("per_a", counted(scan("t"), 2)))
    next_barrier(meta)
    catalog = meta.read_latest().catalog
    assert [r.name for b in catalog.builds for r in b.relations] == ["per_a"]
    with pytest.raises(UnknownRelationError, match=r"view 'per_a' is being built since epoch .*% read"):
        find_relation(catalog, "per_a")
    with pytest.raises(
        BeingBuiltError, match="'per_a' cannot be created, while per_a is being built over several epochs"
    ):
        apply_statement(catalog, table("per_a"), 9)
    same = msgspec.structs.replace(view("per_a", counted(scan("t"), 2)), if_not_exists=True)
    assert apply_statement(catalog, same, 9) == catalog
    shown = answer_show(catalog, Show(Shown.VIEWS))
    assert dict(zip(shown["name"], shown["state"], strict=True))["per_a"].startswith("being built since epoch")
    known = {fact.view: (fact.state, fact.reason) for fact in list_views(meta, datetime.now(UTC))}
    assert known["per_a"] == (ViewState.BUILDING, catalog.builds[0].progress)
    assert known["per_g"][0] is not ViewState.BUILDING
    drawn = {node.name: (node.state, node.reads) for node in build_graph(meta.read_latest(), ())}
    assert drawn["per_a"] == (NodeState.BUILDING, ("t",))
    assert drawn["per_g"][0] is NodeState.RUNS
    advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=MAX_BYTES))
    assert find_relation(meta.read_latest().catalog, "per_a").created == meta.read_latest().epoch, (
        "earlier epochs do not have it"
    )


def test_the_units_work_for_a_build_is_reported_under_its_name(meta: MetaStore) -> None:
    insert(meta, "t", *((k, k % 4, 1) for k in range(9000)))
    epoch(meta)
    append(meta, few("pairs"))
    next_barrier(meta, 20_000)
    version = meta.read_latest()
    sealed = meta.read_manifest(version.epoch)
    assert version.catalog.builds
    assert sealed is not None
    assert "pairs (being built)" in {work.hot.relation for work in sealed.units if work.hot is not None}


def test_the_quality_check_looks_at_all_of_a_view_that_was_built_over_epochs_that_readers_saw(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store", units=2)
    vnodes = vnodes_of([pa.array(range(600), pa.int32())], len(meta.read_latest().mapping.unit_of_vnode))
    bad = int(np.argmin(vnodes))  # read first, so not among the last epoch's rows
    append(meta, table("t"), view("v", above(scan("t"), 2, 3)))
    insert(meta, "t", *((k, 1, -5 if k == bad else 7) for k in range(600)))
    folder = tmp_path / "pipelines" / "shop"
    (folder / "quality").mkdir(parents=True)
    (folder / "pipeline.toml").write_text(
        f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["v.sql"]\n[quality]\ndocs = "{tmp_path}/docs"\n'
    )
    (folder / "v.sql").write_text("")
    rule = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "c2", "min_value": 0}}
    (folder / "quality" / "v.json").write_bytes(msgspec.json.encode({"expectations": [rule]}))

    def failures() -> int:
        (judged,) = check_epoch(refuse_spark, meta, load_pipeline(folder), meta.read_latest().epoch).views
        return len(judged.failures)

    def measures() -> list[CreateView]:
        (relation,) = (r for r in pending_catalog(meta, meta.read_latest()).live_relations() if r.name == "v")
        return hidden_views(relation, find_measures(read_suite(folder / "quality/v.json"), relation).parts[""])

    append(meta, *measures())
    epoch(meta)
    assert failures() == 0
    meta.publish(meta.read_latest().epoch)
    append(meta, replacing(CreateView("v", "all", above(scan("t"), 2, -10)), *measures()))
    next_barrier(meta)
    while meta.read_latest().catalog.builds:
        assert failures() == 0, "readers have the old one"
        meta.publish(meta.read_latest().epoch)
        next_barrier(meta)
    assert failures() == 1


def test_only_statements_that_would_disturb_a_build_are_refused(meta: MetaStore) -> None:
    replace_per_g(meta)
    catalog = meta.read_latest().catalog
    refused = {
        "view 'over' cannot be created over a relation that is being replaced": view(
            "over", counted(over("per_g", "g", "n"), 0)
        ),
        "view 'over' cannot be created over a relation that is being replaced.*": view(
            "over", counted(over("per_n", "n", "k"), 0)
        ),
        "u cannot be dropped": Drop(RelationKind.TABLE, "u"),
        "names of table 'u' cannot be changed": AlterTable(table("u"), table("w")),
    }
    for reason, statement in refused.items():
        with pytest.raises(BeingBuiltError, match=f"{reason}, while per_g is being built .* Nothing was changed"):
            apply_statement(catalog, statement, 99)
    for statement in (view("beside", counted(scan("u"), 1)), table("w")):
        assert apply_statement(catalog, statement, 99).builds == catalog.builds
    again = replacing(few(), view("per_n", counted(over("per_g", "g", "n"), 1)))
    assert apply_statement(catalog, again, 99) == catalog, "a repeat changes nothing"


@pytest.mark.parametrize(
    "statement",
    [
        Drop(RelationKind.VIEW, "per_g", cascade=True),
        Drop(RelationKind.TABLE, "u", cascade=True),
        replacing(view("per_g", counted(scan("t"), 1))),  # unchanged
        replacing(
            CreateView("per_g", "other", counted(scan("t"), 2)), view("per_n", counted(over("per_g", "a", "n"), 1))
        ),
    ],
)
def test_another_statement_about_a_view_ends_its_build_and_removes_its_rows(
    meta: MetaStore, statement: Statement
) -> None:
    t, u = replace_per_g(meta)
    built = {s.table_id for b in meta.read_latest().catalog.builds for r in b.relations for s in r.state_tables}
    append(meta, statement)
    next_barrier(meta, None)
    version = meta.read_latest()
    assert not version.catalog.builds
    stored = {section.table_id for level in version.levels for sst in level for section in sst.sections}
    assert built & stored
    assert built & stored <= dropped_tables(version, version.epochs), "compaction drops the stored rows"
    if isinstance(statement, Transaction) and len(statement.statements) == 1:
        wanted = answers(t, u, per_g=PER_G, per_n=PER_N)
        assert {name: rows(meta, name) for name in wanted} == wanted


@pytest.mark.parametrize("finished", [True, False])
def test_an_undo_to_an_epoch_of_a_build_gives_the_build_up(meta: MetaStore, finished: bool) -> None:
    t, u = replace_per_g(meta)
    during = meta.read_latest().epoch
    insert(meta, "t", (1000, 39, 7))
    next_barrier(meta, None if finished else MAX_BYTES)
    assert bool(meta.read_latest().catalog.builds) is not finished
    run_epoch(LocalRunner(), meta, inject_undo(meta, during, keeps_input=None, run={}))
    assert not meta.read_latest().catalog.builds
    wanted = answers(t, u, per_g=PER_G, per_n=PER_N)
    assert {name: rows(meta, name) for name in wanted} == wanted
    append(meta, replacing(few(), view("per_n", counted(over("per_g", "g", "n"), 1))))
    insert(meta, "u", (1000, 39, 7))
    advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=MAX_BYTES))
    wanted = answers(t, [*u, (1000, 39, 7)], per_g=FEW, per_n=PER_N)
    assert {name: rows(meta, name) for name in wanted} == wanted


def test_a_build_survives_compaction_another_number_of_units_and_a_superseded_barrier(meta: MetaStore) -> None:
    t, u = replace_per_g(meta)
    for units in (1, 8, 3):
        compact_store(meta, full=True)
        t.append((1000 + units, units, 7))
        insert(meta, "t", t[-1])
        barrier = inject_barrier(meta, settings=EpochSettings(max_bytes=600, units=units))
        assert barrier is not None
        assert barrier.catalog is not None
        superseding = abandon_barrier(meta, Detour(take_log=True))
        assert superseding.catalog is not None
        assert superseding.catalog.builds == barrier.catalog.builds, "it has the superseded barrier's builds"
        run_epoch(LocalRunner(), meta, superseding)
    assert meta.read_latest().catalog.builds
    advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=MAX_BYTES))
    wanted = answers(t, u, per_g=FEW, per_n=PER_N)
    assert {name: rows(meta, name) for name in wanted} == wanted


LEAST = -(2**63)


def raising_below(least: int) -> CreateView:
    """SELECT g, count(*) AS n, <an overflow if n < least> FROM t GROUP BY g, as a replacement of per_g."""
    under = Call("Subtract", "bigint", (Literal(least, "bigint"), Column(1, "bigint")), "ANSI")
    checked = Call("Subtract", "bigint", (Literal(LEAST, "bigint"), under), "ANSI")
    fields = (Field("g", "int"), Field("n", "bigint"), Field("c", "bigint"))
    plan = Project(counted(scan("t"), 1), (Column(0, "int"), Column(1, "bigint"), checked), fields)
    return CreateView("per_g", f"raising below {least}", plan)


def test_a_view_that_raises_over_a_part_of_the_rows_alone_is_finished_in_one_epoch(meta: MetaStore) -> None:
    insert(meta, "t", *((k, k % 2, 1) for k in range(600)))
    epoch(meta)
    append(meta, replacing(raising_below(300), view("per_n", counted(over("per_g", "g", "n"), 1))))
    done = advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=MAX_BYTES))
    assert len(done) == 1
    assert rows(meta, "per_g") == [(0, 300, LEAST), (1, 300, LEAST)]
    assert rows(meta, "per_n") == [(300, 2)]


def test_a_view_that_raises_over_all_rows_stops_the_epoch_that_begins_to_build_it_as_any_new_view_does(
    meta: MetaStore,
) -> None:
    insert(meta, "t", *((k, k % 2, 1) for k in range(600)))
    epoch(meta)
    append(meta, replacing(raising_below(301), view("per_n", counted(over("per_g", "g", "n"), 1))))
    with pytest.raises(ViewRowError, match=r"To keep the old view.*--skip-entry 5"):
        advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=MAX_BYTES))
    abandon_barrier(meta, Detour(skip_entries=(meta.log_end() - 1,)))
    advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=MAX_BYTES))
    assert not meta.read_latest().catalog.builds
    assert rows(meta, "per_g") == [(0, 300), (1, 300)]


def test_a_row_during_a_build_that_the_new_view_cannot_process_ends_only_the_build(
    meta: MetaStore,
) -> None:
    insert(meta, "t", *((k, k % 2, 1) for k in range(600)))
    epoch(meta)
    added = Call("Add", "int", (Column(0, "int"), Column(2, "int")), "ANSI")
    append(meta, view("sums", Project(scan("t"), (Column(0, "int"), added), (Field("k", "int"), Field("s", "int")))))
    next_barrier(meta)
    assert meta.read_latest().catalog.builds
    insert(meta, "t", (1000, 77, 2**31 - 1))
    with pytest.raises(
        BuildFailedError, match=r"(?s)view 'sums' could not be built: k . a raised.*The row: k=1000.*given up"
    ):
        advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=MAX_BYTES))
    advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=MAX_BYTES))
    assert not meta.read_latest().catalog.builds
    assert rows(meta, "per_g") == [(0, 300), (1, 300), (77, 1)]


def test_files_of_a_source_are_read_in_pieces_while_others_come_and_one_is_restated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_portions, "ROW_BYTES", 20)  # so that a file costs about its bytes
    meta, data, files = new_store(tmp_path / "store", units=3), tmp_path / "data", {}
    data.mkdir()

    def write(name: str, first: int, count: int = 40) -> None:
        files[name] = [(k, k % 7, k % 5) for k in range(first, first + count)]
        columns = zip(*files[name], strict=True)
        pq.write_table(pa.table([pa.array(c, pa.int32()) for c in columns], ["k", "g", "a"]), data / f"{name}.parquet")

    for number in range(6):
        write(f"f{number}", 100 * number)
    fields = tuple(Field(name, "int") for name in ("k", "g", "a"))
    append(meta, CreateSource("t", "parquet", fields, {"path": str(data), "retain": "files", "on_change": "restate"}))
    append(meta, view("per_a", counted(scan("t"), 2)))
    epoch(meta)
    append(meta, view("per_g", counted(scan("t"), 1)))
    steps, largest = 0, max(file.stat().st_size for file in data.iterdir())
    while not steps or meta.read_latest().catalog.builds:
        write(f"g{steps}", 10_000 + 100 * steps)
        write("f0" if steps == 1 else "f5", 20_000 + 100 * steps, 30)  # one file that is already read, one that is not
        next_barrier(meta, 3 * largest)
        steps += 1
        found = [row for rows in files.values() for row in rows]
        wanted = answers(found, [], per_a="SELECT a, count(*) AS n FROM t GROUP BY a", per_g=PER_G)
        for name in ("per_a",) if meta.read_latest().catalog.builds else wanted:
            assert rows(meta, name) == wanted[name], f"step {steps}"
        assert steps < 20
    assert steps > 2


def test_a_build_over_a_view_that_is_paused_is_given_up(meta: MetaStore) -> None:
    insert(meta, "t", *random_rows(random.Random(3), 500).values())
    epoch(meta)
    append(meta, view("narrow", scan("t")))
    next_barrier(meta, None)
    append(meta, view("per_a", counted(over("narrow", "k", "g", "a"), 2)))
    next_barrier(meta)
    assert meta.read_latest().catalog.builds
    insert(meta, "t", (5000, 1, 1))
    assert inject_barrier(meta, settings=EpochSettings(max_bytes=MAX_BYTES)) is not None
    abandon_barrier(meta, Detour(pause=("narrow",)))
    advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=MAX_BYTES))
    assert not meta.read_latest().catalog.builds
    assert all(r.name != "per_a" for r in meta.read_latest().catalog.live_relations())


def test_a_driver_that_dies_at_any_request_leaves_the_old_view_or_the_new_one_whole(
    meta: MetaStore, tmp_path: Path
) -> None:
    t, u = replace_per_g(meta)
    old, new = answers(t, u, per_g=PER_G, per_n=PER_N), answers(t, u, per_g=FEW, per_n=PER_N)
    calls: list[tuple[str, str]] = []
    number, whole = 0, set()
    while number <= len(calls):
        store = Path(shutil.copytree(tmp_path / "store", tmp_path / f"store-{number}"))
        objects = FaultyObjectStore(open_object_store(str(store)))
        if number < len(calls):
            objects.kill(number)
        with suppress(Killed, RetryableError, LostRaceError):
            advance_store(
                LocalRunner(),
                MetaStore(objects, "first", lambda: 1_700_000_100_000),
                settings=EpochSettings(max_bytes=2 * MAX_BYTES),
            )
        calls = calls or list(objects.calls)
        other = open_store(store, "second")
        found = {name: rows(other, name) for name in old}
        assert found in (old, new), f"killed at request {number}"
        whole.add(found == new)
        advance_store(LocalRunner(), other, settings=EpochSettings(max_bytes=2 * MAX_BYTES))
        assert {name: rows(other, name) for name in new} == new, f"killed at request {number}"
        shutil.rmtree(store)
        number = next_death(calls, number)
    assert whole == {False, True}
    assert sum(name.startswith("meta/barrier") for operation, name in calls if operation == "put_if_absent") > 1, (
        "over several epochs"
    )
