"""Pairs of equal rows against a loop in Python."""

import random

import pyarrow as pa
import pytest

from tussock.jobs.executors import equal_rows
from tussock.jobs.executors.equal_rows import pair_equal_rows

Row = tuple[float | None, str | None, float | None]
SCHEMA = pa.schema([("c0", pa.float64()), ("c1", pa.string()), ("c2", pa.float64())])


def table_of(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


@pytest.mark.parametrize("seed", range(50))
def test_pairs_are_the_keys_with_one_row_that_is_equal(seed: int) -> None:
    chance = random.Random(seed)
    keys = [(float(n) if n else chance.choice([0.0, -0.0]), chance.choice("ab")) for n in range(40)]
    one: list[Row] = [(*key, chance.choice([1.0, None])) for key in keys]
    other: list[Row] = [
        row if chance.random() < 0.8 else (row[0], row[1], chance.choice([1.0, None, 2.0]))
        for row in one
        if chance.random() < 0.9
    ]
    other += [(100.0 + n, "a", 1.0) for n in range(chance.randrange(3))]
    other += chance.choices(other, k=chance.randrange(3))
    other += [(row[0], row[1], 9.0) for row in chance.choices(other, k=chance.randrange(3))]
    chance.shuffle(other)
    left, right = pair_equal_rows(table_of(one), table_of(other), (0, 1))
    times = [key[:2] for key in other]  # 0.0 equals -0.0, as in keys
    expected = {(str(row), str(row)) for row in one if str(row) in set(map(str, other)) and times.count(row[:2]) == 1}
    found = {(str(one[i]), str(other[j])) for i, j in zip(left.tolist(), right.tolist(), strict=True)}
    assert found <= expected
    assert len(found) == len(left) >= len(expected) // 2


def test_most_pairs_are_found_among_many_rows() -> None:
    one = pa.table({"c0": range(100_000), "c1": ["x"] * 100_000})
    other = one.take(pa.array(random.Random(1).sample(range(100_000), 100_000)))
    left, right = pair_equal_rows(one, other, (0,))
    assert len(left) == len(set(left.tolist())) == len(set(right.tolist())) > 99_900
    assert one.take(pa.array(left)).equals(other.take(pa.array(right)).combine_chunks())


def test_hashes_that_are_all_equal_give_no_wrong_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equal_rows, "xxhash64", lambda columns: 0 * pa.array(columns[0]).to_numpy().astype("u8"))
    one = pa.table({"c0": range(20), "c1": range(20)})
    left, right = pair_equal_rows(one, one, (0,))
    assert (left == right).all()
