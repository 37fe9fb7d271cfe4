"""Merged projections, and the columns that a top-n keeps."""

import pytest

from tests.support.jobs.plan.catalogs import catalog_of, scan, source, table, view
from tussock.jobs.catalog.definition import ViewDefinition, definition_of
from tussock.jobs.executors import first_rows, hash_agg, top_n
from tussock.jobs.executors import project as project_node
from tussock.jobs.executors.materialize import Materialize
from tussock.jobs.executors.over_window import OverWindow
from tussock.jobs.executors.registry import Node
from tussock.jobs.logical.nodes import (
    AggCall,
    AggFunction,
    Aggregate,
    Call,
    Column,
    Expand,
    Expr,
    Field,
    Filter,
    Frame,
    FrameBound,
    FrameEdge,
    Literal,
    Plan,
    Project,
    SortKey,
    TopN,
    Window,
    WindowCall,
    WindowFunction,
)
from tussock.jobs.plan.fragments import Dispatch
from tussock.jobs.plan.streams.builder import fuse_projections


def column(i: int) -> Column:
    return Column(i, "int")


def add(a: Expr, b: Expr) -> Call:
    return Call("Add", "int", (a, b), "ANSI")


def project(plan: Plan, *exprs: Expr) -> Project:
    return Project(plan, exprs, tuple(Field(f"x{i}", e.type) for i, e in enumerate(exprs)))


def operators(plan: Plan) -> list[Node]:
    definition = definition_of(catalog_of(table("t"), view("v", plan)).live_relations()[-1])
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
    assert fuse_projections((column(0), column(1), column(0), column(1)), lower) == (
        column(2),
        lower[1],
        column(2),
        lower[1],
    )


def test_two_projections_of_a_query_are_one_operator() -> None:
    plan = project(
        project(scan("t"), add(column(1), column(2)), column(0)), column(1), add(column(0), Literal(1, "int"))
    )
    projections = [n for n in operators(plan) if isinstance(n, project_node.ProjectNode)]
    assert [p.exprs for p in projections] == [(column(0), add(add(column(1), column(2)), Literal(1, "int")))]


def test_a_top_n_by_columns_of_its_rows_carries_no_copy_of_them() -> None:
    plan = TopN(scan("t"), (SortKey(column(2), True, True), SortKey(column(0), False, False)), 5)
    (top,) = [n for n in operators(plan) if isinstance(n, top_n.TopNNode)]
    assert top.types == ("int", "int", "int")
    assert [(o.column, o.descending) for o in top.order] == [(2, True), (0, False)]


def test_a_top_n_by_an_expression_carries_it_behind_the_visible_columns() -> None:
    by = add(column(1), column(2))
    (top,) = [n for n in operators(TopN(scan("t"), (SortKey(by, True, True),), 5)) if isinstance(n, top_n.TopNNode)]
    assert [o.column for o in top.order] == [3]


def _several_distincts() -> Plan:
    """SELECT c1, count(DISTINCT c0), count(DISTINCT c2) GROUP BY c1, as Catalyst rewrites it.

    It repeats the rows once per DISTINCT, removes duplicate values, and counts.
    """
    nothing, fields = Literal(None, "int"), tuple(Field(n, "int") for n in ("g", "a", "b", "gid"))
    rows = ((column(1), column(0), nothing, Literal(1, "int")), (column(1), nothing, column(2), Literal(2, "int")))
    unique = Aggregate(Expand(scan("t"), rows, fields), tuple(column(i) for i in range(4)), (), fields)
    calls = tuple(AggCall(AggFunction.COUNT, "bigint", (column(i),)) for i in (1, 2))
    return Aggregate(unique, (column(0),), calls, (fields[0], Field("n", "bigint"), Field("m", "bigint")))


def test_values_of_several_distincts_are_on_their_groups_units() -> None:
    definition = definition_of(catalog_of(table("t"), view("v", _several_distincts())).live_relations()[-1])
    assert isinstance(definition, ViewDefinition)
    exchanges = [i for f in definition.fragments for i in f.inputs if i.dispatch is Dispatch.HASH]
    assert [i.keys for i in exchanges] == [(0,)]  # once, by the group's key
    (last,) = [f for f in definition.fragments if any(isinstance(o.node, hash_agg.HashAgg) for o in f.operators)]
    assert [o.node.keys for o in last.operators if isinstance(o.node, hash_agg.HashAgg)] == [(0, 1, 2, 3), (0,)]


@pytest.mark.parametrize("only_appends", [True, False])
def test_append_only_input_sends_only_its_first_rows_to_a_top_n(only_appends: bool) -> None:
    plan = TopN(scan("t"), (SortKey(column(1), True, True),), 5, 2)
    definition = definition_of(
        catalog_of(source("t") if only_appends else table("t"), view("v", plan)).live_relations()[-1]
    )
    assert isinstance(definition, ViewDefinition)
    sent, kept = definition.fragments[:-1], definition.fragments[-1]
    senders = [o.node for f in sent for o in f.operators if isinstance(o.node, first_rows.FirstRows)]
    (top,) = [o.node for o in kept.operators if isinstance(o.node, top_n.TopNNode)]
    assert top.append_only is only_appends
    assert [(n.limit, n.key) for n in senders] == ([(7, top.key)] if only_appends else [])


def over(*functions: WindowFunction) -> Plan:
    """A window over the column a, ordered by the column b."""
    frame = Frame(False, FrameBound(FrameEdge.UNBOUNDED), FrameBound(FrameEdge.CURRENT))
    calls = tuple(WindowCall(function, "int", (), frame, 4) for function in functions)
    below = scan("t")
    fields = (*below.fields, *(Field(f"c{i}", "int") for i in range(len(calls))))
    return Window(below, (column(1),), (SortKey(column(2), False, False),), calls, fields)


def window_functions(plan: Plan) -> list[list[WindowFunction]]:
    """The functions of each window operator."""
    return [[call.function for call in node.calls] for node in operators(plan) if isinstance(node, OverWindow)]


def test_ntile_follows_functions_that_read_no_whole_partitions() -> None:
    rank, ntile = WindowFunction.RANK, WindowFunction.NTILE
    assert window_functions(over(ntile, rank, ntile)) == [[rank], [ntile, ntile]]
    assert window_functions(over(ntile)) == [[ntile]]


def test_ntile_stays_with_functions_that_read_whole_partitions() -> None:
    """A second operator would store the rows again, and save no read."""
    share, ntile, rank = WindowFunction.PERCENT_RANK, WindowFunction.NTILE, WindowFunction.RANK
    assert window_functions(over(ntile, share, rank)) == [[ntile, share, rank]]


GROUPS = Aggregate(scan("t"), (column(1),), (), (Field("g", "int"),))


@pytest.mark.parametrize(
    ("plan", "checked"),
    [
        (GROUPS, False),
        (Filter(project(GROUPS, add(column(0), Literal(1, "int"))), Call("IsNotNull", "boolean", (column(0),))), False),
        (scan("t"), True),
        (TopN(GROUPS, (SortKey(column(0), False, False),), 3), True),
    ],
)
def test_only_rows_of_an_aggregation_are_stored_unchecked(plan: Plan, checked: bool) -> None:
    (stored,) = [node for node in operators(plan) if isinstance(node, Materialize)]
    assert stored.checked == checked
