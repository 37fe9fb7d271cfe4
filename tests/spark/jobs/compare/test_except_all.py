"""The rows that differ are those of Spark's EXCEPT ALL, both ways."""

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.jobs.compare.random_rows import TYPES, Row, comparable, random_row, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 20))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("keyed", [True, False])
def test_rows_that_differ_are_those_of_except_all(
    spark: "SparkSession", tmp_path: Path, seed: int, keyed: bool
) -> None:
    rng, key = random.Random(seed), (0,) if keyed else ()
    common = [random_row(rng, 30) for _ in range(40)]
    one = store_of(tmp_path / "one", key, [*common, random_row(rng, 40)])
    other = store_of(tmp_path / "other", key, [*rng.sample(common, 35), *(random_row(rng, 50) for _ in range(4))])
    with one, other:
        (view,) = one.diff("t", other=other.meta.objects.uri, samples=999).views
        left, right = (
            spark.createDataFrame([tuple(row.values()) for row in side.read("t").to_pylist()], SCHEMA)
            for side in (one, other)
        )
        for side, expected in (("from", left.exceptAll(right)), ("to", right.exceptAll(left))):
            wanted = Counter(tuple(map(comparable, row)) for row in map(plain, expected.collect()))
            rows = [row for row in view.samples.to_pylist() if row["_side"] == side]
            assert Counter(tuple(comparable(row[name]) for name in TYPES) for row in rows) == wanted


def plain(row: Row) -> Row:
    """A row of Spark as Arrow returns it."""
    return tuple(value.asDict() if hasattr(value, "asDict") else value for value in row)
