"""Conditions on rows that this process can evaluate over Arrow rows with Spark's result.

A condition is Spark's SQL (`"condition_parser": "spark"`), or an object of Great Expectations. Understood are
comparisons of columns with each other and with literals, IS NULL, IN, BETWEEN, AND, OR, NOT and parentheses:

    condition   = conjunction {OR conjunction}
    conjunction = negation {AND negation}
    negation    = NOT negation | ( condition ) | predicate
    predicate   = operand (= | == | <> | != | < | <= | > | >=) operand
                | operand IS [NOT] NULL | operand [NOT] IN (literal, …) | operand [NOT] BETWEEN literal AND literal
    operand     = column | literal

Both sides must be numbers, or strings, or dates (a literal DATE 'yyyy-mm-dd'). Everything else is left to Spark, also
integers and decimals without a common type of at most 38 digits. Spark rounds these to compare them: a decimal(38,0) of
1 equals a decimal(38,18) of 1.4.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import Token, tokens_of, with_signs
from tussock.statestore.errors import InputError

Mask = Callable[[pa.Table], Any]
"""Returns which rows meet a condition. NULL: neither."""

Digits = tuple[int, int]
"""The number of digits before and after the point."""

_DIGITS: Mapping[pa.DataType, int] = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_MOST_DIGITS = 38  # of a decimal


def number(column: Any) -> Any:
    """Return numbers as doubles, as Spark compares them with a double."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())  # Arrow's cast of decimals to doubles does not round to the nearest
    return column if pa.types.is_float64(column.type) else pc.cast(column, pa.float64(), safe=False)


_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "==": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def filter_of(condition: object, schema: pa.Schema) -> Mask | None:
    """Return a condition as a function over rows; None if only Spark is known to evaluate it as Spark does.

    Args:
        condition: SQL, or an object of Great Expectations, also as in a suite's file.
    """
    if hasattr(condition, "dict"):
        condition = condition.dict()
    if isinstance(condition, Mapping) and condition.get("type") == "pass_through":
        condition = condition.get("pass_through_filter")
    try:
        if isinstance(condition, str):
            return _Parser(condition, schema).whole()
        if isinstance(condition, Mapping):
            return _of_object(condition, schema)
    except (_NotUnderstood, InputError):
        pass
    return None


class _NotUnderstood(Exception):
    """The condition is outside of the grammar above."""


@dataclass(frozen=True, slots=True)
class _Operand:
    """A column or a literal, with its kind: number, string or date.

    `digits`: of an integer or a decimal, as of `decimal_digits`; for a literal of an integer, its own.
    `digits_in_list`: those of its type, because IN converts all its values to one type.
    """

    kind: str
    of: Mask
    digits: Digits = (0, 0)
    digits_in_list: Digits = (0, 0)


def _column(name: str, schema: pa.Schema) -> _Operand:
    found = [field for field in schema if field.name.lower() == name.lower()]
    if len(found) != 1:
        raise _NotUnderstood
    field = found[0]

    def value(rows: pa.Table) -> Any:
        return rows[field.name]

    if any(of_kind(field.type) for of_kind in (pa.types.is_integer, pa.types.is_decimal, pa.types.is_float64)):
        digits = decimal_digits(field.type)
        return _Operand("number", value, digits, digits)
    if pa.types.is_string(field.type):
        return _Operand("string", value)
    if pa.types.is_date(field.type):
        return _Operand("date", value)
    raise _NotUnderstood


