"""The graph of a pipeline, the neighbours of a node, the readers of a relation, and its fragments."""

from pathlib import Path

import msgspec
import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store
from tests.support.jobs.plan.catalogs import counted, joined, scan, table, view
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.facts.graph import (
    GraphNode,
    NodeState,
    build_graph,
    list_fragments,
    nearest_nodes,
    nodes_around,
    readers_by_relation,
    relation_text,
)
from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.facts.overview import pipeline_state, relation_states
from tussock.jobs.facts.quality import CheckFacts, Outcome, expectations
from tussock.jobs.facts.upkeep import find_due_work
from tussock.jobs.quality.record import Failure, Metric, QualityVerdict
from tussock.jobs.quality.suite import read_suite
from tussock.jobs.settings.publishing import DeltaSettings
from tussock.jobs.settings.retention import Retention
from tussock.jobs.settings.tables import QualitySettings
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.jobs.upkeep.vacuum import clean_store
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.store import MetaStore


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    """Two tables, a view over one, a view over that, a view over both tables; one epoch."""
    meta = new_store(tmp_path / "store")
    append(meta, table("t"), table("u"), view("n", counted(scan("t"), 1)), view("nn", counted(scan("n", 1), 0)))
    append(meta, view("both", joined(scan("t"), scan("u"), 0, 0)))
    insert(meta, "t", (1, 7, 1))
    epoch(meta)
    return meta


def live(meta: MetaStore, name: str) -> Relation:
    return next(r for r in meta.read_latest().catalog.live_relations() if r.name == name)


def test_each_node_follows_its_inputs_and_outside_tables_are_last(meta: MetaStore) -> None:
    nodes = build_graph(meta.read_latest(), [DeltaSettings("/tables", ("nn", "both"))])
    assert [(n.name, n.kind, n.reads) for n in nodes] == [
        ("t", "table", ()),
        ("u", "table", ()),
        ("n", "view", ("t",)),
        ("nn", "view", ("n",)),
        ("both", "view", ("t", "u")),
        ("delta tables", "sink", ("nn", "both")),
    ]
    assert build_graph(meta.read_latest(), [DeltaSettings("/tables")])[-1].reads == ("n", "nn", "both"), (
        "all views, if none are named"
    )
    assert len(build_graph(meta.read_latest())) == 5


def test_around_a_node_are_its_inputs_and_readers(meta: MetaStore) -> None:
    assert [n.name for n in nodes_around(build_graph(meta.read_latest()), "n")] == ["t", "n", "nn"]
    assert [(n.name, n.reads) for n in nodes_around(build_graph(meta.read_latest()), "u")] == [
        ("u", ()),
        ("both", ("u",)),
    ]


def test_the_nearest_nodes_are_those_that_the_fewest_steps_lead_to(meta: MetaStore) -> None:
    nodes = build_graph(meta.read_latest(), [DeltaSettings("/tables", ("nn", "both"))])
    assert [[n.name for n in nearest_nodes(nodes, "n", most)] for most in (1, 3, 5)] == [
        ["n"],
        ["t", "n", "nn"],
        ["t", "n", "nn", "both", "delta tables"],
    ]
    assert [n.reads for n in nearest_nodes(nodes, "delta tables", 3)] == [(), (), ("nn", "both")]


def test_the_nearest_of_many_paths_are_found_at_once() -> None:
    """Every node of a level reads the whole level before it: 4^20 paths lead through 80 nodes."""
    nodes = [
        GraphNode(
            f"v{level}_{i}", "view", next(iter(NodeState)), tuple(f"v{level - 1}_{j}" for j in range(4 if level else 0))
        )
        for level in range(20)
        for i in range(4)
    ]
    assert [n.name for n in nearest_nodes(nodes, "v0_0", 100)] == [n.name for n in nodes]


def test_readers_are_the_views_that_follow_directly_or_not(meta: MetaStore) -> None:
    found = readers_by_relation(meta.read_latest().catalog)
    assert found == {"t": ("n", "nn", "both"), "u": ("both",), "n": ("nn",), "nn": (), "both": ()}


def test_fragments_are_those_that_explain_shows(meta: MetaStore) -> None:
    catalog = meta.read_latest().catalog
    found = list_fragments(catalog, [live(meta, "nn")])
    text = relation_text(catalog, live(meta, "nn"))
    assert {f.relation for f in found} == {"t", "n", "nn"}
    for fragment in found:
        assert f"fragment {fragment.id} of" in text
        assert all(operator in text for operator in fragment.operators)
        assert all(other in {f.id for f in found if f.level <= fragment.level} for other in fragment.reads)


