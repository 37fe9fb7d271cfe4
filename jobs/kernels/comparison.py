"""Comparisons and NULL tests.

DuckDB and Spark agree on these rules: NaN equals NaN and is greater than all other values, 0.0 equals -0.0, strings
compare as bytes, doubles are ordered from -inf to NaN, and FALSE < TRUE.
"""

from collections.abc import Sequence

from tussock.jobs.kernels.nested import ORDERED, as_bytes
from tussock.jobs.kernels.registry import ANY, FLOATS, TYPES, may_raise, renders
from tussock.jobs.logical.nodes import Call

_PAIRS = [((t, t), "boolean") for t in (*TYPES, *ORDERED)]
_OPERATORS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "EqualNullSafe": "IS NOT DISTINCT FROM",
}


def _register_operator(node: str, operator: str) -> None:
    @renders(node, _PAIRS, strict=node != "EqualNullSafe")
    def render_comparison(call: Call, args: Sequence[str]) -> str:
        left, right = (as_bytes(text, arg.type) for text, arg in zip(args, call.args, strict=True))
        return f"{left} {operator} {right}"


for _node, _operator in _OPERATORS.items():
    _register_operator(_node, _operator)


@renders("IsNull", [((t,), "boolean") for t in ANY], strict=False)
def is_null(call: Call, args: Sequence[str]) -> str:
    return f"{args[0]} IS NULL"


@renders("IsNotNull", [((t,), "boolean") for t in ANY], strict=False)
def is_not_null(call: Call, args: Sequence[str]) -> str:
    return f"{args[0]} IS NOT NULL"


@renders("IsNaN", [((t,), "boolean") for t in FLOATS])
def is_nan(call: Call, args: Sequence[str]) -> str:
    return f"coalesce(isnan({args[0]}), FALSE)"  # never NULL in Spark


def _refuse_in(call: Call) -> str | None:
    """Refuse items that may raise: Spark stops at the first equal item, but DuckDB evaluates all items."""
    return "is supported only with items that cannot raise" if any(may_raise(a) for a in call.args[1:]) else None


def _render_in(call: Call, args: Sequence[str]) -> str:
    if len(args) == 1:
        return f"CASE WHEN {args[0]} IS NULL THEN NULL ELSE FALSE END"
    value, *items = (as_bytes(text, arg.type) for text, arg in zip(args, call.args, strict=True))
    return f"{value} IN ({', '.join(items)})"


renders("In", [((t,), "boolean") for t in (*TYPES, *ORDERED)], refuse=_refuse_in, strict=False)(_render_in)
