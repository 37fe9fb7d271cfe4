"""HashJoin of every kind under random changes of both sides, compared at each epoch with a nested loop in plain
Python.
"""

import random
import resource
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.jobs.executors.harness import NAN, Bench, Row, assert_netted, chunk_of, integrate, pairs_of
from tussock.jobs.executors import hash_join
from tussock.jobs.executors.base import ChangeError
from tussock.jobs.executors.hash_join import HashJoin, joined_types
from tussock.jobs.executors.operator import ExpressionError
from tussock.jobs.executors.single_row import TooManyRowsError
from tussock.jobs.logical.nodes import Call, Column, JoinKind, Literal
from tussock.statestore.objectstore.base import ObjectStore

SIDE = ("int", "string", "double", "bigint")  # three key columns, then the stream key
SMALLER = Call("LessThan", "boolean", (Column(3, "bigint"), Column(7, "bigint")))


def _node(
    left: tuple[int, ...], right: tuple[int, ...], null_safe: tuple[bool, ...], condition: Call | None = None
) -> HashJoin:
    return HashJoin(SIDE, SIDE, left, right, null_safe, (3,), (3,), condition, SIDE + SIDE)


def _of_kind(node: HashJoin, kind: JoinKind) -> HashJoin:
    return msgspec.structs.replace(node, kind=kind, types=joined_types(kind, SIDE, SIDE, node.left_keys))


def _equal(a: Any, b: Any, null_safe: bool) -> bool:
    if a is None or b is None:
        return null_safe and a is b
    return bool(a == b or (a != a and b != b))


def _joined(node: HashJoin, left: Counter[Row], right: Counter[Row], keep: Callable[[Row], bool]) -> Counter[Row]:
    """The join's rows; for a full join, without its hidden columns."""

    def match(one: Row, two: Row) -> bool:
        keys = zip(node.left_keys, node.right_keys, node.null_safe, strict=True)
        return all(_equal(one[k], two[r], safe) for k, r, safe in keys) and keep(one + two)

    kind, nothing = node.kind, (None,) * len(SIDE)
    alone = [one for one in left if not any(match(one, two) for two in right)]
    if kind is JoinKind.ANTI:
        return Counter(alone)
    if kind is JoinKind.SEMI:
        return Counter(left) - Counter(alone)
    if kind is JoinKind.EXISTENCE:
        return Counter((*one, one not in alone) for one in left)
    rows = Counter(one + two for one in left for two in right if match(one, two))
    if kind in (JoinKind.LEFT, JoinKind.FULL):
        rows += Counter(one + nothing for one in alone)
    if kind in (JoinKind.RIGHT, JoinKind.FULL):
        rows += Counter(nothing + two for two in right if not any(match(one, two) for one in left))
    return rows


class _Side:
    """One input: rows that are inserted, deleted or change their key."""

    def __init__(self, seed: int) -> None:
        self.rng, self.live, self.number = random.Random(seed), dict[int, Row](), 0

    def _row(self, number: int) -> Row:
        pick = self.rng.choice
        return (pick((1, 2, 3, None)), pick(("a", "b", "", None)), pick((0.0, -0.0, 1.5, NAN, None)), number)

    def changes(self) -> list[tuple[Row, int]]:
        out: list[tuple[Row, int]] = []
        for _ in range(self.rng.choice((0, 1, 12))):
            out.append((self._row(self.number), 1))
            self.live[self.number] = out[-1][0]
            self.number += 1
        for number in self.rng.sample(sorted(self.live), len(self.live) // 3):
            out.append((self.live.pop(number), -1))
            if self.rng.random() < 0.5:
                self.live[number] = self._row(number)
                out.append((self.live[number], 1))
        self.rng.shuffle(out)
        return out


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(_node((0,), (0,), (False,)), id="one key"),
        pytest.param(_node((1, 0), (1, 0), (False, True)), id="two keys, one null-safe"),
        pytest.param(_node((2,), (2,), (True,)), id="floats, null-safe"),
        pytest.param(_node((2, 1), (2, 1), (False, False), SMALLER), id="floats and strings with a condition"),
        pytest.param(_node((0, 0), (0, 0), (False, True)), id="one pair of columns twice"),
        pytest.param(_node((3, 3), (3, 3), (False, False)), id="the stream key is the join key"),
    ],
)
@pytest.mark.parametrize("kind", [k for k in JoinKind if k not in (JoinKind.NULL_AWARE_ANTI, JoinKind.SINGLE)], ids=str)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.sampled(7)
def test_joined_rows_equal_the_nested_loop_at_every_epoch(
    node: HashJoin, kind: JoinKind, seed: int, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_join, "_LEAST_PAIRS", 2)  # keys are split at any place
    monkeypatch.setattr(hash_join, "PIECE_BYTES", 1 if seed == 1 else 1 << 20)
    node = _of_kind(node, kind)
    bench, sides = Bench(node, objects), (_Side(seed), _Side(seed + 100))
    held: list[Counter[Row]] = [Counter(), Counter()]
    content: Counter[Row] = Counter()
    for _ in range(12):
        chunks = [chunk_of(SIDE, side.changes()) for side in sides]
        held = [integrate(rows, chunk) for rows, chunk in zip(held, chunks, strict=True)]
        emitted = bench.apply(*chunks)
        assert_netted(emitted, range(len(node.types)))
        content = integrate(content, emitted)
        width = len(SIDE) * (2 if kind.emits_pairs else 1) + (kind is JoinKind.EXISTENCE)
        seen = Counter({row[:width]: n for row, n in content.items()})
        assert seen == _joined(node, held[0], held[1], lambda row: node.condition is None or row[3] < row[7])
        if kind is JoinKind.FULL:
            _check_hidden(node, content)


