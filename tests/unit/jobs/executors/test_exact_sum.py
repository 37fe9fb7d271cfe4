"""Limbs and 128-bit integers against Fraction and Python's own integers."""

import math
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from tussock.jobs.executors.exact_sum import Limbs, decode_limbs, encode_limbs, limbs_of_int128
from tussock.jobs.executors.float_limbs import limbs_of_products
from tussock.jobs.executors.int128 import Int128

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
    -(2.0**32),
)


def _number(rng: random.Random) -> float:
    kind = rng.random()
    if kind < 0.25:
        return rng.choice(EDGES)
    if kind < 0.5:
        return round(rng.uniform(-1000, 1000), 2)
    return math.ldexp(rng.uniform(-1, 1), rng.randint(-1070, 1023))


def _float_of(total: Fraction) -> float:
    try:
        return float(total)  # correctly rounded
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@pytest.mark.parametrize("seed", range(40))
def test_sums_of_weighted_floats_are_the_exact_sums_rounded_once(seed: int) -> None:
    rng = random.Random(seed)
    rounds = [
        ([_number(rng) for _ in range(60)], [rng.choice((1, -1, 1, 3)) for _ in range(60)])
        for _ in range(rng.choice((1, 2, 6)))
    ]
    total = Limbs(0, np.zeros((1, 60), np.int64))
    for values, weights in rounds:
        total = decode_limbs(
            encode_limbs(total + decode_limbs(encode_limbs(limbs_of_products([np.array(values)], np.array(weights)))))
        )
    expected = [sum((Fraction(values[i]) * weights[i] for values, weights in rounds), Fraction()) for i in range(60)]
    assert total.to_float64().tolist() == [_float_of(e) for e in expected]


@pytest.mark.parametrize("seed", range(10))
def test_a_sum_whose_numbers_are_all_removed_is_stored_as_no_bytes(seed: int) -> None:
    rng = random.Random(seed)
    values = np.array([_number(rng) for _ in range(50)])
    ones = np.ones(50, np.int64)
    there = encode_limbs(limbs_of_products([values], ones))
    gone = decode_limbs(there) + limbs_of_products([values], -ones)
    assert encode_limbs(gone).to_pylist() == [b""] * 50


@pytest.mark.parametrize("seed", range(10))
def test_equal_sums_are_equal_bytes_for_any_order_of_addition(seed: int) -> None:
    rng = random.Random(seed)
    columns = [np.array([_number(rng) for _ in range(30)]) for _ in range(5)]
    ones = np.ones(30, np.int64)

    def stored(order: list[int]) -> pa.Array:
        total = Limbs(0, np.zeros((1, 30), np.int64))
        for i in order:
            total = decode_limbs(encode_limbs(total + limbs_of_products([columns[i]], ones)))
        return encode_limbs(total)

    assert stored([0, 1, 2, 3, 4]).equals(stored([3, 1, 4, 0, 2]))


def test_a_tie_rounds_to_even_and_a_bit_far_below_breaks_it() -> None:
    ones = np.ones(3, np.int64)
    big, half, least = (
        np.array([2.0**53, 2.0**53 + 2, 2.0**53]),
        np.array([1.0, 1.0, 1.0]),
        np.array([0.0, 0.0, 5e-324]),
    )
    total = limbs_of_products([big], ones) + limbs_of_products([half], ones) + limbs_of_products([least], ones)
    assert total.to_float64().tolist() == [2.0**53, 2.0**53 + 4, 2.0**53 + 2]


def test_stored_sums_survive_slices_and_nulls() -> None:
    stored = encode_limbs(limbs_of_products([np.array([1.5, 0.0, -1e300, 2.0**-1074])], np.ones(4, np.int64)))
    assert decode_limbs(stored.slice(1, 3)).to_float64().tolist() == [0.0, -1e300, 5e-324]
    assert decode_limbs(pa.concat_arrays([pa.nulls(2, pa.binary()), stored.slice(2, 1)])).to_float64().tolist() == [
        0.0,
        0.0,
        -1e300,
    ]
    assert len(decode_limbs(stored.slice(0, 0))) == 0


def _integers(rng: random.Random, n: int, bits: int) -> list[int]:
    edges = [0, 1, -1, 2**63 - 1, -(2**63), 2**64, 10**37, -(10**37)]
    return [rng.choice(edges) if rng.random() < 0.3 else rng.randint(-(2**bits), 2**bits) for _ in range(n)]


def _int128(values: list[int]) -> Int128:
    low = np.array([v & (2**64 - 1) for v in values], np.uint64)
    return Int128(low, np.array([v >> 64 for v in values], np.int64))


def _ints(values: Int128) -> list[int]:
    return [(int(h) << 64) + int(lo) for h, lo in zip(values.high, values.low, strict=True)]


@pytest.mark.parametrize("seed", range(10))
def test_wide_integers_behave_as_python_integers(seed: int) -> None:
    rng = random.Random(seed)
    a, b = _integers(rng, 200, 124), _integers(rng, 200, 66)
    x, y = _int128(a), _int128(b)
    assert _ints(x + y) == [p + q for p, q in zip(a, b, strict=True)]
    assert _ints(-x) == [-p for p in a]
    assert _ints(x.magnitude()) == [abs(p) for p in a]
    assert y.fits_int64().tolist() == [-(2**63) <= q < 2**63 for q in b]
    for digits in (1, 19, 37, 38):
        assert x.fits_digits(digits).tolist() == [abs(p) < 10**digits for p in a]
    assert _ints(Int128.of_decimals(x.to_decimals(38, 0))) == a
    assert all(math.isclose(f, p, rel_tol=1e-15) for f, p in zip(x.to_float64().tolist(), a, strict=True))


@pytest.mark.parametrize("seed", range(10))
def test_integers_as_limbs_add_up_beyond_128_bits_and_are_restored(seed: int) -> None:
    rng = random.Random(seed)
    columns = [_integers(rng, 50, 126) for _ in range(6)]
    weights = np.array([rng.choice((1, 1, -1)) for _ in range(50)])
    total = Limbs(0, np.zeros((1, 50), np.int64))
    for column in columns:
        total = decode_limbs(encode_limbs(total + limbs_of_int128(_int128(column), weights)))
    sums = [sum(column[i] for column in columns) * int(weights[i]) for i in range(50)]
    values, fits = total.to_int128()
    assert fits.tolist() == [-(2**127) <= s < 2**127 for s in sums]
    assert [v for v, ok in zip(_ints(values), fits, strict=True) if ok] == [
        s for s, ok in zip(sums, fits, strict=True) if ok
    ]
