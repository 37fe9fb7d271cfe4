"""Expressions as SQL-like text for EXPLAIN, such as `c3 + 1` or `CASE WHEN c7 < 1.0 THEN 'fog' … END`.

`c{i}` is column i of the operator's input.

The text is for people and omits details that they take for granted, such as ANSI mode and literal types. The text of
`tussock.jobs.sql.show` has every detail.
"""

import datetime
import re
from collections.abc import Sequence

from tussock.jobs.logical.nodes import BY_SPARK, PYTHON, Call, Column, Expr, Literal

_INFIX = {
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "IntegralDivide": "div",
    "Remainder": "%",
    "And": "AND",
    "Or": "OR",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_COLUMN = re.compile(r"`a(\d+)`")  # an argument in a text that Spark computes
_EPOCH = datetime.datetime(1970, 1, 1)


def expression_text(expr: Expr) -> str:
    """One expression as text. Equal expressions have equal texts."""
    text = _operand_text(expr)
    return (
        text[1:-1] if isinstance(expr, Call) and text.startswith("(") else text
    )  # a text that starts with a parenthesis is enclosed by one pair


def _operand_text(expr: Expr) -> str:
    """The expression, in parentheses if a neighbour could change its meaning."""
    match expr:
        case Column(index=index):
            return f"c{index}"
        case Literal():
            return _literal_text(expr)
        case Call(node=node, args=args, params=((_, template), *_)) if node == BY_SPARK:
            return f"({_COLUMN.sub(lambda match: _operand_text(args[int(match[1])]), template)})"
        case Call(node=node, args=args, params=((_, name), _)) if node == PYTHON:
            return f"{name}({', '.join(map(expression_text, args))})"
        case Call(node="Cast", args=(child,), mode=mode, type=type_name):
            return f"{'TRY_' if mode == 'TRY' else ''}CAST({expression_text(child)} AS {type_name})"
        case Call(node="IsNull", args=(child,)):
            return f"({_operand_text(child)} IS NULL)"
        case Call(node="IsNotNull", args=(child,)):
            return f"({_operand_text(child)} IS NOT NULL)"
        case Call(node="Not", args=(child,)):
            return f"(NOT {_operand_text(child)})"
        case Call(node="In", args=(value, *others)):
            return f"({_operand_text(value)} IN ({', '.join(map(expression_text, others))}))"
        case Call(node="CaseWhen", args=args):
            return _case_text(args)
        case Call(node=node, args=(left, right), mode=mode) if node in _INFIX and mode != "TRY":
            return f"({_operand_text(left)} {_INFIX[node]} {_operand_text(right)})"
        case Call(node=node, args=args, mode=mode):
            return f"{'try_' if mode == 'TRY' else ''}{node}({', '.join(map(expression_text, args))})"


def _case_text(args: Sequence[Expr]) -> str:
    pairs = " ".join(
        f"WHEN {expression_text(c)} THEN {expression_text(v)}" for c, v in zip(args[0::2], args[1::2], strict=False)
    )
    last = f" ELSE {expression_text(args[-1])}" if len(args) % 2 else ""
    return f"CASE {pairs}{last} END"


def _literal_text(literal: Literal) -> str:
    value, type_name = literal.value, literal.type
    if value is None:
        return "NULL"
    match type_name:
        case "string":
            return "'" + str(value).replace("'", "''") + "'"
        case "boolean":
            return str(value).upper()
        case "date" | "timestamp" | "timestamp_ntz":
            unit = "days" if type_name == "date" else "microseconds"
            try:
                at = _EPOCH + datetime.timedelta(**{unit: int(value)})
            except OverflowError:  # beyond the years 1 to 9999
                return f"{type_name}({value} {unit} since 1970)"
            return f"DATE '{at.date()}'" if type_name == "date" else f"{type_name.upper()} '{at}'"
        case _:
            return str(value)
