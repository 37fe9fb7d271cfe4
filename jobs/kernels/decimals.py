"""Decimal arithmetic with Spark's result types: exact, then rounded HALF_UP to the result's scale.

If the exact result fits in 38 digits, DuckDB computes it. Otherwise Arrow's 256-bit decimals do. Spark rounds products
to 39 digits before it rounds them to the result's scale; `_to_39_digits` does the same. Spark rounds quotients to 39
places. Types for which that first rounding could change the result are refused.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.kernels.duck import decimal_of, fail_when, strict_cast
from tussock.jobs.kernels.functions import declare_function
from tussock.jobs.kernels.registry import family_of
from tussock.jobs.logical.nodes import Call
from tussock.statestore.decimals import MAX_DIGITS, MAX_WIDE_DIGITS

JAVA_DIGITS = 39  # of a product before it is rounded to its scale


def refuse_decimal(call: Call) -> str | None:
    """The reason why this call over decimals is not supported, or None."""
    if family_of(call.type) != "decimal":
        return None
    if len(call.args) == 1:  # Spark negates with 34 digits and rounds longer values
        return (
            None if decimal_of(call.type)[0] <= 34 else "is rounded to 34 digits by Spark; cast it to at most 34 digits"
        )
    (p1, s1), (p2, s2) = (decimal_of(a.type) for a in call.args)
    scale = decimal_of(call.type)[1]
    if call.node == "Remainder" and max(p1 - s1, p2 - s2) + max(s1, s2) > MAX_DIGITS:
        return (
            f"needs more than {MAX_DIGITS} digits to give its operands one scale; cast an operand to a smaller decimal"
        )
    if call.node in ("Add", "Subtract") and max(p1 - s1, p2 - s2) + max(s1, s2) + 1 > MAX_WIDE_DIGITS:
        return f"needs more than {MAX_WIDE_DIGITS} digits; cast an operand to a smaller decimal"
    rounds = p1 + p2 > MAX_DIGITS and scale < s1 + s2
    if call.node == "Multiply" and (call.mode == "TRY" or rounds) and p1 + p2 + 1 > MAX_WIDE_DIGITS:
        return f"needs more than {MAX_WIDE_DIGITS} digits; cast an operand to a smaller decimal"
    if call.node == "Divide" and (scale + p2 > 39 or _quotient_digits(p1, s1, p2, s2, scale) > MAX_WIDE_DIGITS):
        return f"needs more than {MAX_WIDE_DIGITS} digits before rounding; cast an operand to a smaller decimal"
    return None


def decimal_call(call: Call, args: Sequence[str]) -> str:
    """Render Add, Subtract, Multiply or Divide of two decimals. Overflow raises, or is NULL in TRY mode."""
    (p1, s1), (p2, s2) = (decimal_of(a.type) for a in call.args)
    if call.node == "Divide":
        quotient = f"{_wide_function(call)}({args[0]}, nullif({args[1]}, 0))"
        return fail_when(f"{args[1]} = 0 AND {args[0]} IS NOT NULL", "division by zero", quotient, call)
    if call.node == "Multiply":
        if p1 + p2 <= MAX_DIGITS or (call.mode != "TRY" and decimal_of(call.type)[1] == s1 + s2):
            wide = strict_cast(
                args[0], f"decimal({max(p1, 19)},{s1})"
            )  # from 19 digits on, DuckDB multiplies in 128 bits
            return strict_cast(f"({wide} * {args[1]})", call.type)
        return f"{_wide_function(call)}({args[0]}, {args[1]})"
    scale = max(s1, s2)
    digits = max(p1 - s1, p2 - s2) + scale + 1
    if digits > MAX_DIGITS:
        return f"{_wide_function(call)}({args[0]}, {args[1]})"
    common = f"decimal({digits},{scale})"
    symbol = "+" if call.node == "Add" else "-"
    return strict_cast(f"({strict_cast(args[0], common)} {symbol} {strict_cast(args[1], common)})", call.type)


def _dividend_scale(s1: int, p2: int, s2: int, scale: int) -> int:
    """The scale of the dividend for which Arrow's quotient has at least one digit more than `scale`.

    Arrow truncates the quotient at `_quotient_scale`.
    """
    return max(s1, scale - p2 + s2)


def _quotient_scale(s1: int, p2: int, s2: int) -> int:
    """Arrow's rule for the scale of a quotient."""
    return max(4, s1 - s2 + p2 + 1)


def _quotient_digits(p1: int, s1: int, p2: int, s2: int, scale: int) -> int:
    """The number of digits of Arrow's quotient."""
    return p1 - s1 + s2 + _quotient_scale(_dividend_scale(s1, p2, s2, scale), p2, s2)


def _to_39_digits(exact: pa.Array) -> pa.Array:
    """Round HALF_UP to 39 significant digits, as Java's MathContext does.

    The position depends on each value's length.
    """
    scale, size, rounded_value = exact.type.scale, pc.abs(exact), exact
    for digits in range(JAVA_DIGITS + 1, exact.type.precision + 1):
        longer = pc.greater_equal(size, pa.scalar(Decimal((0, (1, *[0] * (digits - 1)), -scale)), exact.type))
        if not pc.any(longer).as_py():
            break
        rounded = pc.round(exact, ndigits=scale - (digits - JAVA_DIGITS), round_mode="half_towards_infinity")
        rounded_value = pc.if_else(longer, rounded, rounded_value)
    return rounded_value


_OPERATIONS: dict[str, Callable[..., pa.Array]] = {
    "Add": pc.add,
    "Subtract": pc.subtract,
    "Multiply": pc.multiply,
    "Divide": pc.divide,
}


def _wide_function(call: Call) -> str:
    """Declare the 256-bit function for this call and return its name."""
    left, right = call.args
    (p1, s1), (p2, s2), (precision, scale) = decimal_of(left.type), decimal_of(right.type), decimal_of(call.type)
    operation, nulls = _OPERATIONS[call.node], call.mode == "TRY"
    if call.node == "Divide":  # one truncated digit beyond Spark's scale decides HALF_UP
        wide_scale = _dividend_scale(s1, p2, s2, scale)
        wide_left, wide_right = pa.decimal256(p1 - s1 + wide_scale, wide_scale), pa.decimal256(p2, s2)
    elif call.node == "Multiply":
        wide_left, wide_right = pa.decimal256(p1, s1), pa.decimal256(p2, s2)
    else:
        wide_left = wide_right = pa.decimal256(max(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))
    bound = pa.scalar(10 ** (precision - scale), pa.decimal256(precision - scale + 1, 0))

    def compute(a: pa.Array, b: pa.Array) -> pa.Array:
        exact = operation(a.cast(wide_left), b.cast(wide_right))
        if call.node == "Multiply":
            exact = _to_39_digits(exact)
        rounded = (
            pc.round(exact, ndigits=scale, round_mode="half_towards_infinity") if exact.type.scale > scale else exact
        )
        fits = pc.less(pc.abs(rounded), bound)
        if nulls:
            rounded = pc.if_else(fits, rounded, pa.scalar(None, rounded.type))
        elif not pc.all(fits, min_count=0).as_py():
            raise OverflowError(f"result does not fit {call.type}")
        return rounded.cast(pa.decimal128(precision, scale))

    name = f"decimal_{call.node.lower()}{'_try' if nulls else ''}_{p1}_{s1}_{p2}_{s2}_{precision}_{scale}"
    return declare_function(name, (left.type, right.type), call.type, compute)
