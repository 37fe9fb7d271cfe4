"""ntile alone in a window, under random changes, against Spark's rule: the first tiles have one row more."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.support.jobs.executors.harness import Bench, Row, assert_netted, chunk_of, integrate, pairs_of
from tussock.jobs.executors import over_window, value_walk
from tussock.jobs.executors.base import NO_ROW, TWO_ROWS, ChangeError
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.over_window import OverWindow
from tussock.jobs.executors.window_call import FrameEnd, Over
from tussock.jobs.logical.nodes import FrameEdge, WindowFunction
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.table.state_table import StateTable

TYPES = ("string", "int", "bigint", "string")
GROUP, ORDER, KEY, TEXT = range(len(TYPES))
FRAME = (True, FrameEnd(FrameEdge.UNBOUNDED), FrameEnd(FrameEdge.CURRENT))


def tiles_node(*tiles: int, partition: tuple[int, ...] = (GROUP,), descending: bool = False) -> OverWindow:
    calls = tuple(Over(WindowFunction.NTILE, (), None, "int", *FRAME, number) for number in tiles)
    order = (Order(ORDER, descending, descending),)
    return OverWindow(partition, order, (KEY,), partition, calls, TYPES, (*TYPES, *("int" for _ in tiles)))


def answer(node: OverWindow, live: Sequence[Row]) -> Counter[Row]:
    """All rows with their tiles, dealt out one by one."""
    groups: dict[Row, list[Row]] = {}
    for row in live:
        groups.setdefault(tuple(row[c] for c in node.partition), []).append(row)
    found: Counter[Row] = Counter()
    (order,) = node.order
    for rows in groups.values():
        rows.sort(key=lambda row: row[KEY])
        rows.sort(key=lambda row: (row[ORDER] is not None, row[ORDER] or 0), reverse=order.descending)
        if order.descending:  # `reverse` keeps equal rows in their sequence
            assert order.nulls_last
        dealt = []
        for call in node.calls:
            sizes = [len(rows) // call.number + (i < len(rows) % call.number) for i in range(call.number)]
            dealt.append([i + 1 for i, size in enumerate(sizes) for _ in range(size)])
        found.update((*row, *numbers) for row, *numbers in zip(rows, *dealt, strict=True))
    return found


def run_history(bench: Bench, seed: int, epochs: int) -> None:
    """Groups of two sizes; inserts, deletes and updates of any row, at one end of the order, or of equal rows."""
    node, rng, live, content = bench.node, random.Random(seed), dict[int, Row](), Counter[Row]()
    assert isinstance(node, OverWindow)
    for epoch in range(epochs):
        low, high = rng.choice(((0, 1000), (0, 1000), (990, 1000), (0, 3), (500, 501)))
        count = 120 if epoch == 0 else rng.choice((1, 2, 5, 60))
        changed = rng.sample(range(200), count)
        changes = [(live.pop(key), -1) for key in changed if key in live]
        for key in changed:
            if rng.random() < (0.9 if epoch == 0 else 0.6):
                live[key] = (
                    rng.choice(("a", "a", "a", "bb", None)),
                    rng.choice((None, *[rng.randint(low, high)] * 9)),
                    key,
                    f"{epoch}",
                )
                changes.append((live[key], 1))
        if epoch == epochs - 2:
            changes = [(row, -1) for row in content_rows(content)]
            live = {}
        rng.shuffle(changes)
        pieces = bench.pieces(chunk_of(TYPES, changes))
        keys = [{row[KEY] for row, _ in pairs_of(piece)} for piece in pieces]
        assert sum(map(len, keys)) == len(set().union(*keys)), "each key is in one piece"
        for piece in pieces:
            assert_netted(piece, (KEY,))
            content = integrate(content, piece)
        assert content == answer(node, list(live.values())), f"seed {seed}, epoch {epoch}"


def content_rows(content: Counter[Row]) -> list[Row]:
    return [row[: len(TYPES)] for row in content]


NODES = {
    "thirds": tiles_node(3),
    "one tile": tiles_node(1),
    "two calls, descending": tiles_node(4, 9, descending=True),
    "no partition": tiles_node(5, partition=()),
    "more tiles than rows": tiles_node(300),
}


@pytest.mark.parametrize("name", NODES)
def test_tiles_equal_rows_that_are_dealt_out(name: str, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_walk, "_FIRST_STEP", 1)
    monkeypatch.setattr(over_window, "PIECE_ROWS", 12)
    run_history(Bench(NODES[name], objects), 1, 14)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(50))
def test_tiles_of_long_histories_equal_rows_that_are_dealt_out(seed: int, objects: ObjectStore) -> None:
    run_history(Bench([*NODES.values()][seed % len(NODES)], objects), 100 + seed, 60)


def test_new_rows_read_the_rows_that_change_their_tile_and_no_others(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, read = Bench(tiles_node(4), objects), list[int]()
    bench.apply(chunk_of(TYPES, [(("a", n, n, ""), 1) for n in range(4_000)]))
    scan = StateTable.scan_between

    def count_and_scan(*args: object) -> object:
        found = scan(*args)  # type: ignore[arg-type]
        read.append(len(found.keys))
        return found

    monkeypatch.setattr(StateTable, "scan_between", count_and_scan)
    emitted = bench.apply(chunk_of(TYPES, [(("a", 17, key, ""), 1) for key in (5_000, 5_001)]))
    changed = {row[KEY]: row[-1] for row, weight in pairs_of(emitted) if weight == 1}
    assert changed == {5_000: 1, 5_001: 1, 999: 2}  # the first two tiles have one row more
    assert sum(read) <= 6


@pytest.mark.parametrize(("weight", "key", "problem"), [(-1, 500, NO_ROW), (1, 7, TWO_ROWS)])
def test_a_change_that_contradicts_the_rows_is_an_error(
    weight: int, key: int, problem: str, objects: ObjectStore
) -> None:
    bench = Bench(tiles_node(2), objects)
    bench.apply(chunk_of(TYPES, [(("a", n, n, ""), 1) for n in range(100)]))
    with pytest.raises(ChangeError, match=problem):
        bench.apply(chunk_of(TYPES, [(("a", key, key, ""), weight)]))