def test_a_single_join_is_a_left_join_that_stops_at_a_second_partner(objects: ObjectStore) -> None:
    types = ("int", "bigint")
    bench = Bench(
        HashJoin(types, types, (0,), (0,), (False,), (1,), (1,), None, types + types, JoinKind.SINGLE), objects
    )

    def apply(left: list[tuple[Row, int]], right: list[tuple[Row, int]]) -> Counter[Row]:
        return Counter(dict(pairs_of(bench.apply(chunk_of(types, left), chunk_of(types, right)))))

    assert apply([((1, 10), 1), ((2, 20), 1)], [((1, 5), 1)]) == {(1, 10, 1, 5): 1, (2, 20, None, None): 1}
    assert apply([], [((1, 5), -1), ((1, 6), 1)]) == {
        (1, 10, 1, 5): -1,
        (1, 10, 1, 6): 1,
    }  # two within the epoch, one at its end
    with pytest.raises(TooManyRowsError, match=r"more than one row .* for the row \(1, 10\)"):
        apply([], [((1, 7), 1)])  # of a row that stays
    with pytest.raises(TooManyRowsError, match=r"\(2, 21\)"):
        apply([((2, 20), -1), ((2, 21), 1)], [((2, 8), 1), ((2, 9), 1)])  # of a new row
    assert apply([((1, 10), -1)], [((1, 7), 1)]) == {(1, 10, 1, 6): -1}  # no row needs it
    assert apply([((2, 20), -1)], [((2, 8), 1), ((2, 9), 1)]) == {(2, 20, None, None): -1}


@pytest.mark.parametrize(("left", "right"), [((0, 0), (0, 1)), ((0, 1), (0, 0))])
def test_a_column_joined_with_two_others_wants_both_equal(
    left: tuple[int, int], right: tuple[int, int], objects: ObjectStore
) -> None:
    types = ("int", "int", "bigint")
    bench = Bench(HashJoin(types, types, left, right, (False, False), (2,), (2,), None, types + types), objects)
    rows: list[Row] = [(a, b, 10 * a + b) for a in (1, 2) for b in (1, 2)]
    half = chunk_of(types, [(row, 1) for row in rows])
    first = bench.apply(half, chunk_of(types, []))
    second = bench.apply(chunk_of(types, []), half)
    content = integrate(integrate(Counter(), first), second)
    wanted = (
        one + two for one in rows for two in rows if one[left[0]] == two[right[0]] and one[left[1]] == two[right[1]]
    )
    assert content == Counter(wanted)
    gone = bench.apply(chunk_of(types, [(row, -1) for row in rows]), chunk_of(types, []))
    assert integrate(content, gone) == Counter()


def test_two_rows_with_one_stream_key_are_an_error_with_table_and_key(objects: ObjectStore) -> None:
    bench = Bench(_node((0,), (0,), (False,)), objects)
    twice = chunk_of(SIDE, [((1, "a", 0.0, 7), 1), ((1, "b", 0.0, 7), 1)])
    with pytest.raises(ChangeError, match=r"'join_left', key \(1, 7\): two live rows with one key"):
        bench.apply(twice, chunk_of(SIDE, []))


def test_a_condition_that_raises_names_the_joined_row(objects: ObjectStore) -> None:
    divided = Call("Divide", "double", (Column(2, "double"), Column(6, "double")), "ANSI")
    bench = Bench(
        _node((0,), (0,), (False,), Call("GreaterThan", "boolean", (divided, Literal("1.0", "double")))), objects
    )
    left = chunk_of(SIDE, [((1, "a", 8.0, 1), 1)])
    with pytest.raises(ExpressionError, match=r"\(1, 'a', 8.0, 1, 1, 'a', 0.0, 2\)"):
        bench.apply(left, chunk_of(SIDE, [((1, "a", 0.0, 2), 1)]))


