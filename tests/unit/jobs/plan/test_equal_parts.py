"""An aggregation that occurs twice in a plan is planned once."""

import pytest

from tests.support.jobs.plan.catalogs import catalog_of, counted, joined, scan, table, view
from tussock.jobs.catalog.definition import ViewDefinition, definition_of
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.logical.equal_parts import equal_parts
from tussock.jobs.logical.nodes import Call, Column, Expand, Expr, Field, Filter, Literal, Place, Plan, Project, Union
from tussock.jobs.plan.fragments import Fragment
from tussock.jobs.schedule.explain import explain_relation
from tussock.jobs.sql.filters_below import below_expands


def planned(plan: Plan) -> tuple[Fragment, ...]:
    catalog = catalog_of(table("t"), view("v", plan))
    relation = catalog.live_relations()[-1]
    assert explain_relation(catalog, relation)
    definition = definition_of(relation)
    assert isinstance(definition, ViewDefinition)
    return definition.fragments


def aggregates(plan: Plan) -> int:
    return sum(isinstance(o.node, HashAgg) for f in planned(plan) for o in f.operators)


def above(column: int, limit: int, line: int = 1) -> Expr:
    return Call("GreaterThan", "boolean", (Column(column, "int"), Literal(limit, "int")), place=Place(line, 1))


def renamed(plan: Plan, name: str, *columns: int) -> Project:
    exprs = tuple(Column(c, plan.fields[c].type) for c in columns)
    return Project(plan, exprs, tuple(Field(f"{name}{c}", plan.fields[c].type) for c in columns))


def test_copies_that_differ_in_places_and_names_are_planned_once() -> None:
    one, other = (
        counted(Filter(renamed(scan("t"), name, 1, 0), above(0, 1, line)), 0) for name, line in (("x", 1), ("y", 7))
    )
    assert one != other
    assert aggregates(joined(one, other, 0, 0)) == 1
    assert aggregates(Union((one, other), one.fields)) == 1


def test_copies_with_other_constants_are_planned_twice() -> None:
    one, other = (counted(Filter(scan("t"), above(0, limit)), 1) for limit in (1, 2))
    assert aggregates(joined(one, other, 0, 0)) == 2


def test_only_the_largest_copies_count() -> None:
    below = counted(scan("t"), 1, 0)
    whole = counted(below, 0)
    assert len(equal_parts(joined(whole, whole, 0, 0))) == 1
    assert aggregates(joined(whole, whole, 0, 0)) == 2
    assert len(equal_parts(joined(whole, joined(whole, below, 0, 0), 0, 0))) == 2


PAIRS = joined(scan("t"), scan("u"), 0, 0)


@pytest.mark.parametrize(
    "plan",
    [joined(scan("t"), scan("t"), 0, 0), counted(scan("t"), 1), joined(counted(PAIRS, 0), counted(PAIRS, 1), 0, 0)],
)
def test_other_parts_are_planned_for_each_copy(plan: Plan) -> None:
    """The two readers of a join would need all its pairs in memory."""
    assert equal_parts(plan) == frozenset()


def test_readers_of_a_shared_part_get_its_columns_under_their_keys() -> None:
    """A copy is read by its own key, another one by a computed key, and a third one as a whole."""
    part = counted(scan("t"), 1, 0)
    moved = Project(part, (Column(2, "bigint"), Column(1, "int")), (Field("n", "bigint"), Field("k", "int")))
    plan = joined(joined(part, moved, 1, 1), counted(part, 0), 0, 0)
    assert aggregates(plan) == 2
    fragments = planned(plan)
    shared = next(n for n, f in enumerate(fragments) for o in f.operators if isinstance(o.node, HashAgg))
    assert sum(i.fragment == shared for f in fragments for i in f.inputs) >= 3


def expand(below: Plan) -> Expand:
    passed, other, made = Column(0, "int"), Column(1, "int"), Literal(None, "int")
    fields = tuple(Field(n, "int") for n in ("p", "q", "r"))
    return Expand(below, ((passed, other, Literal(1, "int")), (passed, made, Literal(2, "int"))), fields)


def test_a_condition_on_a_column_that_an_expand_passes_moves_below_it() -> None:
    both = Call("And", "boolean", (above(0, 1), above(1, 2)))
    assert below_expands(Filter(expand(scan("t")), both)) == Filter(expand(Filter(scan("t"), above(0, 1))), above(1, 2))
    assert below_expands(Filter(expand(scan("t")), above(0, 1))) == expand(Filter(scan("t"), above(0, 1)))


def test_a_condition_after_one_that_stays_is_guarded_by_it() -> None:
    guarded = Filter(expand(scan("t")), Call("And", "boolean", (above(2, 1), above(0, 2))))
    assert below_expands(guarded) == guarded


def test_conditions_move_through_several_expands_and_below_joins() -> None:
    twice = Filter(expand(expand(scan("t"))), above(0, 1))
    moved = expand(expand(Filter(scan("t"), above(0, 1))))
    assert below_expands(twice) == moved
    plan = counted(joined(twice, Union((twice, twice), twice.fields), 0, 0), 0)
    assert below_expands(plan) == counted(joined(moved, Union((moved, moved), twice.fields), 0, 0), 0)
