"""Equal rows of two bags cancel each other out, in memory and on the local disk. Python's Counter is the truth."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from tussock.jobs.chunks.chunk import make_chunk
from tussock.jobs.chunks.matched_rows import RowMatcher

NAN = float("nan")
VALUES = (None, NAN, -0.0, 0.0, 1.0)
NESTED = (None, [], [None], [NAN, -0.0], [0.0])
Row = tuple[object, ...]


def chunk_of(rows: Iterable[tuple[Row, int, int]]) -> pa.Table:
    """A chunk of (compared values, id, weight)."""
    rows = list(rows)
    columns = [
        pa.array([row[0][i] for row in rows], kind) for i, kind in enumerate((pa.float64(), pa.list_(pa.float64())))
    ]
    ids = pa.array([row[1] for row in rows], pa.int64())
    return make_chunk([*columns, ids], pa.array([row[2] for row in rows], pa.int64()))


def values_in(chunk: pa.Table) -> Iterator[tuple[str, int, int]]:
    """(compared values as text, id, weight) of each row."""
    for *values, row_id, weight in zip(*(c.to_pylist() for c in chunk.columns), strict=True):
        yield repr(values), row_id, weight


@pytest.mark.parametrize("memory", [0, 2000, 1 << 30], ids=["on disk", "partly on disk", "in memory"])
@pytest.mark.parametrize("seed", range(10))
def test_the_difference_is_that_of_the_multisets(seed: int, memory: int) -> None:
    chance = random.Random(seed)
    rows = [
        ((chance.choice(VALUES), chance.choice(NESTED)), n, chance.choice((-1, 1)))
        for n in range(chance.randrange(200))
    ]
    chunk = chunk_of(rows)
    with RowMatcher(2, memory) as matcher:
        for start in range(0, chunk.num_rows, 30):
            matcher.add_rows(chunk.slice(start, 30))
        parts = list(matcher.take_parts())
    bags = {sign: Counter(values for values, _, weight in values_in(chunk) if weight == sign) for sign in (-1, 1)}
    differs = [row for part in parts for row in values_in(part.take_difference())]
    found = {sign: Counter(values for values, _, weight in differs if weight == sign) for sign in (-1, 1)}
    assert found == {-1: bags[-1] - bags[1], 1: bags[1] - bags[-1]}
    pairs = [
        (rows[g], rows[c])
        for p in parts
        for rows in [list(values_in(p.rows))]
        for g, c in zip(p.gone, p.come, strict=True)
    ]
    assert all(gone[0] == come[0] and (gone[2], come[2]) == (-1, 1) for gone, come in pairs)
    assert sorted([row[1] for pair in pairs for row in pair] + [row[1] for row in differs]) == list(range(len(rows)))


def test_the_first_copies_are_paired_in_their_order() -> None:
    with RowMatcher(2) as matcher:
        matcher.add_rows(chunk_of([((1.0, []), 1, 1), ((1.0, []), 2, -1), ((1.0, []), 3, -1), ((1.0, []), 4, 1)]))
        (part,) = matcher.take_parts()
    assert (part.gone.tolist(), part.come.tolist()) == ([1, 2], [0, 3])