def test_a_side_without_partners_costs_no_row_of_the_other(objects: ObjectStore) -> None:
    bench = Bench(_node((0,), (0,), (False,)), objects)
    assert (
        pairs_of(bench.apply(chunk_of(SIDE, [((9, None, None, 1), 1)]), chunk_of(SIDE, [((8, None, None, 1), 1)])))
        == []
    )


def _check_hidden(node: HashJoin, content: Counter[Row]) -> None:
    """A full join's hidden columns: the join key of the present side, and which sides are present."""
    for row in content:
        left, right, sides = row[3] is not None, row[7] is not None, row[-1]
        assert sides == {(True, True): 0, (True, False): 1, (False, True): 2}[left, right]
        for hidden, one, two in zip(row[8:], node.left_keys, node.right_keys, strict=False):
            assert repr(hidden) == repr(row[one] if left else row[4 + two])


def test_a_pair_that_exists_neither_before_nor_after_the_epoch_is_not_looked_at(objects: ObjectStore) -> None:
    divided = Call("Divide", "double", (Column(2, "double"), Column(6, "double")), "ANSI")
    for kind in (k for k in JoinKind if k is not JoinKind.NULL_AWARE_ANTI):
        node = _of_kind(
            _node((0,), (0,), (False,), Call("GreaterThan", "boolean", (divided, Literal("0.5", "double")))), kind
        )
        bench = Bench(node, objects)
        bench.apply(chunk_of(SIDE, []), chunk_of(SIDE, [((1, "r", 0.0, 1), 1)]))  # no partner: no division
        out = bench.apply(
            chunk_of(SIDE, [((1, "l", 10.0, 1), 1)]), chunk_of(SIDE, [((1, "r", 0.0, 1), -1), ((1, "r", 2.0, 1), 1)])
        )
        pair = (1, "l", 10.0, 1, 1, "r", 2.0, 1)
        added = [row[: len(node.types)] for row, weight in pairs_of(out) if weight > 0]
        left_alone = {JoinKind.SEMI: [pair[:4]], JoinKind.ANTI: [], JoinKind.EXISTENCE: [(*pair[:4], True)]}
        assert [row[:8] for row in added] == left_alone.get(kind, [pair])


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_growth(work: Callable[[], object]) -> int:
    """The process's peak growth in bytes during the work, sampled every 2 ms."""
    started, found, done = _rss_bytes(), [0], threading.Event()

    def look() -> None:
        while not done.wait(0.002):
            found[0] = max(found[0], _rss_bytes())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return max(found[0], _rss_bytes()) - started


def test_one_key_with_nine_million_pairs_takes_the_memory_of_a_piece(objects: ObjectStore) -> None:
    side = 3000
    both = Call("And", "boolean", (SMALLER, Call("EqualTo", "boolean", (Column(3, "bigint"), Literal(7, "bigint")))))
    bench = Bench(_node((0,), (0,), (False,), both), objects)
    rows = chunk_of(SIDE, [((1, "text", 0.5, i), 1) for i in range(side)])
    bench.apply(rows.slice(0, 1), rows.slice(0, 1))
    more = rows.slice(1)
    peak = peak_growth(lambda: bench.apply(more, more))
    assert peak < 300 << 20, f"{peak >> 20} MB: nine million pairs were held at once (100 bytes each)"


@pytest.mark.parametrize("goes", [False, True], ids=["rows that only come", "rows that come and go"])
def test_rows_that_can_meet_no_other_are_not_stored(goes: bool, objects: ObjectStore) -> None:
    """Rows with a NULL in the key. A left join emits them nevertheless."""
    node = _of_kind(_node((0,), (0,), (False,)), JoinKind.LEFT)
    bench = Bench(node, objects)
    rows: list[tuple[Row, int]] = [((None, "a", 1.5, 1), 1), ((1, "a", 1.5, 2), 1), ((None, "b", None, 3), 1)]
    if goes:
        bench.apply(chunk_of(SIDE, [((2, "a", 1.5, 4), 1)]), chunk_of(SIDE, []))
        rows.append(((2, "a", 1.5, 4), -1))
    emitted = bench.apply(chunk_of(SIDE, rows), chunk_of(SIDE, []))
    assert sum(weight > 0 for _, weight in pairs_of(emitted)) == 3
    assert [row["c3"] for kept in bench.tables()[0].scan() for row in kept.to_pylist()] == [2]
