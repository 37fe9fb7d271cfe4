"""Numeric functions: rounding, powers and logarithms, bits."""

from collections.abc import Sequence

from tussock.jobs.kernels.duck import constant_value, decimal_of, int_range, strict_cast
from tussock.jobs.kernels.registry import INTEGER_BITS, INTEGERS, constant_args, family_of, renders
from tussock.jobs.logical.nodes import Call

_DOUBLE = [(("double",), "double")]
_MAX_ROUND_DIGITS = 20  # for a double: with at most 16 digits before the point, the value fits a decimal


def _render_whole(call: Call, function: str, sql: str) -> str:
    """Render floor or ceil. For a double the result is a bigint: Java saturates, and NaN gives 0."""
    if family_of(call.type) == "decimal":
        return strict_cast(f"{function}({sql})", call.type)
    if call.args[0].type == "bigint":
        return sql
    low, high = int_range("bigint")
    beyond = f"WHEN {sql} >= {high} THEN {high} WHEN {sql} <= {low} THEN {low}"
    return f"CASE WHEN isnan({sql}) THEN 0 {beyond} ELSE {strict_cast(f'{function}({sql})', 'bigint')} END"


_WHOLE = [(("double",), "bigint"), (("bigint",), "bigint"), (("decimal",), "decimal")]


@renders("Floor", _WHOLE)
def render_floor(call: Call, args: Sequence[str]) -> str:
    return _render_whole(call, "floor", args[0])


@renders("Ceil", _WHOLE)
def render_ceil(call: Call, args: Sequence[str]) -> str:
    return _render_whole(call, "ceil", args[0])


def _refuse_round(call: Call) -> str | None:
    if (reason := constant_args(1)(call)) is not None:
        return reason
    digits = constant_value(call.args[1])
    if not isinstance(digits, int):
        return "is supported only with a number of digits"
    if family_of(call.type) == "decimal" and digits < 0:
        return "is supported only with digits after the point"
    if call.type == "double" and not 0 <= digits <= _MAX_ROUND_DIGITS:
        return f"is supported only with 0 to {_MAX_ROUND_DIGITS} digits"
    return None


@renders("Round", [((t, "int"), t) for t in (*INTEGERS, "double", "decimal")], refuse=_refuse_round, raises=True)
def render_round(call: Call, args: Sequence[str]) -> str:
    """Round HALF_UP. For a double, Spark rounds its decimal text, so that 2.675 gives 2.68."""
    digits = constant_value(call.args[1])
    assert isinstance(digits, int)
    if call.type == "double":
        rounded = strict_cast(strict_cast(args[0], "string"), f"decimal(38,{digits})")
        exact = f"abs({args[0]}) >= 4503599627370496 OR NOT isfinite({args[0]})"  # 2^52: no digits after the point
        return f"CASE WHEN {exact} THEN {args[0]} ELSE {strict_cast(strict_cast(rounded, 'string'), 'double')} END"
    if family_of(call.type) == "decimal":
        scale = decimal_of(call.args[0].type)[1]
        return strict_cast(f"round({args[0]}, {min(digits, scale)})", call.type)
    if digits >= 0:
        return args[0]
    unit = 10**-digits
    if unit > int_range("bigint")[1] * 2:
        return f"CASE WHEN {args[0]} IS NOT NULL THEN {strict_cast('0', call.type)} END"
    wide = f"CAST({args[0]} AS HUGEINT)"
    return strict_cast(f"(({wide} + sign({args[0]}) * {unit // 2}) // {unit} * {unit})", call.type)


# Powers and logarithms. The last bits differ between the C and the Java library, and between machines. ----------------


@renders("Sqrt", _DOUBLE)
def render_sqrt(call: Call, args: Sequence[str]) -> str:
    return f"CASE WHEN {args[0]} < 0 THEN 'nan'::DOUBLE ELSE sqrt({args[0]}) END"


@renders("Cbrt", _DOUBLE)
def render_cbrt(call: Call, args: Sequence[str]) -> str:
    return f"cbrt({args[0]})"


@renders("Exp", _DOUBLE)
def render_exp(call: Call, args: Sequence[str]) -> str:
    return f"exp({args[0]})"


