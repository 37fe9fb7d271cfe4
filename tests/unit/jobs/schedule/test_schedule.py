"""Levels, leaves, shared exchanges and backfill of an epoch's schedule.

The expected levels follow the module's rules and were computed by hand.
"""

from tests.support.jobs.plan.catalogs import catalog_of, counted, joined, scan, source, table, view
from tussock.jobs.catalog.apply import pause_view
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.executors.hash_join import HashJoin
from tussock.jobs.executors.partial_agg import PartialAgg
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.schedule.schedule import IN_FULL, Schedule, ScheduledFragment, make_schedule
from tussock.statestore.meta.catalog import Catalog


def with_node(plan: Schedule, relation: str, kind: type) -> ScheduledFragment:
    (found,) = [
        s
        for s in plan.all_fragments()
        if s.relation == relation and s.fragment and any(isinstance(o.node, kind) for o in s.fragment.operators)
    ]
    return found


def of(plan: Schedule, relation: str) -> list[ScheduledFragment]:
    return [s for s in plan.all_fragments() if s.relation == relation]


def test_an_aggregate_runs_one_level_above_its_source_and_its_sender_on_the_sources_level() -> None:
    plan = make_schedule(catalog_of(source("s"), view("v", counted(scan("s"), 1))), 1)
    assert [s.level for s in of(plan, "s")] == [0]
    assert with_node(plan, "v", PartialAgg).level == 0
    assert with_node(plan, "v", HashAgg).level == 1
    assert len(plan.levels) == 2


def test_a_view_over_a_view_reads_its_changes_one_level_later() -> None:
    statements = source("s"), view("v", counted(scan("s"), 1)), view("w", counted(scan("v", 2), 1))
    assert with_node(make_schedule(catalog_of(*statements), 1), "w", HashAgg).level == 2


def test_a_leaf_runs_one_level_before_its_first_reader() -> None:
    deep = joined(scan("w", 2), scan("late"), 0, 1)
    statements = (
        source("s"),
        source("late"),
        view("v", counted(scan("s"), 1)),
        view("w", counted(scan("v", 2), 1)),
        view("x", deep),
    )
    plan = make_schedule(catalog_of(*statements), 1)
    assert with_node(plan, "x", HashJoin).level == 3
    assert [s.level for s in of(plan, "late")] == [2]
    assert [s.level for s in of(plan, "s")] == [0]


def test_a_leaf_with_an_early_and_a_late_reader_runs_for_the_early_one_and_its_cells_pass_through_to_the_late_one() -> (
    None
):
    deep = joined(scan("v", 2), scan("t"), 0, 1)
    early = joined(scan("t"), scan("u"), 1, 1)
    statements = (
        table("t"),
        table("u"),
        source("s"),
        view("v", counted(scan("s"), 1)),
        view("x", deep),
        view("y", early),
    )
    plan = make_schedule(catalog_of(*statements), 1)
    (leaf,) = of(plan, "t")
    assert leaf.level == 0
    assert [with_node(plan, name, HashJoin).level for name in ("y", "x")] == [1, 2]
    assert max(x.last_level for x in leaf.exchanges) == 2


def test_readers_of_the_same_columns_by_the_same_key_share_an_exchange() -> None:
    left, right = joined(scan("t"), scan("u"), 1, 1), joined(scan("t"), scan("u"), 1, 0)
    plan = make_schedule(catalog_of(table("t"), table("u"), view("v", left), view("w", left), view("x", right)), 1)
    (t,), (u,) = of(plan, "t"), of(plan, "u")
    assert [x.needed.keys for x in t.exchanges] == [(1,)]  # three readers
    assert sorted(x.needed.keys for x in u.exchanges) == [(0,), (1,)]
    origins = [f for name in "vwx" for f in with_node(plan, name, HashJoin).origins if f.producer == t.id]
    assert [f.exchange for f in origins] == [0, 0, 0]


def test_a_source_reads_only_the_columns_that_some_view_wants() -> None:
    by_a, by_g = (counted(Scan("s", (c,), (Field("x", "int"),)), 0) for c in (2, 1))
    plan = make_schedule(catalog_of(source("s"), source("unread"), view("v", by_a), view("w", by_g)), 1)
    (leaf,), (unread,) = of(plan, "s"), of(plan, "unread")
    assert leaf.source is not None
    assert unread.source is not None
    assert leaf.source.columns == (1, 2)
    assert unread.source.columns == ()


def backfilled() -> Catalog:
    first = catalog_of(table("t"), source("s"), view("old", counted(scan("t"), 1)))
    return catalog_of(
        view("of_table", counted(scan("t"), 1)), view("of_source", counted(scan("s"), 1)), epoch=2, before=first
    )


def test_a_new_view_reads_existing_tables_and_sources_in_full() -> None:
    plan = make_schedule(backfilled(), 2)
    (t,) = of(plan, "t")
    assert all(f.needed.part == IN_FULL for f in with_node(plan, "of_table", PartialAgg).origins)
    assert all(f.needed.part == IN_FULL for f in with_node(plan, "of_source", PartialAgg).origins)
    assert not any(f.needed.part == IN_FULL for f in with_node(plan, "old", PartialAgg).origins)
    assert t.snapshot_table is not None
    assert t.must_run, "it has a snapshot to send, whether or not anything changed"
    assert of(plan, "s")[0].snapshot_table is None, "a source stores no rows: its files are read again"


def test_in_the_next_epoch_the_view_is_like_any_other() -> None:
    plan = make_schedule(backfilled(), 3)
    assert not any(f.needed.part for s in plan.all_fragments() for f in s.origins)
    assert not any(s.must_run or s.new for s in plan.all_fragments())


def test_a_new_global_aggregate_runs_without_input_because_it_has_a_row_from_its_first_epoch() -> None:
    catalog = catalog_of(source("s"), view("v", counted(scan("s"))))
    assert with_node(make_schedule(catalog, 1), "v", HashAgg).must_run
    assert not with_node(make_schedule(catalog, 2), "v", HashAgg).must_run


def test_a_paused_view_and_its_readers_have_no_fragments_and_receive_nothing() -> None:
    kept = source("s"), table("t"), view("other", counted(scan("t"), 1))
    left = (
        view("v", counted(scan("s"), 1)),
        view("w", counted(scan("v", 2), 1)),
        view("x", joined(scan("w", 2), scan("t"), 0, 0)),
    )
    paused = pause_view(catalog_of(*kept, *left), "v", 5)
    plan = make_schedule(paused, 5)
    assert {s.relation for s in plan.all_fragments()} == {"s", "t", "other"}
    assert [s.exchanges for s in of(plan, "s")] == [()]
    assert plan == make_schedule(catalog_of(*kept), 5), "as if they had never been"
    assert make_schedule(paused, 4) == make_schedule(catalog_of(*kept, *left), 4), "before the pause they run"
