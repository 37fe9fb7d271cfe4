"""Bound expressions to DuckDB text: column i of the input is `c{i}`, and every piece has exactly Spark's type.

The text comes from the plan alone, never from the user: a node renders by the rule of its shape (see registry), or not at all.
"""

import base64
from collections.abc import Sequence

import jobs.kernels.arithmetic
import jobs.kernels.cast
import jobs.kernels.comparison
import jobs.kernels.conditional
import jobs.kernels.datetime
import jobs.kernels.math
import jobs.kernels.strings  # noqa: F401 - importing a rule file puts its nodes on the list
from jobs.kernels.duck import duck_type, quote
from jobs.kernels.errors import UnsupportedExpressionError, text_of
from jobs.kernels.registry import family_of, may_raise, rule_of
from jobs.sql.logical import Call, Column, Expr, Literal
from statestore.types import UnsupportedTypeError, arrow_type

_DIVISOR_FIRST = frozenset({"Divide", "IntegralDivide", "Remainder", "Pmod"})


def check(expr: Expr) -> None:
    """Refuse an expression that no kernel renders.

    Raises:
        UnsupportedExpressionError: naming the node, its types, its place in the user's text, and why.
    """
    _require_type(expr, expr.type)  # inside, a list of texts or an interval may stand where a rule takes it
    render(expr)


def render(expr: Expr) -> str:
    """The expression as DuckDB text, parenthesised where it is not one word. Raises UnsupportedExpressionError."""
    match expr:
        case Column(index=index, type=type_name):
            _require_type(expr, type_name)
            return f"c{index}"
        case Literal(type=type_name):
            if not type_name.startswith("interval "):
                _require_type(expr, type_name)
            return _literal(expr)
        case Call(args=args):
            rule = rule_of(expr)
            texts = [render(a) for a in args]
            text = rule.render(expr, texts)
            return f"({_unless_null(expr, texts, text) if rule.strict else text})"


def _unless_null(call: Call, texts: Sequence[str], text: str) -> str:
    """A strict node's text, with arguments that may raise kept from rows where an argument that Spark evaluates before them is NULL."""
    order = range(len(texts))
    if call.node in _DIVISOR_FIRST:
        order = order[::-1]
    last = max((n for n, i in enumerate(order) if may_raise(call.args[i])), default=0)
    if last == 0:
        return text
    guards = " ".join(f"WHEN {texts[i]} IS NULL THEN NULL" for i in order[:last] if not isinstance(call.args[i], Literal))
    return f"CASE {guards} ELSE {text} END" if guards else text


def _require_type(expr: Expr, type_name: str) -> None:
    try:
        arrow_type(type_name)
    except UnsupportedTypeError as err:
        place = expr.place if isinstance(expr, Call) else None
        raise UnsupportedExpressionError(f"type {type_name}", text_of(expr), "is not supported", place) from err


def _literal(literal: Literal) -> str:
    """A constant in physical form (see logical.Literal) as a typed DuckDB constant; an interval as its months or microseconds."""
    value, type_name = literal.value, literal.type
    if type_name.startswith("interval "):
        type_name = "int" if family_of(type_name) == "interval months" else "bigint"
    if value is None:
        return f"CAST(NULL AS {duck_type(type_name)})"
    match type_name:
        case "boolean":
            return "TRUE" if value else "FALSE"
        case "string":
            return quote(str(value))
        case "binary":
            return f"from_hex('{base64.b64decode(str(value)).hex()}')"
        case "date":
            return f"(DATE '1970-01-01' + CAST({value} AS INTEGER))"
        case "timestamp":
            return f"make_timestamptz(CAST({value} AS BIGINT))"
        case "timestamp_ntz":
            return f"make_timestamp(CAST({value} AS BIGINT))"
        case _:
            return f"CAST('{value}' AS {duck_type(type_name)})"