def _literal(value: object) -> _Operand:
    """Return a literal: an int, a Decimal, a float, a string or a date."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str | date):
        raise _NotUnderstood
    if isinstance(value, int) and abs(value) >= 2**63:
        raise _NotUnderstood
    kind = "string" if isinstance(value, str) else "date" if isinstance(value, date) else "number"
    scalar = pa.scalar(value)
    if not isinstance(value, int):
        digits = decimal_digits(scalar.type)
        return _Operand(kind, lambda _: scalar, digits, digits)
    of_type = _DIGITS[pa.int32() if -(2**31) <= value < 2**31 else pa.int64()]
    return _Operand(kind, lambda _: scalar, (len(str(abs(value))), 0), (of_type, 0))


def decimal_digits(kind: pa.DataType) -> Digits:
    """Return the digits of an integer's or a decimal's type, as Spark counts them. (0, 0) for other types."""
    if pa.types.is_decimal(kind):
        return max(0, kind.precision - kind.scale), kind.scale
    return _DIGITS.get(kind, 0), 0


def have_common_type(a: Digits, b: Digits) -> bool:
    """Return whether Spark compares two integers or decimals exactly. It rounds others."""
    return max(a[0], b[0]) + max(a[1], b[1]) <= _MOST_DIGITS


def _compared(sign: str, left: _Operand, right: _Operand) -> Mask:
    if left.kind != right.kind or not have_common_type(left.digits, right.digits):
        raise _NotUnderstood
    return lambda rows: compared(sign, left.of(rows), right.of(rows))


def compared(sign: str, a: Any, b: Any) -> Any:
    """Compare two values of one kind as Spark does, also integers with decimals and both with doubles.

    Requires: integers and decimals that `have_common_type`.
    """
    if pa.types.is_float64(a.type) or pa.types.is_float64(b.type):
        return _compared_doubles(sign, number(a), number(b))
    return _COMPARED[sign](*_same_scale(a, b))


def _same_scale(a: Any, b: Any) -> tuple[Any, Any]:
    """Return integers and decimals as exact decimals of one type; other values unchanged."""
    if not (pa.types.is_decimal(a.type) or pa.types.is_decimal(b.type)):
        return a, b
    scale = max(side.type.scale if pa.types.is_decimal(side.type) else 0 for side in (a, b))
    exact = pa.decimal256(76, scale)

    def scaled(side: Any) -> Any:
        return (side.cast(pa.decimal256(38, 0)) if pa.types.is_integer(side.type) else side).cast(exact)

    return scaled(a), scaled(b)


def _compared_doubles(sign: str, a: Any, b: Any) -> Any:
    """Compare doubles as Spark does: NaN equals NaN and is greater than any other number."""
    met, a_nan, b_nan = _COMPARED[sign](a, b), pc.is_nan(a), pc.is_nan(b)
    match sign:
        case "=" | "==" | "<=" | ">=":
            met = pc.or_kleene(met, pc.and_kleene(a_nan, b_nan))
        case "<>" | "!=":
            return pc.and_kleene(met, pc.invert(pc.and_kleene(a_nan, b_nan)))
    if sign in (">", ">="):
        return pc.or_kleene(met, pc.and_kleene(a_nan, pc.invert(b_nan)))
    if sign in ("<", "<="):
        return pc.or_kleene(met, pc.and_kleene(b_nan, pc.invert(a_nan)))
    return met


class _Parser:
    """Parses a condition. Raises _NotUnderstood."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._tokens, self._schema, self._at = with_signs(tokens_of(SourceText(text)), _COMPARED), schema, 0

    def whole(self) -> Mask:
        """Parse all tokens."""
        found = self._condition()
        if self._at < len(self._tokens):
            raise _NotUnderstood
        return found

    def _next(self) -> Token:
        if self._at == len(self._tokens):
            raise _NotUnderstood
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, *texts: str) -> bool:
        """Skip these words or symbols, if they come next."""
        ahead = self._tokens[self._at : self._at + len(texts)]
        if [t.text.upper() for t in ahead if t.kind in ("word", "symbol")] != list(texts):
            return False
        self._at += len(texts)
        return True

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise _NotUnderstood

    def _condition(self) -> Mask:
        return self._joined(self._conjunction, "OR", pc.or_kleene)

    def _conjunction(self) -> Mask:
        return self._joined(self._negation, "AND", pc.and_kleene)

    def _joined(self, part: Callable[[], Mask], word: str, join: Callable[[Any, Any], Any]) -> Mask:
        found = part()
        while self._take(word):
            found = _join(found, part(), join)
        return found

    def _negation(self) -> Mask:
        if self._take("NOT"):
            return _inverted(self._negation())
        if self._take("("):
            found = self._condition()
            self._need(")")
            return found
        return self._predicate()

    def _predicate(self) -> Mask:
        left = self._operand()
        if self._take("IS"):
            inverted = self._take("NOT")
            self._need("NULL")
            of = left.of
            return (lambda rows: pc.is_valid(of(rows))) if inverted else (lambda rows: pc.is_null(of(rows)))
        inverted = self._take("NOT")
        if self._take("IN"):
            found = self._among(left)
        elif self._take("BETWEEN"):
            low = _compared(">=", left, self._operand())
            self._need("AND")
            found = _join(low, _compared("<=", left, self._operand()), pc.and_kleene)
        elif not inverted and (sign := self._next()).text in _COMPARED:
            found = _compared(sign.text, left, self._operand())
        else:
            raise _NotUnderstood
        return _inverted(found) if inverted else found

    def _among(self, left: _Operand) -> Mask:
        """Spark converts the left side and all values to one type."""
        self._need("(")
        values = [self._operand()]
        while self._take(","):
            values.append(self._operand())
        self._need(")")
        whole, scale = (max(operand.digits_in_list[part] for operand in (left, *values)) for part in (0, 1))
        if whole + scale > _MOST_DIGITS:
            raise _NotUnderstood
        masks = (_compared("=", left, value) for value in values)
        return reduce(lambda a, b: _join(a, b, pc.or_kleene), masks)

    def _operand(self) -> _Operand:
        sign = "-" if self._take("-") else ""
        token = self._next()
        if token.kind == "number":
            return _literal(_number(sign + token.text))
        if sign:
            raise _NotUnderstood
        if token.kind == "string":
            return _literal(token.value())
        if token.kind == "word" and token.text.upper() == "DATE" and self._tokens[self._at : self._at + 1]:
            value = self._next()
            if value.kind == "string":
                try:
                    return _literal(date.fromisoformat(value.value()))
                except ValueError:
                    pass
            raise _NotUnderstood
        if token.kind not in ("word", "name") or token.text.upper() in _WORDS:
            raise _NotUnderstood
        return _column(token.value(), self._schema)