def _register_logarithm(node: str, function: str) -> None:
    @renders(node, _DOUBLE)
    def render_logarithm(call: Call, args: Sequence[str]) -> str:
        return f"CASE WHEN {args[0]} > 0 THEN {function}({args[0]}) END"  # NULL for 0 and below; NaN is greater than 0


for _node, _function in (("Log", "ln"), ("Log10", "log10"), ("Log2", "log2")):
    _register_logarithm(_node, _function)


@renders("Pow", [(("double", "double"), "double")])
def render_pow(call: Call, args: Sequence[str]) -> str:
    """1 to the power of NaN, and -1 or 1 to an infinite power, are 1 in C and NaN in Java."""
    base, exponent = args
    nan = f"isnan({exponent}) OR (isinf({exponent}) AND abs({base}) = 1)"
    return (
        f"CASE WHEN {base} IS NULL OR {exponent} IS NULL THEN NULL WHEN {nan} THEN 'nan'::DOUBLE "
        f"ELSE pow({base}, {exponent}) END"
    )


@renders("Logarithm", [(("double", "double"), "double")])
def logarithm_to(call: Call, args: Sequence[str]) -> str:
    base, number = args
    return f"CASE WHEN {base} > 0 AND {number} > 0 THEN ln({number}) / ln({base}) END"


def _register_angle(node: str, function: str) -> None:
    @renders(node, _DOUBLE)
    def render_angle(call: Call, args: Sequence[str]) -> str:
        return f"{function}({args[0]})"


_ANGLES = {"Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan"}
_ANGLES |= {"ToDegrees": "degrees", "ToRadians": "radians"}
for _node, _function in _ANGLES.items():
    _register_angle(_node, _function)


@renders("Atan2", [(("double", "double"), "double")])
def render_atan2(call: Call, args: Sequence[str]) -> str:
    return f"atan2({args[0]} + 0.0::DOUBLE, {args[1]} + 0.0::DOUBLE)"  # turns -0.0 into 0.0


@renders("Signum", _DOUBLE)
def render_signum(call: Call, args: Sequence[str]) -> str:
    return f"CASE WHEN {args[0]} = 0 OR isnan({args[0]}) THEN {args[0]} ELSE CAST(sign({args[0]}) AS DOUBLE) END"


# Bits ---------------------------------------------------------------------------------------------

_TWO_INTEGERS = [((t, t), t) for t in INTEGERS]
_SHIFTS = [((t, "int"), t) for t in ("int", "bigint")]


def _register_bitwise(node: str, template: str) -> None:
    @renders(node, _TWO_INTEGERS)
    def render_bitwise(call: Call, args: Sequence[str]) -> str:
        return template.format(*args)


for _node, _template in (("BitwiseAnd", "{} & {}"), ("BitwiseOr", "{} | {}"), ("BitwiseXor", "xor({}, {})")):
    _register_bitwise(_node, _template)


@renders("BitwiseNot", [((t,), t) for t in INTEGERS])
def bitwise_not(call: Call, args: Sequence[str]) -> str:
    return f"~{args[0]}"


@renders("BitwiseCount", [((t,), "int") for t in INTEGERS])
def bit_count(call: Call, args: Sequence[str]) -> str:
    return strict_cast(
        f"bit_count({strict_cast(args[0], 'bigint')})", "int"
    )  # the sign of a negative number fills 64 bits


@renders("ShiftLeft", _SHIFTS)
def shift_left(call: Call, args: Sequence[str]) -> str:
    """Bits beyond the type are lost. The distance is taken modulo the type's width."""
    low, high = int_range(call.type)
    width = high - low + 1
    moved = f"CAST({args[0]} AS HUGEINT) * (1::HUGEINT << ({args[1]} & {INTEGER_BITS[call.type] - 1}))"
    return strict_cast(f"(((({moved}) % {width} + {width + high + 1}) % {width}) - {high + 1})", call.type)


@renders("ShiftRight", _SHIFTS)
def shift_right(call: Call, args: Sequence[str]) -> str:
    return f"{args[0]} >> ({args[1]} & {INTEGER_BITS[call.type] - 1})"
