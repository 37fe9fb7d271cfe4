"""Relations and schemas that a branch or its parent drops or creates, followed and merged. No Spark.

The expected rows are those of the tables and files, computed by DuckDB in `Pair`.
"""

from pathlib import Path

import msgspec
import pytest

from tests.support.jobs.driver.embedded import append, epoch, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.unit.jobs.driver.test_builds import replacing
from tests.unit.jobs.driver.test_following import CHANGED, VIEWS, Pair, changed_statements, follow, statements
from tussock.jobs.barriers.follow import BranchConflictError
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.merge import merge_branch, plan_merge
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import AddColumns, CreateSchema, Drop, DropSchema, Single
from tussock.jobs.statements.statement_writer import StatementWriter
from tussock.statestore.hummock.scrub import scrub_store
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path, seed=21)


def log(meta: MetaStore, *statements: Single) -> None:
    for statement in statements:
        StatementWriter(meta).log_statement(statement)


def live(meta: MetaStore) -> list[str]:
    return sorted(r.name for r in meta.read_latest().catalog.live_relations())


def merge(pair: Pair, branch: MetaStore, name: str = "b") -> None:
    merge_branch(branch, plan_merge(branch))
    pair.parent.end_branch(name)


def test_a_source_and_a_table_that_a_branch_drops_are_dropped_in_the_parent_by_the_merge(pair: Pair) -> None:
    append(pair.parent, table("other"), view("of_other", counted(scan("other"), 1)))
    pair.take_input()
    branch = pair.parent.open_branch("b")
    log(branch, Drop(RelationKind.VIEW, "of_files"), Drop(RelationKind.SOURCE, "s", cascade=True))
    log(branch, Drop(RelationKind.VIEW, "of_other"), Drop(RelationKind.TABLE, "other"))
    follow(branch)
    assert live(branch) == ["alone", "per_g", "per_n", "t"]
    for _ in range(2):
        pair.take_input()
        follow(branch)
    assert {r.name for r in plan_merge(branch).ended} == {"s", "of_files", "pairs", "other", "of_other"}
    merge(pair, branch)
    assert live(pair.parent) == ["alone", "per_g", "per_n", "t"]
    pair.take_input()
    vacuum_store(pair.parent)
    answers = pair.answers({name: VIEWS[name] for name in ("per_g", "per_n", "alone")})
    assert {name: rows(pair.parent, name) for name in answers} == answers
    assert scrub_store(pair.parent.objects).is_whole


def test_a_schema_that_a_branch_creates_comes_with_the_merge_and_one_that_it_drops_goes(pair: Pair) -> None:
    append(pair.parent, CreateSchema("old"), CreateSchema("kept"))
    pair.take_input()
    branch = pair.parent.open_branch("b")
    log(branch, CreateSchema("new"), view("new.by_a", counted(scan("t"), 2)), DropSchema("old"))
    follow(branch)
    append(pair.parent, CreateSchema("later"))
    pair.take_input()
    follow(branch)
    assert branch.read_latest().catalog.schemas == ("kept", "later", "new")
    merge(pair, branch)
    assert pair.parent.read_latest().catalog.schemas == ("kept", "later", "new")
    append(pair.parent, view("new.by_g", counted(scan("t"), 1)))
    epoch(pair.parent)
    assert rows(pair.parent, "new.by_a") == pair.answers(VIEWS)["alone"]


def test_a_schema_that_the_parent_drops_with_a_view_of_the_branch_in_it_is_a_conflict(pair: Pair) -> None:
    append(pair.parent, CreateSchema("mart"))
    pair.take_input()
    branch = pair.parent.open_branch("b")
    log(branch, view("mart.by_a", counted(scan("t"), 2)))
    follow(branch)
    append(pair.parent, DropSchema("mart"))
    pair.take_input()
    with pytest.raises(BranchConflictError, match=r"the parent dropped the schema 'mart', which has 'mart\.by_a'"):
        follow(branch)


def test_a_view_that_the_parent_replaces_and_the_branch_drops_is_a_conflict(pair: Pair) -> None:
    branch = pair.parent.open_branch("b")
    log(branch, Drop(RelationKind.VIEW, "alone"))
    follow(branch)
    theirs = msgspec.structs.replace(statements()[-1], plan=counted(scan("t"), 0), sql="theirs")
    append(pair.parent, replacing(theirs))
    pair.take_input()
    with pytest.raises(BranchConflictError, match="the parent changed 'alone', which the branch dropped"):
        follow(branch)


def test_a_table_that_the_parent_alters_and_the_branch_drops_is_a_conflict(pair: Pair) -> None:
    append(pair.parent, table("other"))
    pair.take_input()
    branch = pair.parent.open_branch("b")
    log(branch, Drop(RelationKind.TABLE, "other"))
    follow(branch)
    wider = msgspec.structs.replace(table("other"), fields=(*table("other").fields, Field("b", "int")))
    append(pair.parent, AddColumns(table("other"), wider, (b"",)))
    pair.take_input()
    with pytest.raises(BranchConflictError, match="the parent changed 'other', which the branch dropped"):
        follow(branch)


def test_a_view_of_the_parent_over_a_relation_that_the_branch_dropped_is_a_conflict(pair: Pair) -> None:
    branch = pair.parent.open_branch("b")
    log(branch, Drop(RelationKind.VIEW, "alone"))
    follow(branch)
    fields = (Field("a", "int"), Field("n", "bigint"))
    append(pair.parent, view("again", counted(Scan("alone", (0, 1), fields), 1)))
    pair.take_input()
    with pytest.raises(BranchConflictError, match="the branch dropped or replaced 'alone', which 'again' reads"):
        follow(branch)


def test_branches_that_change_other_views_merge_after_each_other(pair: Pair) -> None:
    per_g, per_n, of_files, pairs = changed_statements()
    one, two = pair.parent.open_branch("one"), pair.parent.open_branch("two")
    append(one, replacing(per_g, per_n))
    append(two, replacing(of_files, pairs), Drop(RelationKind.VIEW, "alone"))
    for _ in range(2):
        pair.take_input()
        follow(one)
        follow(two)
    merge(pair, one, "one")
    follow(two)
    merge(pair, two, "two")
    pair.take_input()
    answers = {name: found for name, found in pair.answers(CHANGED).items() if name != "alone"}
    assert {name: rows(pair.parent, name) for name in answers} == answers
    assert live(pair.parent) == ["of_files", "pairs", "per_g", "per_n", "s", "t"]


def test_a_branch_with_its_own_input_drops_and_creates_what_it_likes(pair: Pair) -> None:
    own = pair.parent.open_branch("own", follows=False)
    log(own, Drop(RelationKind.TABLE, "t", cascade=True), table("t"))
    advance_store(LocalRunner(), own)
    assert live(own) == ["of_files", "s", "t"]
    assert rows(own, "t") == []
