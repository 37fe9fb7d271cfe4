"""Decimals of another type, without the overflow of Arrow's casts."""

import pyarrow as pa
import pyarrow.compute as pc

MAX_DIGITS = 38  # of a decimal in Spark, in DuckDB and in 128 bits
MAX_WIDE_DIGITS = 76  # of 256 bits


def as_decimals(values: pa.Array | pa.ChunkedArray, kind: pa.Decimal128Type) -> pa.Array | pa.ChunkedArray:
    """Convert decimals, or texts of digits, to a decimal type without losing a digit.

    Arrow multiplies in the bits of the result before it compares with the precision. So a value that overflows can come
    back as another one that fits: 11.12 becomes -0.91… as a decimal(38,38). Here the product has room in 256 bits.

    Args:
        values: (n,) decimals, or strings in the spelling that Arrow reads.

    Returns: (n,) of exactly `kind`.
    Raises: pa.ArrowInvalid if a value does not fit; also if a text without a decimal's value fits only without its
        zeros, and has more than 76 digits. Cost: as Arrow's cast if no value can overflow, else four times.
    """
    if pa.types.is_decimal(values.type):
        return _rescale_decimals(values, kind)
    digits = _digits_of_texts(values, kind.scale)
    if digits <= MAX_DIGITS:
        return values.cast(kind)
    if digits > MAX_WIDE_DIGITS:
        raise pa.ArrowInvalid(f"Decimal value with up to {digits} digits does not fit in precision {kind.precision}")
    return values.cast(pa.decimal256(MAX_WIDE_DIGITS, kind.scale)).cast(kind)


def _rescale_decimals(values: pa.Array | pa.ChunkedArray, kind: pa.Decimal128Type) -> pa.Array | pa.ChunkedArray:
    """Decimals at another scale.

    The digits before the point are compared first, at the given scale. After that, a product has at most the digits of
    the result, and a quotient always fits.
    """
    source_type = values.type
    if source_type.precision - source_type.scale + max(source_type.scale, kind.scale) <= MAX_DIGITS:
        return values.cast(kind)
    fitting = max(1, kind.precision - kind.scale + source_type.scale)
    if fitting < source_type.precision:
        values = values.cast(pa.decimal256(fitting, source_type.scale))
    return values.cast(pa.decimal256(MAX_WIDE_DIGITS, kind.scale)).cast(kind)


def _digits_of_texts(values: pa.Array | pa.ChunkedArray, scale: int) -> int:
    """An upper bound of the digits of texts at a scale."""
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    if longest + scale <= MAX_DIGITS or longest > MAX_WIDE_DIGITS:
        return longest + scale
    before_the_point = pc.max(pc.binary_length(pc.replace_substring_regex(values, r"[-+]|\..*", ""))).as_py()
    return max(int(longest), int(before_the_point) + scale)
