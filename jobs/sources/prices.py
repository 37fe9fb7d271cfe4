"""Propose a decimal type for a column of prices.

Files show a price as any other number with a fraction. As a double, its sums would not be exact. So the name of the
column decides, if all of its numbers are written without an exponent and with few digits.
"""

import re

import pyarrow as pa
import pyarrow.compute as pc

WORDS = frozenset(
    {"amount", "balance", "charge", "cost", "discount", "fare", "fee", "paid", "payment", "price", "revenue"}
    | {"salary", "subtotal", "tax", "tip", "total", "turnover", "vat"}
)
"""Words in the names of columns that contain amounts of money."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_DIGITS, _LEAST_SCALE, _MOST_SCALE = 18, 2, 6
_WRITTEN = rf"^[+-]?[0-9]{{0,{_DIGITS - _MOST_SCALE}}}\.?[0-9]{{0,{_MOST_SCALE}}}$"


def price_type(name: str, texts: pa.Array | pa.ChunkedArray) -> str | None:
    """Return the decimal type of a column of prices; None for other columns.

    Args:
        texts: the column's numbers as strings.
    """
    words = {word.lower() for word in _WORD.findall(name)}
    if WORDS.isdisjoint(
        words | {word.removesuffix("s") for word in words} | {word.removesuffix("es") for word in words}
    ):
        return None
    values = texts.drop_null()
    if len(values) == 0 or not pc.all(pc.match_substring_regex(values, _WRITTEN)).as_py():
        return None
    fractions = pc.utf8_length(pc.replace_substring_regex(values, r"^[^.]*\.?", ""))
    return f"decimal({_DIGITS},{max(_LEAST_SCALE, pc.max(fractions).as_py())})"
