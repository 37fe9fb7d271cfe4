"""Render bound expressions as DuckDB text. Column i of the input is `c{i}`, and every piece has exactly Spark's type.

The text depends on the plan alone, never on the user's text. A node without a rule for its shape is refused (see
registry).
"""

import base64
import hashlib
import json
import re
from typing import Any

import pyarrow as pa

import tussock.jobs.kernels.arithmetic
import tussock.jobs.kernels.cast
import tussock.jobs.kernels.comparison
import tussock.jobs.kernels.conditional
import tussock.jobs.kernels.datetime
import tussock.jobs.kernels.math
import tussock.jobs.kernels.nested
import tussock.jobs.kernels.python_function
import tussock.jobs.kernels.strings  # noqa: F401 - importing a rule file puts its nodes on the list
from tussock.jobs.kernels.duck import array_of, duck_type, quote_string, struct_of
from tussock.jobs.kernels.errors import UnsupportedExpressionError
from tussock.jobs.kernels.registry import NESTED, Rule, family_of, may_raise, rule_of
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal
from tussock.statestore.nested import is_nested
from tussock.statestore.types import UnsupportedTypeError, arrow_type
from tussock.statestore.types import type_name as type_name_of

_SHORT = 40  # characters; a shorter piece is repeated instead of bound to a variable
_DIVISOR_FIRST = frozenset({"Divide", "IntegralDivide", "Remainder", "Pmod"})


def require_renderable(expr: Expr) -> None:
    """Refuse an expression that no kernel renders.

    Raises:
        UnsupportedExpressionError: contains the node, its types, its place in the user's text, and the reason.
    """
    _require_type(expr, expr.type)  # nested inside, a list of texts or an interval is allowed if a rule accepts it
    render_expression(expr)


def has_kernel(expr: Expr) -> bool:
    """Whether a kernel renders the expression."""
    try:
        require_renderable(expr)
    except UnsupportedExpressionError:
        return False
    return True


def render_expression(expr: Expr) -> str:
    """Render the expression as DuckDB text, in parentheses unless it is one word. Raises UnsupportedExpressionError."""
    match expr:
        case Column(index=index, type=type_name):
            _require_type(expr, type_name)
            return f"c{index}"
        case Literal(type=type_name):
            if not type_name.startswith("interval "):
                _require_type(expr, type_name)
            return _render_literal(expr)
        case Call():
            return f"({_render_call(expr, rule_of(expr))})"


def _render_call(call: Call, rule: Rule) -> str:
    """Render a node.

    Each argument is evaluated once, in Spark's order, and only on the rows on which Spark evaluates it.

    Spark stops at the first NULL of a strict node. An argument that may raise is therefore evaluated only after a NULL
    test of the arguments before it. Other nodes guard their conditional arguments themselves. Only arguments that are
    always evaluated are bound to variables here.
    """
    texts = [render_expression(a) for a in call.args]
    names = [
        text if len(text) <= _SHORT or isinstance(a, Literal) else _name_of(text)
        for a, text in zip(call.args, texts, strict=True)
    ]
    order = [*range(len(texts))]
    if call.node in _DIVISOR_FIRST:
        order.reverse()
    elif not rule.strict and any(may_raise(a) for a in call.args[1:]):
        names[1:], order = texts[1:], order[:1]
    body = rule.render(call, names)
    for n in reversed(range(len(order))):
        body = _bind_variable(names[order[n]], texts[order[n]], body)
        before = call.args[order[n - 1]] if n else None
        if rule.strict and not _is_never_null(before) and any(may_raise(call.args[i]) for i in order[n:]):
            body = f"CASE WHEN {names[order[n - 1]]} IS NULL THEN NULL ELSE {body} END"
    return body


def _is_never_null(before: Expr | None) -> bool:
    """Whether an argument is a constant other than NULL, or there is none."""
    return before is None or (isinstance(before, Literal) and before.value is not None)


def _name_of(text: str) -> str:
    """The variable for a value.

    Equal texts have equal names, so a nested variable of the same name has the same value.
    """
    return f"v{hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:16]}"


def _bind_variable(name: str, text: str, body: str) -> str:
    """`body` with `name` bound to `text`. DuckDB has no LET, so a lambda over a list of one value does it.

    Cost: 5 ms for a million rows.
    """
    if name == text:
        return body
    around = _split_at_variable(name, body)
    if len(around) <= 2:
        return text.join(around)
    return f"list_transform([{text}], lambda {name}: {body})[1]"


def _split_at_variable(name: str, body: str) -> list[str]:
    """The pieces of `body` between the uses of a variable. The variable's name in a string constant is not a use."""
    if name not in body:
        return [body]
    pieces, start = [], 0
    for match in re.finditer(rf"'(?:[^']|'')*'|{name}", body):
        if match[0] == name:
            pieces.append(body[start : match.start()])
            start = match.end()
    return [*pieces, body[start:]]


def _require_type(expr: Expr, type_name: str) -> None:
    try:
        arrow_type(type_name)
    except UnsupportedTypeError as err:
        place = expr.place if isinstance(expr, Call) else None
        raise UnsupportedExpressionError(f"type {type_name}", expression_text(expr), "is not supported", place) from err


def _render_literal(literal: Literal) -> str:
    """Render a constant in physical form (see nodes.Literal). An interval becomes its months or microseconds."""
    value, type_name = literal.value, literal.type
    if type_name.startswith("interval "):
        type_name = "bigint"
    if value is not None and family_of(type_name) in NESTED:
        return _nested_constant(json.loads(str(value)), arrow_type(type_name))
    return _render_constant(value, type_name)


def _render_constant(value: bool | int | str | None, type_name: str) -> str:
    if value is None:
        return f"CAST(NULL AS {duck_type(type_name)})"
    match type_name:
        case "boolean":
            return "TRUE" if value else "FALSE"
        case "string":
            return quote_string(str(value))
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


def _nested_constant(value: Any, kind: pa.DataType) -> str:
    """Render a constant, nested or not, from the parsed JSON of its physical form."""
    if value is None or not is_nested(kind):
        return _render_constant(value, type_name_of(kind))
    if pa.types.is_struct(kind):
        return struct_of([_nested_constant(part, field.type) for part, field in zip(value, kind, strict=True)])
    if pa.types.is_map(kind):
        keys, values = ([pair[side] for pair in value] for side in (0, 1))
        return (
            f"map({_nested_constant(keys, pa.list_(kind.key_type))}, "
            f"{_nested_constant(values, pa.list_(kind.item_type))})"
        )
    return array_of([_nested_constant(part, kind.value_type) for part in value], type_name_of(kind))
