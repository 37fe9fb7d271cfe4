"""SingleRow, RowJoin and Spread: the row of a scalar subquery, and the places at which every row meets every row."""

import random
from collections import Counter

import pytest

from tests.support.jobs.executors.harness import Bench, Row, assert_netted, chunk_of, integrate, pairs_of
from tussock.jobs.executors.operator import ExpressionError
from tussock.jobs.executors.row_join import RowJoin
from tussock.jobs.executors.single_row import SingleRowNode, TooManyRowsError
from tussock.jobs.executors.spread import spread_of
from tussock.jobs.logical.nodes import Call, Column, JoinKind, Literal
from tussock.statestore.objectstore.base import ObjectStore

LEFT = ("int", "bigint")  # a value, the stream key
ROW = ("int",)
ABOVE = Call("GreaterThan", "boolean", (Column(0, "int"), Column(2, "int")))


def _changes(bench: Bench, rows: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
    return sorted(pairs_of(bench.apply(chunk_of(("int", "string"), rows))), key=lambda pair: pair[1])


def test_a_subquery_without_rows_is_a_row_of_nulls_and_a_second_row_is_an_error(objects: ObjectStore) -> None:
    bench, nothing = Bench(SingleRowNode(("int", "string")), objects), (None, None)
    assert _changes(bench, []) == [(nothing, 1)]
    assert _changes(bench, []) == []
    assert _changes(bench, [((1, "a"), 1)]) == [(nothing, -1), ((1, "a"), 1)]
    assert _changes(bench, [((2, "b"), 1), ((1, "a"), -1)]) == [((1, "a"), -1), ((2, "b"), 1)]  # one passes the other
    with pytest.raises(TooManyRowsError, match="SCALAR_SUBQUERY_TOO_MANY_ROWS"):
        _changes(bench, [((3, "c"), 1)])
    with pytest.raises(TooManyRowsError):
        _changes(bench, [((2, "b"), 1)])  # an equal row is another row
    assert _changes(bench, [((2, "b"), -1), ((2, "b"), 1)]) == []
    assert _changes(bench, [((2, "b"), -1), ((None, None), 1)]) == [((2, "b"), -1), (nothing, 1)]
    with pytest.raises(TooManyRowsError):
        _changes(bench, [((4, "d"), 1)])  # a row of NULLs is a row
    assert _changes(bench, [((None, None), -1)]) == []


@pytest.mark.parametrize("condition", [None, ABOVE], ids=["every row", "a comparison"])
@pytest.mark.parametrize("emits_row", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_left_rows_with_the_row_equal_its_definition_at_every_epoch(
    condition: Call | None, emits_row: bool, seed: int, objects: ObjectStore
) -> None:
    rng = random.Random(seed)
    bench = Bench(RowJoin(LEFT, ROW, (1,), (1,), condition, emits_row, (*LEFT, *(ROW if emits_row else ()))), objects)
    live: dict[int, Row] = {}
    row: Row | None = None
    content: Counter[Row] = Counter()
    for epoch in range(20):
        changes: list[tuple[Row, int]] = []
        for number in rng.sample(range(30), rng.choice((0, 2, 12))):
            if number in live:
                changes.append((live.pop(number), -1))
            if rng.random() < 0.7:
                live[number] = (rng.choice((None, 1, 2, 3, 4)), number)
                changes.append((live[number], 1))
        rng.shuffle(changes)
        comes: list[tuple[Row, int]] = []
        if epoch == 0 or rng.random() < 0.4:
            new: Row = (rng.choice((None, 1, 2, 3)),)
            comes = [*([] if row is None else [(row, -1)]), (new, 1)]
            row = new
        out = bench.apply(chunk_of(LEFT, changes), chunk_of(ROW, comes))
        assert_netted(out, (1,))
        content = integrate(content, out)
        assert row is not None
        (value,) = row
        passing = [
            x for x in live.values() if condition is None or (x[0] is not None and value is not None and x[0] > value)
        ]
        assert content == Counter((*x, *(row if emits_row else ())) for x in passing)


def test_a_condition_that_raises_names_the_left_row_and_the_row(objects: ObjectStore) -> None:
    share = Call("Divide", "double", (Column(0, "double"), Column(2, "double")), "ANSI")
    high = Call("GreaterThan", "boolean", (share, Literal("0.5", "double")))
    bench = Bench(RowJoin(("double", "bigint"), ("double",), (1,), (1,), high, False, ("double", "bigint")), objects)
    left = chunk_of(("double", "bigint"), [((1.0, 7), 1)])
    with pytest.raises(ExpressionError, match=r"The row: \(1\.0, 7, 0\.0\)"):
        bench.apply(left, chunk_of(("double",), [((0.0,), 1)]))


@pytest.mark.parametrize("kind", [k for k in JoinKind if k is not JoinKind.NULL_AWARE_ANTI], ids=str)
def test_each_pair_of_rows_meets_at_one_place_and_a_judged_row_has_one_place(
    kind: JoinKind, objects: ObjectStore
) -> None:
    rows = [((n, n * 7), 1) for n in range(50)]
    places = []
    for is_left in (True, False):
        out = Bench(spread_of(kind, (1,), LEFT, is_left), objects).apply(chunk_of(LEFT, rows))
        places.append({number: {row[2] for row, _ in pairs_of(out) if row[0] == number} for number in range(50)})
    left, right = places
    assert {len(left[a] & right[b]) for a in left for b in right} == {1}
    assert all(len(p) == 1 for p in left.values()) or not kind.judges_left
    assert all(len(p) == 1 for p in right.values()) or not kind.judges_right
    used = set().union(*left.values())
    assert len(used) == (1 if kind is JoinKind.FULL else 16 if kind is JoinKind.INNER else 8)
