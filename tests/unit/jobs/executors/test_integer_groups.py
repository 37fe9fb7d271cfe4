"""Sums by an integer key, by address and by sorting, against plain Python."""

import random
from collections import defaultdict
from collections.abc import Callable

import pyarrow as pa
import pytest

from tussock.jobs.executors.integer_groups import sums_by_integer

ROWS = 3000
KEYS: dict[str, tuple[pa.DataType, Callable[[random.Random], int]]] = {
    "dense": (pa.int64(), lambda rng: rng.randrange(-500, 500)),
    "dense at the edge": (pa.int64(), lambda rng: 2**63 - 1 - rng.randrange(1000)),
    "sparse": (pa.int64(), lambda rng: rng.randrange(700) * 10**12 - 3 * 10**14),
    "as wide as may be": (pa.int64(), lambda rng: rng.choice((-(2**63), 2**63 - 1, 0, -1))),
    "one": (pa.int64(), lambda rng: 7),
    "short": (pa.int16(), lambda rng: rng.randrange(-(2**15), 2**15)),
    "tiny": (pa.int8(), lambda rng: rng.randrange(-128, 128)),
}


@pytest.mark.parametrize("kind", KEYS)
def test_sums_equal_those_of_plain_python(kind: str) -> None:
    rng = random.Random(kind)
    type_, draw = KEYS[kind]
    rows = [(draw(rng), rng.randrange(-(2**40), 2**40), rng.choice((1, -1))) for _ in range(ROWS)]
    expected: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for key, value, weight in rows:
        expected[key][0] += value
        expected[key][1] += weight
    columns = [pa.array([row[i] for row in rows], pa.int64()) for i in (1, 2)]
    padded = pa.array([0, *(row[0] for row in rows)], type_).slice(1)  # as a batch cut from another one
    found = sums_by_integer(padded, columns)
    assert found is not None
    keys, sums = found
    assert keys.type == type_
    assert keys.to_pylist() == sorted(expected)
    assert [s.to_pylist() for s in sums] == [[expected[key][i] for key in sorted(expected)] for i in (0, 1)]


def test_unsupported_columns_return_none() -> None:
    many = pa.array(range(ROWS))
    holes = pa.array([None, *range(ROWS - 1)], pa.int64())
    assert sums_by_integer(many, [many]) is not None
    assert sums_by_integer(holes, [many]) is None
    assert sums_by_integer(many, [holes]) is None
    assert sums_by_integer(many.slice(0, 0), [many.slice(0, 0)]) is None
    assert sums_by_integer(many.cast(pa.string()), [many]) is None
    assert sums_by_integer(many, [many.cast(pa.float64())]) is None
