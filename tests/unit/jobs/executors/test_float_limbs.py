"""Limbs of products of doubles against Fraction."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from tussock.jobs.executors import float_limbs
from tussock.jobs.executors.exact_sum import F64, Limbs
from tussock.jobs.executors.float_limbs import limbs_of_products

EDGES = (
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    2.2250738585072014e-308,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    1.0,
    2.0**53,
    math.nan,
    math.inf,
)


def _similar(rng: random.Random) -> float:
    return rng.choice(
        (
            round(rng.uniform(-1000, 1000), 2),
            rng.uniform(-1, 1),
            float(rng.randint(-9, 9)),
            rng.randint(-(2**53), 2**53) / 7,
        )
    )


def _any(rng: random.Random) -> float:
    return rng.choice(EDGES) if rng.random() < 0.3 else math.ldexp(rng.uniform(-1, 1), rng.randint(-1070, 1023))


def _far(rng: random.Random) -> float:
    return math.ldexp(rng.choice((1, -1)) * rng.uniform(0.5, 1), rng.randint(-100, 100))


def _near_the_ends(rng: random.Random) -> float:
    """Sizes near the limits of the products that are split: 2**187 for four factors to 2**907 for one."""
    reach = rng.choice((187, 267, 427, 907)) + rng.randint(-2, 2)
    return math.ldexp(rng.uniform(0.5, 1), rng.choice((reach, -reach)))


def _same_size(rng: random.Random) -> float:
    return math.ldexp(rng.choice((1, -1)) * (1 - rng.randint(1, 9) * 2.0**-53), 426)


def _numbers(limbs: Limbs, factors: int) -> list[Fraction]:
    unit = Fraction(2) ** (32 * limbs.lowest - 1074 * factors)
    return [unit * sum(int(d) << (32 * i) for i, d in enumerate(column)) for column in limbs.digits.T.tolist()]


@pytest.mark.parametrize("factors", [1, 2, 3, 4])
@pytest.mark.parametrize("number", [_similar, _any, _far, _near_the_ends, _same_size])
def test_products_are_exact(number, factors: int) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        columns: list[F64] = [np.array([number(rng) for _ in range(50)]) for _ in range(factors)]
        weights = np.array([rng.choice((1, -1, 3)) if seed % 2 else 1 for _ in range(50)])
        expected = [
            math.prod([Fraction(c[i]) for c in columns], start=Fraction(int(weights[i])))
            if all(math.isfinite(c[i]) for c in columns)
            else 0
            for i in range(50)
        ]
        assert _numbers(limbs_of_products(columns, weights), factors) == expected


@pytest.mark.parametrize("number", [_similar, _far])
def test_both_ways_find_the_same_limbs(number, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    columns = [np.array([number(rng) for _ in range(500)]) for _ in range(2)]
    ones = np.ones(500, np.int64)
    apart = _numbers(limbs_of_products(columns, ones), 2)
    monkeypatch.setattr(float_limbs, "_MOST_LIMBS", 0)
    assert _numbers(limbs_of_products(columns, ones), 2) == apart


def test_values_of_similar_size_have_few_limbs() -> None:
    amounts = np.arange(1, 1000) / 100
    assert len(limbs_of_products([amounts], np.ones(999, np.int64)).digits) == 3
    assert len(limbs_of_products([np.arange(999.0)], np.ones(999, np.int64)).digits) == 1
