"""Column pruning on plans that are wider than Catalyst's. The expected plans are written by hand."""

from tussock.jobs.logical.nodes import (
    AggCall,
    Aggregate,
    Call,
    Column,
    Expr,
    Field,
    Filter,
    Generate,
    Generator,
    Join,
    JoinKind,
    Literal,
    Plan,
    Project,
    Scan,
    SortKey,
    TopN,
)
from tussock.jobs.sql.prune import prune_scans


def _scan(relation: str, *columns: int) -> Scan:
    return Scan(relation, columns, tuple(Field(f"{relation}{i}", "int") for i in columns))


def _column(index: int) -> Column:
    return Column(index, "int")


def _greater(a: Expr, b: Expr) -> Call:
    return Call("GreaterThan", "boolean", (a, b))


def _pick(plan: Plan, *columns: int) -> Project:
    return Project(plan, tuple(_column(i) for i in columns), tuple(Field(f"x{i}", "int") for i in columns))


def test_both_sides_of_a_join_narrow_and_its_columns_move() -> None:
    wide = Join(
        _scan("l", 0, 1, 2),
        _scan("r", 0, 1, 2),
        JoinKind.INNER,
        (_column(1),),
        (_column(2),),
        (False,),
        _greater(_column(5), _column(2)),
    )
    narrow = Join(
        _scan("l", 1, 2),
        _scan("r", 1, 2),
        JoinKind.INNER,
        (_column(0),),
        (_column(1),),
        (False,),
        _greater(_column(3), _column(1)),
    )
    pruned = prune_scans(_pick(wide, 4))
    assert pruned == Project(narrow, (_column(2),), (Field("x4", "int"),))


def test_a_filter_and_a_top_n_keep_their_columns_below_a_projection() -> None:
    first = TopN(
        Filter(_scan("t", 0, 1, 2, 3), _greater(_column(3), Literal(1, "int"))), (SortKey(_column(1), True, True),), 5
    )
    narrow = TopN(
        Filter(_scan("t", 0, 1, 3), _greater(_column(2), Literal(1, "int"))), (SortKey(_column(1), True, True),), 5
    )
    assert prune_scans(_pick(first, 0)) == Project(narrow, (_column(0),), (Field("x0", "int"),))


def test_a_generator_emits_only_columns_that_are_read_later() -> None:
    lists = Scan("t", (0, 1, 2), (Field("a", "int"), Field("b", "int"), Field("xs", "array<int>")))
    made = (Field("e", "int"),)
    wide = Generate(lists, Generator.EXPLODE, Column(2, "array<int>"), False, made)
    narrow = Generate(
        Scan("t", (1, 2), lists.fields[1:]), Generator.EXPLODE, Column(1, "array<int>"), False, made, (0,)
    )
    assert prune_scans(_pick(wide, 3, 1)) == Project(
        narrow, (_column(1), _column(0)), (Field("x3", "int"), Field("x1", "int"))
    )
    assert narrow.fields == (Field("b", "int"), Field("e", "int"))
    assert prune_scans(_pick(narrow, 1)) == Project(
        Generate(Scan("t", (2,), lists.fields[2:]), Generator.EXPLODE, Column(0, "array<int>"), False, made, ()),
        (_column(0),),
        (Field("x1", "int"),),
    )
    assert prune_scans(wide) == wide


def test_an_aggregate_reads_its_keys_arguments_and_filters() -> None:
    call = AggCall("Sum", "bigint", (_column(3),), "ANSI", filter=_greater(_column(2), Literal(1, "int")))
    fields = (Field("k", "int"), Field("s", "bigint"))
    moved = AggCall("Sum", "bigint", (_column(2),), "ANSI", filter=_greater(_column(1), Literal(1, "int")))
    assert prune_scans(Aggregate(_scan("t", 0, 1, 2, 3, 4), (_column(1),), (call,), fields)) == Aggregate(
        _scan("t", 1, 2, 3), (_column(0),), (moved,), fields
    )


def test_unused_calls_of_an_aggregate_are_pruned() -> None:
    least, most = (AggCall(f, "int", (_column(c),)) for f, c in (("Min", 1), ("Max", 2)))
    fields = (Field("k", "int"), Field("lo", "int"), Field("hi", "int"))
    pruned = prune_scans(_pick(Aggregate(_scan("t", 0, 1, 2), (_column(0),), (least, most), fields), 2, 0))
    kept = Aggregate(_scan("t", 0, 2), (_column(0),), (AggCall("Max", "int", (_column(1),)),), (fields[0], fields[2]))
    assert pruned == Project(kept, (_column(1), _column(0)), (Field("x2", "int"), Field("x0", "int")))


def test_the_one_row_of_an_aggregate_without_keys_exists_even_if_unused() -> None:
    calls = tuple(AggCall(f, "int", (_column(0),)) for f in ("Min", "Max"))
    one = Aggregate(_scan("t", 0), (), calls, (Field("lo", "int"), Field("hi", "int")))
    pruned = prune_scans(Project(one, (Literal(1, "int"),), (Field("x", "int"),)))
    assert pruned == Project(
        Aggregate(_scan("t", 0), (), calls[:1], one.fields[:1]), (Literal(1, "int"),), (Field("x", "int"),)
    )


def test_an_aggregate_that_computes_nothing_has_its_one_row() -> None:
    """SELECT 42 HAVING true."""
    row = Project(Aggregate(_scan("t", 0, 1), (), (), ()), (Literal(42, "int"),), (Field("x", "int"),))
    assert prune_scans(row) == Project(
        Aggregate(Scan("t", (), ()), (), (), ()), (Literal(42, "int"),), (Field("x", "int"),)
    )


def test_a_projection_that_only_picks_a_scans_columns_is_the_scan() -> None:
    fields = (Field("t2", "int"), Field("t0", "int"))
    assert prune_scans(Project(_scan("t", 0, 1, 2), (_column(2), _column(0)), fields)) == Scan("t", (2, 0), fields)


def test_a_scan_of_which_nothing_is_read_has_no_columns() -> None:
    count = Aggregate(_scan("t", 0, 1), (), (AggCall("Count", "bigint", ()),), (Field("n", "bigint"),))
    assert prune_scans(count) == Aggregate(Scan("t", (), ()), (), count.calls, count.fields)


def test_a_plan_that_uses_all_columns_is_unchanged() -> None:
    plan = Filter(_scan("t", 0, 1), _greater(_column(0), _column(1)))
    assert prune_scans(plan) == plan
