"""Replacing a relation: which views keep their state, the order of relations, and the input that the schedule gives
them.
"""

import msgspec
import pytest

from tests.support.jobs.plan.catalogs import catalog_of, counted, joined, scan, source, table, view
from tussock.jobs.catalog.apply import apply_log, apply_statement
from tussock.jobs.catalog.definition import find_relation
from tussock.jobs.catalog.replace import CannotReplaceError, UnsettledError
from tussock.jobs.logical.nodes import AggCall, AggFunction, Aggregate, Column, Field, Filter, Literal, Plan, Project
from tussock.jobs.logical.statements import CreateView, Drop, Statement, Transaction
from tussock.jobs.schedule.schedule import InputOrigin, make_schedule
from tussock.statestore.meta.catalog import Catalog, RelationKind

EVEN = Filter(scan("t"), Literal(True, "boolean"))


def replacing(changed: CreateView, *readers: CreateView) -> Transaction:
    """Replace one view with another SELECT, and its readers with their own."""
    views = msgspec.structs.replace(changed, sql="another SELECT"), *readers
    return Transaction(tuple(msgspec.structs.replace(v, or_replace=True) for v in views))


def greatest(plan: Plan) -> Aggregate:
    """SELECT c1, max(c0) GROUP BY c1."""
    call = AggCall(AggFunction.MAX, "int", (Column(0, "int"),))
    return Aggregate(plan, (Column(1, "int"),), (call,), (plan.fields[1], Field("m", "int")))


def names(catalog: Catalog) -> list[str]:
    return [r.name for r in catalog.live_relations()]


def origins_of(catalog: Catalog, before: Catalog, relation: str, epoch: int) -> list[InputOrigin]:
    return [
        f for s in make_schedule(catalog, epoch, before).all_fragments() if s.relation == relation for f in s.origins
    ]


def test_a_reader_keeps_its_state_and_is_fed_the_difference_to_the_columns_that_it_read() -> None:
    before = catalog_of(table("t"), view("v", scan("t")), view("w", counted(scan("v"), 1)))
    turned = Project(EVEN, (Column(2, "int"), Column(1, "int"), Column(0, "int")), EVEN.fields)
    after = apply_statement(before, replacing(view("v", turned), view("w", counted(scan("v"), 1))), 2)
    old, new = (find_relation(c, "v") for c in (before, after))
    assert (old.id != new.id, find_relation(before, "w").id == find_relation(after, "w").id) == (True, True)
    assert find_relation(before, "w").state_tables == find_relation(after, "w").state_tables
    (origin, *_) = origins_of(after, before, "w", 2)
    assert origin.needed.replaced is not None
    assert origin.needed.replaced.table in old.state_tables
    assert not any(f.needed.replaced for f in origins_of(after, after, "w", 3)), "in its first epoch alone"


def test_a_view_planned_for_append_only_input_is_replaced_too() -> None:
    filtered = Filter(scan("v"), Literal(True, "boolean"))
    before = catalog_of(source("s"), view("v", scan("s")), view("w", greatest(scan("v"))), view("x", filtered))
    changed = view("v", Filter(scan("s"), Literal(True, "boolean")))
    after = apply_statement(before, replacing(changed, view("w", greatest(scan("v"))), view("x", filtered)), 2)
    assert find_relation(after, "w").id != find_relation(before, "w").id
    assert find_relation(after, "x").id == find_relation(before, "x").id


def test_each_relation_follows_its_inputs() -> None:
    before = catalog_of(table("t"), view("v", scan("t")), view("w", scan("v")), view("x", scan("t")))
    after = apply_statement(
        before, replacing(view("v", joined(scan("t"), scan("x"), 0, 0)), view("w", scan("v", 3))), 2
    )
    assert names(after).index("x") < names(after).index("v") < names(after).index("w")


@pytest.mark.parametrize(
    "anew", [view("v", scan("w")), view("v", joined(scan("t"), scan("x"), 0, 0))], ids=["at once", "by another"]
)
def test_a_circle_is_refused(anew: CreateView) -> None:
    before = catalog_of(table("t"), view("v", scan("t")), view("w", scan("v")), view("x", scan("w")))
    with pytest.raises(CannotReplaceError, match="which itself reads 'v'"):
        apply_statement(before, replacing(anew, view("w", scan("v", 3)), view("x", scan("w"))), 2)


def test_a_transaction_that_omits_a_reader_is_rejected_as_a_whole() -> None:
    before = catalog_of(table("t"), view("v", scan("t")), view("w", scan("v")))
    statements: list[Statement] = [
        view("late", scan("w")),
        replacing(view("v", EVEN), view("w", scan("v"))),
        view("other", scan("t")),
    ]
    replayed = apply_log(before, statements, 2)
    assert [index for index, _ in replayed.rejected] == [1]
    assert str(UnsettledError("late", "v")) in replayed.rejected[0][1]
    assert names(replayed.catalog) == ["t", "v", "w", "late", "other"]
    gone = Transaction((*replacing(view("v", EVEN)).statements, Drop(RelationKind.VIEW, "w")))
    assert names(apply_statement(before, gone, 2)) == ["t", "v"]


def test_replaced_again_before_its_first_epoch_there_is_one_old_view_and_one_new() -> None:
    before = catalog_of(table("t"), view("v", scan("t")), view("w", counted(scan("v"), 1)))
    after = before
    for plan, sql in ((EVEN, "a"), (scan("t"), "b"), (EVEN, "c")):
        changed = msgspec.structs.replace(view("v", plan), sql=sql, or_replace=True)
        reader = msgspec.structs.replace(view("w", counted(scan("v"), 1)), or_replace=True)
        after = apply_statement(after, Transaction((changed, reader)), 2)
    assert [r.name for r in after.relations if r.name == "v"] == ["v", "v"]
    (origin, *_) = origins_of(after, before, "w", 2)
    assert origin.needed.replaced is not None
    assert origin.needed.replaced.table in find_relation(before, "v").state_tables
