"""Arithmetic with Spark's result types.

Integer overflow of the node's type raises, and so does division by zero.

Spark has already cast integer operands to one type, and the result has that type. In TRY mode, the node computes in a
wider type and returns NULL if the result does not fit. Only the node's overflow becomes NULL; errors of operands raise.
"""

from collections.abc import Sequence

from tussock.jobs.kernels.decimals import decimal_call, refuse_decimal
from tussock.jobs.kernels.duck import duck_type, fail_when, int_range, strict_cast, try_cast
from tussock.jobs.kernels.registry import FLOATS, INTEGERS, NUMBERS, family_of, renders
from tussock.jobs.logical.nodes import Call, Expr, Literal

_SAME = [((t, t), t) for t in NUMBERS]
_SYMBOLS = {"Add": "+", "Subtract": "-", "Multiply": "*"}
_ZERO = "division by zero"


def _register_symbol(node: str, symbol: str) -> None:
    @renders(node, _SAME, refuse=refuse_decimal, raises=True)
    def render_ansi(call: Call, args: Sequence[str]) -> str:
        if family_of(call.type) == "decimal":
            return decimal_call(call, args)
        return f"{args[0]} {symbol} {args[1]}"

    @renders(node, _SAME, mode="TRY", refuse=refuse_decimal, raises=True)
    def render_try(call: Call, args: Sequence[str]) -> str:
        if family_of(call.type) == "decimal":
            return decimal_call(call, args)
        if call.type in FLOATS:
            return f"{args[0]} {symbol} {args[1]}"
        return try_cast(f"CAST({args[0]} AS HUGEINT) {symbol} {args[1]}", call.type)


for _node, _symbol in _SYMBOLS.items():
    _register_symbol(_node, _symbol)


def _divides_by_zero(args: Sequence[str]) -> str:
    """Spark checks the divisor first, but a NULL dividend gives NULL for any divisor."""
    return f"{args[1]} = 0 AND {args[0]} IS NOT NULL"


def _render_divide(call: Call, args: Sequence[str]) -> str:
    if family_of(call.type) == "decimal":
        return decimal_call(call, args)
    return fail_when(_divides_by_zero(args), _ZERO, f"{args[0]} / {args[1]}", call)


def _integral_divide(call: Call, args: Sequence[str]) -> str:
    return f"{args[0]} // {args[1]}"  # truncates; raises on zero and on MIN // -1


def _render_remainder(call: Call, args: Sequence[str]) -> str:
    """The result has the dividend's sign, as in C; MIN % -1 is 0."""
    return _unless_zero(call, args, _render_modulo(call, args))


def _unless_zero(call: Call, args: Sequence[str], value: str) -> str:
    return value if _is_safe(call.args[1]) else fail_when(_divides_by_zero(args), _ZERO, value, call)


def _is_safe(divisor: Expr) -> bool:
    """Whether a divisor is an integer that no row fails for. DuckDB computes checks of constants for every row."""
    match divisor:
        case Literal(value=int() as value, type=type_name) if type_name in INTEGERS:
            return value not in (0, -1)
    return False


def _render_pmod(call: Call, args: Sequence[str]) -> str:
    """r = a % n, and (r + n) % n if r is negative. For int and bigint, the sum wraps around as in Java."""
    remainder = f"({_render_modulo(call, args)})"
    if call.type in FLOATS:
        moved = f"({remainder} + {args[1]}) % {args[1]}"
    else:
        total = f"(CAST({remainder} AS HUGEINT) + {args[1]})"
        if call.type in ("int", "bigint"):
            low, high = int_range(call.type)
            total = f"(CASE WHEN {total} < {low} THEN {total} + {high - low + 1} ELSE {total} END)"
        moved = strict_cast(f"({total} % {args[1]})", call.type)
    value = f"CASE WHEN {remainder} < 0 THEN {moved} ELSE {remainder} END"
    return _unless_zero(call, args, value)


def _render_modulo(call: Call, args: Sequence[str]) -> str:
    if family_of(call.type) == "decimal":
        return strict_cast(f"({args[0]} % {args[1]})", call.type)
    if call.type in INTEGERS and not _is_safe(call.args[1]):  # MIN % -1 overflows in machine division
        overflows = f"{args[1]} = -1 AND {args[0]} IS NOT NULL"
        return f"CASE WHEN {overflows} THEN {strict_cast('0', call.type)} ELSE {args[0]} % {args[1]} END"
    return f"{args[0]} % {args[1]}"


_WITH_FLOATS = [((t, t), t) for t in (*INTEGERS, *FLOATS)]
_QUOTIENTS = [((t, t), t) for t in ("double", "decimal")]
for _mode in (None, "TRY"):
    renders("Divide", _QUOTIENTS, mode=_mode, refuse=refuse_decimal, raises=True)(_render_divide)
    renders("Remainder", _SAME, mode=_mode, refuse=refuse_decimal, raises=True)(_render_remainder)
renders("IntegralDivide", [(("bigint", "bigint"), "bigint")], raises=True)(_integral_divide)
renders("Pmod", _WITH_FLOATS, raises=True)(_render_pmod)


@renders("UnaryMinus", [((t,), t) for t in NUMBERS], refuse=refuse_decimal, raises=True)
def unary_minus(call: Call, args: Sequence[str]) -> str:
    if call.type in INTEGERS:  # a plain minus widens the type
        return f"CAST(0 AS {duck_type(call.type)}) - {args[0]}"
    return f"-{args[0]}"


@renders("Abs", [((t,), t) for t in NUMBERS], refuse=refuse_decimal, raises=True)
def render_abs(call: Call, args: Sequence[str]) -> str:
    return f"abs({args[0]})"
