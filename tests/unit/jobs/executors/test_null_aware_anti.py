"""NOT IN under random changes, compared with SQL's definition in plain Python, at each epoch and with several units."""

import random
from collections import Counter

import pytest

from tests.support.jobs.executors.harness import Bench, Row, assert_netted, chunk_of, integrate
from tussock.jobs.executors.null_aware_anti import NullAwareAnti
from tussock.statestore.objectstore.base import ObjectStore

LEFT = ("int", "bigint")  # the value, the stream key
RIGHT = ("int", "bigint")
COUNTS = ("bigint", "bigint")
NODE = NullAwareAnti(LEFT, RIGHT, (0,), (0,), (1,), (1,), LEFT)


def not_in(left: Counter[Row], right: Counter[Row]) -> Counter[Row]:
    """x NOT IN r: true if r is empty, or if x and all of r are not NULL and differ."""
    values = [row[0] for row in right]
    return Counter(
        row for row in left if not values or (row[0] is not None and None not in values and row[0] not in values)
    )


def counts_of(right: Counter[Row]) -> Row:
    return len(right), sum(row[0] is not None for row in right)


class _Run:
    """Epochs of one executor; the counts come from a global aggregate."""

    def __init__(self, objects: ObjectStore) -> None:
        self.bench = Bench(NODE, objects)
        self.left, self.right, self.content = Counter[Row](), Counter[Row](), Counter[Row]()
        self.counts: Row | None = None

    def epoch(self, left: list[tuple[Row, int]], right: list[tuple[Row, int]]) -> None:
        chunks = chunk_of(LEFT, left), chunk_of(RIGHT, right)
        self.left, self.right = integrate(self.left, chunks[0]), integrate(self.right, chunks[1])
        before, self.counts = self.counts, counts_of(self.right)
        changed = [] if before == self.counts else [*([] if before is None else [(before, -1)]), (self.counts, 1)]
        out = self.bench.apply(*chunks, chunk_of(COUNTS, changed))
        assert_netted(out, (0, 1))
        self.content = integrate(self.content, out)
        assert self.content == not_in(self.left, self.right), (left, right)


def _changes(rng: random.Random, live: Counter[Row], values: tuple[int | None, ...]) -> list[tuple[Row, int]]:
    out: list[tuple[Row, int]] = []
    used = {row[1] for row in live}
    for row in sorted(live, key=repr):
        if rng.random() < 0.3:
            out.append((row, -1))
            if rng.random() < 0.5:
                value = rng.choice([v for v in values if v != row[0]])
                out.append(((value, row[1]), 1))
    new = [number for number in rng.sample(range(40), rng.choice((0, 1, 6))) if number not in used]
    out += [((rng.choice(values), number), 1) for number in new]
    rng.shuffle(out)
    return out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(5)
def test_not_in_equals_its_definition_at_every_epoch(seed: int, objects: ObjectStore) -> None:
    rng, run = random.Random(seed), _Run(objects)
    for epoch in range(25):
        some_null = (None, 1, 2, 3, 4, 5)
        right_values = some_null if epoch % 5 == 2 else (1, 2, 3, 4)
        left = _changes(rng, run.left, some_null)
        right = _changes(rng, run.right, right_values)
        if epoch % 7 == 5:  # empty the right side
            right = [(row, -1) for row in run.right]
        run.epoch(left, right)


def test_an_unknown_row_is_emitted_only_while_the_right_side_is_empty(objects: ObjectStore) -> None:
    run = _Run(objects)
    run.epoch([((None, 1), 1), ((7, 2), 1)], [])
    assert set(run.content) == {(None, 1), (7, 2)}
    run.epoch([], [((3, 1), 1)])
    assert set(run.content) == {(7, 2)}
    run.epoch([], [((None, 2), 1)])
    assert not run.content
    run.epoch([((8, 3), 1)], [((None, 2), -1), ((3, 1), -1)])
    assert set(run.content) == {(None, 1), (7, 2), (8, 3)}


def test_facts_that_did_not_change_are_not_written_again(objects: ObjectStore) -> None:
    run = _Run(objects)
    run.epoch([((1, 1), 1)], [((3, 1), 1)])
    tables = run.bench.tables()
    executor = NODE.make_executor(tables, run.bench.actor)
    executor.apply(chunk_of(LEFT, []), chunk_of(RIGHT, [((4, 2), 1)]), chunk_of(COUNTS, [((1, 1), -1), ((2, 2), 1)]))
    assert [table.seal_changes() is not None for table in tables] == [False, True, False, False]