_WORDS = frozenset({"AND", "OR", "NOT", "IS", "IN", "NULL", "BETWEEN", "TRUE", "FALSE", "CASE", "LIKE", "EXISTS"})


def _number(text: str) -> int | Decimal:
    """Return a literal as Spark types it: an integer, or a decimal."""
    digits = text.lstrip("-")
    if digits.isdigit():
        return int(text)
    whole, dot, rest = digits.partition(".")
    if dot and (whole + rest).isdigit() and len(whole + rest) <= 18:
        return Decimal(text)
    raise _NotUnderstood


def _join(a: Mask, b: Mask, join: Callable[[Any, Any], Any]) -> Mask:
    return lambda rows: join(a(rows), b(rows))


def _inverted(one: Mask) -> Mask:
    return lambda rows: pc.invert(one(rows))


def _of_object(condition: Mapping[str, Any], schema: pa.Schema) -> Mask:
    """Return a condition that is written as an object, as Great Expectations serializes its conditions."""
    match condition:
        case {"type": "comparison", "column": {"name": str(name)}, "operator": str(sign), "parameter": value}:
            left = _column(name, schema)
            if sign in _COMPARED and not isinstance(value, list):
                return _compared(sign, left, _literal(value))
        case {"type": "nullity", "column": {"name": str(name)}, "is_null": bool(is_null)}:
            of = _column(name, schema).of
            return (lambda rows: pc.is_null(of(rows))) if is_null else (lambda rows: pc.is_valid(of(rows)))
        case {"type": "and" | "or" as kind, "conditions": [first, *others]}:
            join = pc.and_kleene if kind == "and" else pc.or_kleene
            found = _of_object(first, schema)
            for other in others:
                found = _join(found, _of_object(other, schema), join)
            return found
    raise _NotUnderstood
