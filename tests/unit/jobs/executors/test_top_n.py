"""TopN under random changes, compared at each epoch with plain Python, which sorts all rows."""

import random
from collections import Counter
from functools import cmp_to_key
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.support.jobs.executors.harness import NAN, Bench, Row, assert_netted, chunk_of, integrate
from tussock.jobs.executors import first_rows
from tussock.jobs.executors.base import ChangeError
from tussock.jobs.executors.first_rows import FirstRows
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.top_n import TopNNode
from tussock.statestore.objectstore.base import ObjectStore

TYPES = ("double", "string", "bigint")


def _compare(a: Any, b: Any) -> int:
    """Spark's order without NULLs: NaN after all numbers, -0.0 equal to 0.0."""
    if a != a or b != b:
        return int(a != a) - int(b != b)
    return int(a > b) - int(a < b)


def _order(node: TopNNode) -> Any:
    def compare(one: Row, two: Row) -> int:
        for by in (*node.order, *(Order(k, False, False) for k in node.stream_key)):
            a, b = one[by.column], two[by.column]
            if a is None or b is None:
                side = int(a is None) - int(b is None)
                sign = side if by.nulls_last else -side
            else:
                sign = _compare(a, b) * (-1 if by.descending else 1)
            if sign:
                return sign
        return 0

    return cmp_to_key(compare)


def _node(order: tuple[Order, ...], limit: int, offset: int) -> TopNNode:
    return TopNNode(order, limit, offset, (2,), TYPES)


NODES = pytest.mark.parametrize(
    "node",
    [
        pytest.param(_node((Order(0, True, True),), 3, 0), id="descending, nulls last"),
        pytest.param(_node((Order(0, False, False), Order(1, True, False)), 4, 2), id="two columns and an offset"),
        pytest.param(_node((Order(1, False, True), Order(2, True, True)), 5, 0), id="the stream key descends"),
        pytest.param(_node((), 2, 1), id="no order but the stream key"),
        pytest.param(_node((Order(0, True, False), Order(0, False, False)), 1000, 0), id="a limit that holds all"),
        pytest.param(_node((Order(0, False, False),), 0, 0), id="nothing"),
    ],
)


@NODES
@pytest.mark.parametrize("seed", [1, 2])
def test_the_top_equals_the_head_of_all_rows_sorted(node: TopNNode, seed: int, objects: ObjectStore) -> None:
    rng, bench = random.Random(seed), Bench(node, objects)
    live: dict[int, Row] = {}
    content: Counter[Row] = Counter()
    for epoch in range(15):
        changes: list[tuple[Row, int]] = []
        for key in rng.sample(range(30), rng.choice((0, 1, 8, 20)) if epoch else 20):
            if key in live and (rng.random() < 0.8 or epoch > 12):
                changes.append((live.pop(key), -1))
            if key not in live and rng.random() < 0.6:
                live[key] = _random_row(rng, key)
                changes.append((live[key], 1))
        rng.shuffle(changes)
        emitted = bench.apply(chunk_of(TYPES, changes))
        assert_netted(emitted, (2,))
        content = integrate(content, emitted)
        assert content == Counter(sorted(live.values(), key=_order(node))[node.offset : node.offset + node.limit])


@NODES
@pytest.mark.parametrize("sent", [False, True])
def test_append_only_input_keeps_only_the_first_rows(node: TopNNode, sent: bool, objects: ObjectStore) -> None:
    """`sent`: by senders that omit rows that cannot be among the first."""
    node = msgspec.structs.replace(node, append_only=True)
    senders = [Bench(FirstRows(node.key, node.first_count, TYPES), objects) for _ in range(2)]
    rng, bench = random.Random(7), Bench(node, objects)
    live: list[Row] = []
    content: Counter[Row] = Counter()
    for _ in range(12):
        rows = [_random_row(rng, len(live) + i) for i in range(rng.choice((0, 1, 5, 30)))]
        live += rows
        halves = [chunk_of(TYPES, [(row, 1) for row in rows[half::2]]) for half in range(2)]
        if sent:
            halves = [sender.apply(half) for sender, half in zip(senders, halves, strict=True)]
        emitted = bench.apply(pa.concat_tables(halves))
        assert_netted(emitted, (2,))
        content = integrate(content, emitted)
        assert content == Counter(sorted(live, key=_order(node))[node.offset : node.offset + (node.limit or 0)])
        (table,) = bench.tables()
        assert sum(rows.num_rows for rows in table.scan()) == min(len(live), node.first_count)


def test_all_rows_but_the_first_ones_of_append_only_input(objects: ObjectStore) -> None:
    node = TopNNode((Order(0, True, True),), None, 3, (2,), TYPES, append_only=True)
    rng, bench = random.Random(3), Bench(node, objects)
    live: list[Row] = []
    content: Counter[Row] = Counter()
    for _ in range(8):
        rows = [_random_row(rng, len(live) + i) for i in range(rng.choice((1, 2, 20)))]
        live += rows
        content = integrate(content, bench.apply(chunk_of(TYPES, [(row, 1) for row in rows])))
        assert content == Counter(sorted(live, key=_order(node))[3:])


def test_senders_look_at_more_rows_than_they_encode_at_once(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_rows, "_PIECE_ROWS", 7)
    rng, node = random.Random(5), _node((Order(0, True, False),), 4, 0)
    rows = [_random_row(rng, i) for i in range(200)]
    sent = Bench(FirstRows(node.key, 4, TYPES), objects).apply(chunk_of(TYPES, [(row, 1) for row in rows]))
    assert integrate(Counter(), sent) == Counter(sorted(rows, key=_order(node))[:4])


def test_a_repeated_row_is_an_error(objects: ObjectStore) -> None:
    bench = Bench(TopNNode((Order(0, True, True),), 3, 0, (2,), TYPES, append_only=True), objects)
    once = chunk_of(TYPES, [((1.0, "a", 5), 1)])
    bench.apply(once)
    with pytest.raises(ChangeError, match="two live rows with one key"):
        bench.apply(once)


def _random_row(rng: random.Random, key: int) -> Row:
    return (rng.choice((0.0, -0.0, 1.5, NAN, None, 2.0)), rng.choice(("a", "b", None)), key)
