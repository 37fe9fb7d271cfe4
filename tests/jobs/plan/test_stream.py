"""Projections that become one, and what a top-n carries along."""

from jobs.executors import project as project_node
from jobs.executors import top_n
from jobs.executors.registry import Node
from jobs.plan.definition import ViewDefinition, definition_of
from jobs.plan.streams.builder import fuse_projections
from jobs.sql.logical import Call, Column, Expr, Field, Literal, Plan, Project, SortKey, TopN
from tests.jobs.plan.catalogs import catalog_of, scan, table, view


def column(i: int) -> Column:
    return Column(i, "int")


def add(a: Expr, b: Expr) -> Call:
    return Call("Add", "int", (a, b), "ANSI")


def project(plan: Plan, *exprs: Expr) -> Project:
    return Project(plan, exprs, tuple(Field(f"x{i}", e.type) for i, e in enumerate(exprs)))


def operators(plan: Plan) -> list[Node]:
    definition = definition_of(catalog_of(table("t"), view("v", plan)).live()[-1])
    assert isinstance(definition, ViewDefinition)
    return [o.node for fragment in definition.fragments for o in fragment.operators]


def test_an_expression_read_once_moves_into_the_upper_projection() -> None:
    lower = (column(2), add(column(0), Literal(1, "int")))
    assert fuse_projections((add(column(1), column(0)), column(0)), lower) == (add(lower[1], column(2)), column(2))


def test_an_expression_read_twice_is_not_computed_twice() -> None:
    lower = (add(column(0), Literal(1, "int")),)
    assert fuse_projections((add(column(0), column(0)),), lower) is None
    assert fuse_projections((column(0), column(0)), lower) is None


def test_columns_and_literals_may_be_read_as_often_as_one_likes() -> None:
    lower = (column(2), Literal(7, "int"))
    assert fuse_projections((column(0), column(1), column(0), column(1)), lower) == (column(2), lower[1], column(2), lower[1])


def test_two_projections_of_a_query_are_one_operator() -> None:
    plan = project(project(scan("t"), add(column(1), column(2)), column(0)), column(1), add(column(0), Literal(1, "int")))
    projections = [n for n in operators(plan) if isinstance(n, project_node.Project)]
    assert [p.exprs for p in projections] == [(column(0), add(add(column(1), column(2)), Literal(1, "int")))]


def test_a_top_n_by_columns_of_its_rows_carries_no_copy_of_them() -> None:
    plan = TopN(scan("t"), (SortKey(column(2), True, True), SortKey(column(0), False, False)), 5)
    (top,) = [n for n in operators(plan) if isinstance(n, top_n.TopN)]
    assert top.types == ("int", "int", "int")
    assert [(o.column, o.descending) for o in top.order] == [(2, True), (0, False)]


def test_a_top_n_by_an_expression_carries_it_behind_the_visible_columns() -> None:
    by = add(column(1), column(2))
    (top,) = [n for n in operators(TopN(scan("t"), (SortKey(by, True, True),), 5)) if isinstance(n, top_n.TopN)]
    assert [o.column for o in top.order] == [3]
