"""TopN under random changes, against sorting everything in plain Python, epoch by epoch."""

import random
from collections import Counter
from functools import cmp_to_key
from typing import Any

import pytest

from jobs.executors.order import Order
from jobs.executors.top_n import TopN
from statestore.objectstore.base import ObjectStore
from tests.jobs.executors.harness import NAN, Bench, Row, assert_netted, chunk_of, integrate

TYPES = ("double", "string", "bigint")


def _compare(a: Any, b: Any) -> int:
    """Spark's order without NULLs: NaN above all, -0.0 equal to 0.0."""
    if a != a or b != b:
        return int(a != a) - int(b != b)
    return int(a > b) - int(a < b)


def _order(node: TopN) -> Any:
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


def _node(order: tuple[Order, ...], limit: int, offset: int) -> TopN:
    return TopN(order, limit, offset, (2,), TYPES)


@pytest.mark.parametrize(
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
@pytest.mark.parametrize("seed", [1, 2])
def test_the_top_equals_the_head_of_all_rows_sorted(node: TopN, seed: int, objects: ObjectStore) -> None:
    rng, bench = random.Random(seed), Bench(node, objects)
    live: dict[int, Row] = {}
    content: Counter[Row] = Counter()
    for epoch in range(15):
        changes: list[tuple[Row, int]] = []
        for key in rng.sample(range(30), rng.choice((0, 1, 8, 20)) if epoch else 20):
            if key in live and (rng.random() < 0.8 or epoch > 12):
                changes.append((live.pop(key), -1))
            if key not in live and rng.random() < 0.6:
                live[key] = (rng.choice((0.0, -0.0, 1.5, NAN, None, 2.0)), rng.choice(("a", "b", None)), key)
                changes.append((live[key], 1))
        rng.shuffle(changes)
        emitted = bench.apply(chunk_of(TYPES, changes))
        assert_netted(emitted, (2,))
        content = integrate(content, emitted)
        assert content == Counter(sorted(live.values(), key=_order(node))[node.offset : node.offset + node.limit])
