"""The columns that a view's columns come from, and the columns that decide its rows, plan by plan."""

from tests.support.jobs.plan.catalogs import counted, joined, scan
from tussock.jobs.logical.nodes import (
    AggCall,
    AggFunction,
    Aggregate,
    Call,
    Column,
    Field,
    Filter,
    Frame,
    FrameBound,
    FrameEdge,
    Join,
    JoinKind,
    Literal,
    Plan,
    Project,
    SortKey,
    TopN,
    Union,
    Values,
    Window,
    WindowCall,
    WindowFunction,
)
from tussock.jobs.schedule.column_lineage import ColumnOrigin, How, trace_plan

A, B, C = (Column(i, "int") for i in range(3))
PLUS = Call("Add", "int", (A, B), "ANSI")
POSITIVE = Call("GreaterThan", "boolean", (C, Literal(0, "int")))


def found(plan: Plan) -> tuple[list[set[str]], set[str]]:
    """As text: for each column, then for the rows."""

    def text(origins: frozenset[ColumnOrigin]) -> set[str]:
        return {f"{o.relation}.{'kga'[o.column]} {o.how.value}" for o in origins}

    made = trace_plan(plan)
    assert len(made.columns) == len(plan.fields)
    return [text(column) for column in made.columns], text(made.rows)


def test_lineage_distinguishes_values_expressions_and_constants() -> None:
    plan = Project(scan("t"), (B, PLUS, Literal(1, "int")), (Field("g", "int"), Field("s", "int"), Field("one", "int")))
    assert found(plan) == ([{"t.g IDENTITY"}, {"t.k TRANSFORMATION", "t.g TRANSFORMATION"}, set()], set())


def test_filters_groups_orders_and_keys_of_joins_decide_about_rows() -> None:
    assert found(Filter(scan("t"), POSITIVE))[1] == {"t.a FILTER"}
    assert found(counted(scan("t"), 1)) == ([{"t.g IDENTITY"}, set()], {"t.g GROUP_BY"})
    assert found(TopN(scan("t"), (SortKey(B, True, False),), 3))[1] == {"t.g SORT"}
    columns, rows = found(joined(scan("t"), scan("u"), 1, 0))
    assert columns == [{f"{t}.{c} IDENTITY"} for t in "tu" for c in "kga"]
    assert rows == {"t.g JOIN", "u.k JOIN"}
    semi = Join(scan("t"), scan("u"), JoinKind.SEMI, (A,), (B,), (False,))
    assert found(semi) == ([{f"t.{c} IDENTITY"} for c in "kga"], {"t.k JOIN", "u.g JOIN"})


def test_lineage_of_an_aggregate_passes_through_expressions_and_includes_its_filter_and_order() -> None:
    call = AggCall(AggFunction.LISTAGG, "int", (A,), filter=POSITIVE, order=(SortKey(B, False, False),))
    total = Aggregate(scan("t"), (), (call,), (Field("s", "int"),))
    twice = Project(total, (Call("Add", "int", (A, Literal(1, "int")), "ANSI"),), (Field("s", "int"),))
    assert found(twice) == ([{"t.k AGGREGATION", "t.g SORT", "t.a FILTER"}], set())


def test_an_existence_column_depends_on_the_keys_and_removes_no_row() -> None:
    exists = Join(Filter(scan("t"), POSITIVE), Filter(scan("u"), POSITIVE), JoinKind.EXISTENCE, (A,), (B,), (False,))
    columns, rows = found(exists)
    assert columns[3] == {"t.k JOIN", "u.g JOIN", "u.a FILTER"}
    assert rows == {"t.a FILTER"}


def test_a_window_adds_columns_that_its_partition_and_order_decide() -> None:
    frame = Frame(True, FrameBound(FrameEdge.UNBOUNDED), FrameBound(FrameEdge.CURRENT))
    call = WindowCall(WindowFunction.SUM, "bigint", (C,), frame)
    plan = Window(scan("t"), (B,), (SortKey(A, False, False),), (call,), (*scan("t").fields, Field("s", "bigint")))
    columns, rows = found(plan)
    assert columns[3] == {"t.a TRANSFORMATION", "t.g WINDOW", "t.k WINDOW"}
    assert rows == set()


def test_a_union_is_made_of_all_its_inputs_and_constants_of_none() -> None:
    constants = Values(1, ((1,), (2,), (3,)), scan("t").fields)
    plan = Union((scan("t"), Filter(scan("u"), POSITIVE), constants), scan("t").fields)
    assert found(plan) == ([{f"{t}.{c} IDENTITY" for t in "tu"} for c in "kga"], {"u.a FILTER"})
    assert all(how.is_direct == (how in (How.IDENTITY, How.TRANSFORMATION, How.AGGREGATION)) for how in How)
