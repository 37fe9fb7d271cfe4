"""Rows and helpers of test_shredded_variants.py, which is in several lanes."""

import random
from typing import Any

NAMES = ("a", "b", "é", "\uffff", "\U00010000", "long name", "z" * 40, "")


def value(draw: random.Random, depth: int = 3) -> Any:
    kind = draw.random()
    if depth and kind < 0.45:
        return {name: value(draw, depth - 1) for name in draw.sample(NAMES, draw.randint(0, 5))}
    if depth and kind < 0.6:
        return [value(draw, depth - 1) for _ in range(draw.choice((0, 1, 2, 3, 300 if depth == 1 else 2)))]
    numbers = (0, 1, -129, 2**15, 2**31, -(2**63), 1.5, -0.25, 1e300, 12345678.25)
    return draw.choice((None, True, False, "", "x", "ß" * 40, "2020-01-01", *numbers))