def test_a_paused_view_has_its_start_and_a_state_counts_all_of_its_tables(meta: MetaStore) -> None:
    abandon_barrier(meta, Detour(pause=("n",)))
    paused = epoch(meta).epoch
    version = meta.read_latest()
    found = pipeline_state(version)
    assert {r.name: r.state for r in relation_states(version) if r.state != NodeState.RUNS} == dict.fromkeys(
        ("n", "nn"), NodeState.PAUSED
    )
    assert (found.epoch, found.unpublished, found.kinds["view"], found.kinds["table"]) == (paused, True, 3, 2)
    assert found.bytes == sum(s.size for level in version.levels for s in level)
    states = relation_states(version)
    sections = [x for level in version.levels for s in level for x in s.sections]
    assert sum(s.state_bytes for s in states) == sum(x.bytes for x in sections)
    assert {s.name: s.seen for s in states} == dict.fromkeys(("t", "u", "n", "nn", "both")), "nothing is published"


def test_upkeep_announces_the_work_of_its_run(meta: MetaStore) -> None:
    for k in range(2, 6):
        insert(meta, "t", (k, 7, 1))
        meta.publish(epoch(meta).epoch)
    retention = Retention(1, 0)
    before = meta.read_latest()
    said = find_due_work(meta, retention)
    assert meta.read_latest() == before
    done = clean_store(meta, retention)
    assert (said.floor_after, said.let_go) == (done.floor, sum(e < done.floor for e in before.epochs))
    assert said.floor_after > said.floor
    again = find_due_work(meta, retention)
    assert (again.let_go, again.removable_objects) == (0, 0)


def test_an_expectation_has_a_history_even_if_the_suite_has_changed_since(tmp_path: Path) -> None:
    items = [{"type": "a", "kwargs": {"column": "x"}}, {"type": "b", "severity": "warning"}]
    (tmp_path / "v.json").write_bytes(msgspec.json.encode({"expectations": items}))
    old, now = Failure("gone(column='x')", "3 rows", ({"x": "1"},)), Failure("b()", "2 rows")

    def check(number: int, failures: tuple[Failure, ...], warnings: tuple[Failure, ...]) -> CheckFacts:
        verdict = QualityVerdict.FAILED if failures else QualityVerdict.PASSED
        listed = {1: ("a(column='x')",), 3: ("a(column='x')", "b()")}.get(number, ())  # a release before lists none
        metrics = tuple(Metric(text, number / 2) for text in listed)
        suite = digest if number == 4 else "another"
        return CheckFacts(
            number, epoch_moment(number), "v", verdict, 5, 2, failures, warnings, metrics=metrics, suite=suite
        )

    digest = read_suite(tmp_path / "v.json").digest
    checks = [check(4, (), ()), check(3, (), (now,)), check(2, (old,), ()), check(1, (), ())]
    found = {e.expectation: e for e in expectations("v", checks, QualitySettings(tmp_path, tmp_path))}
    assert list(found) == ["a(column='x')", "b()", "gone(column='x')"]
    passed, warned, failed, absent = Outcome.PASSED, Outcome.WARNED, Outcome.FAILED, Outcome.NOT_EVALUATED
    assert found["a(column='x')"].outcomes == ((1, passed), (2, absent), (3, passed), (4, passed)), (
        "of epoch 2 nothing is known; the suite of epoch 4 is the file's"
    )
    assert (found["a(column='x')"].values, found["b()"].values) == ((0.5, None, 1.5, None), (None, None, 1.5, None))
    assert (found["b()"].only_reports, found["b()"].last_failed) == (True, 3)
    assert [v for _, v in found["b()"].outcomes] == [absent, absent, warned, passed], "it was added before epoch 3"
    gone = found["gone(column='x')"]
    assert (gone.in_suite, gone.last_failure, gone.last_failed) == (False, old, 2)
    assert [v for _, v in gone.outcomes] == [absent, failed, absent, absent]


def test_an_assertion_and_the_arrival_of_a_source_have_a_history_without_a_suite(tmp_path: Path) -> None:
    def check(number: int, view: str, *failures: Failure) -> CheckFacts:
        verdict = QualityVerdict.FAILED if failures else QualityVerdict.PASSED
        return CheckFacts(number, epoch_moment(number), view, verdict, number - 1, 1, failures, (), of_view=False)

    paid, arrived = "paid.sql", "source orders"
    (one,) = expectations(paid, [check(1, paid)], None)
    assert (one.expectation, one.in_suite, one.outcomes, one.values) == (paid, True, ((1, Outcome.PASSED),), (0.0,))
    wrong = Failure(paid, "1 wrong row", ({"id": "7"},))
    (one,) = expectations(paid, [check(2, paid, wrong), check(1, paid)], QualitySettings(tmp_path, tmp_path))
    assert (one.expectation, one.in_suite, one.last_failure, one.last_failed) == (paid, True, wrong, 2)
    assert (one.outcomes, one.values) == (((1, Outcome.PASSED), (2, Outcome.FAILED)), (0.0, 1.0))
    few = Failure("min_rows = 9", "2 rows")
    (one,) = expectations(arrived, [check(4, arrived), check(3, arrived, few)], None)
    assert (one.expectation, one.in_suite, one.last_failure) == ("min_rows = 9", True, few)
    assert (one.outcomes, one.values) == (((3, Outcome.FAILED), (4, Outcome.PASSED)), (None, None))
