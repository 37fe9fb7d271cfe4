"""Decimals of another type, compared with Python's: a value is exact, or is refused."""

import random
from decimal import Decimal, localcontext

import pyarrow as pa
import pytest

from tussock.statestore.decimals import as_decimals

KINDS = [pa.decimal128(*kind) for kind in ((5, 2), (10, 2), (19, 0), (19, 18), (38, 0), (38, 18), (38, 38))]


def _texts(chance: random.Random) -> list[str]:
    sizes = [(chance.choice((1, 10, 22, 39, 77)), chance.choice((0, 2, 18, 44, 130))) for _ in range(400)]
    digits = ["".join(chance.choices("00199", k=whole + after)) for whole, after in sizes]
    points = [f"{d[:whole]}.{d[whole:]}" if after else d for d, (whole, after) in zip(digits, sizes, strict=True)]
    return [chance.choice(("", "-")) + text for text in points]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_texts_and_decimals_are_exact_or_refused(kind: pa.Decimal128Type) -> None:
    chance = random.Random(1)
    found = [(Decimal(text), pa.array([text, None])) for text in _texts(chance)]
    for wide in (pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal128(19, 2), pa.decimal256(76, 20)):
        numbers = [chance.randrange(10 ** chance.randint(1, wide.precision)) for _ in range(50)]
        values = [Decimal(f"{number}E-{wide.scale}") for number in numbers]
        found += [(value, pa.array([value, None], wide)) for value in values]
    for value, array in found:
        try:
            made = as_decimals(array, kind).to_pylist()
        except pa.ArrowInvalid:
            continue
        with localcontext(prec=400):
            assert made == [value, None]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_longest_values_of_a_type_are_kept(kind: pa.Decimal128Type) -> None:
    nines = f"{'9' * (kind.precision - kind.scale)}.{'9' * kind.scale}".rstrip(".")
    values = [Decimal(nines), Decimal(f"-{nines}")]
    for array in (pa.array([nines, f"-{nines}"]), pa.array(values, kind)):
        assert as_decimals(array, kind).to_pylist() == values


def test_every_decimal_of_256_bits_that_fits_is_kept() -> None:
    """The digits of a type bound its values' digits from above only."""
    kept = {
        (76, 20): ("-999999999999999999", 38, 20),
        (76, 38): ("0.12345678901234567890123456789012345678", 38, 38),
        (76, 76): ("0.5", 1, 1),
        (76, 0): ("7", 38, 37),
    }
    for (precision, scale), (text, *kind) in kept.items():
        array = pa.array([Decimal(text), None], pa.decimal256(precision, scale))
        assert as_decimals(array, pa.decimal128(*kind)).to_pylist() == [Decimal(text), None]
    for text, *kind in (("10", 38, 37), ("0.05", 38, 1), ("123456789012345678", 38, 21)):
        with pytest.raises(pa.ArrowInvalid):
            as_decimals(pa.array([Decimal(text)], pa.decimal256(76, 20)), pa.decimal128(*kind))
