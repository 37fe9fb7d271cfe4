"""Bound expressions as trees: their columns, substitution, and conjunctions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

import msgspec

from tussock.jobs.logical.nodes import BY_SPARK, PYTHON, Call, Column, Expr


def column_reads(expr: Expr) -> Iterator[Column]:
    """Every reference to an input column in an expression, including repeats."""
    if isinstance(expr, Column):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from column_reads(arg)


def reads_of(expr: Expr) -> Iterator[int]:
    """The input column of every reference in an expression, including repeats."""
    return (column.index for column in column_reads(expr))


def columns_of(expr: Expr) -> frozenset[int]:
    """The indices of the input columns that an expression reads."""
    return frozenset(reads_of(expr))


def calls_of_spark(expr: Expr) -> Iterator[Call]:
    """The outermost parts of an expression that Spark computes between two levels."""
    if isinstance(expr, Call):
        if expr.node == BY_SPARK:
            yield expr
        else:
            for arg in expr.args:
                yield from calls_of_spark(arg)


def python_calls(expr: Expr) -> Iterator[Call]:
    """All calls of Python functions in an expression."""
    if isinstance(expr, Call):
        if expr.node == PYTHON:
            yield expr
        for arg in expr.args:
            yield from python_calls(arg)


def with_spark_calls(expr: Expr, to: Callable[[Call], Expr]) -> Expr:
    """The expression with each outermost call that Spark computes replaced by `to(call)`."""
    if not isinstance(expr, Call):
        return expr
    if expr.node == BY_SPARK:
        return to(expr)
    return msgspec.structs.replace(expr, args=tuple(with_spark_calls(a, to) for a in expr.args))


def needs_spark(expr: Expr) -> bool:
    """Whether Spark computes a part of the expression."""
    return any(True for _ in calls_of_spark(expr))


def substitute_columns(expr: Expr, columns: Mapping[int, Expr] | Sequence[Expr]) -> Expr:
    """The expression with column i replaced by `columns[i]`."""
    if isinstance(expr, Column):
        return columns[expr.index]
    if isinstance(expr, Call):
        return msgspec.structs.replace(expr, args=tuple(substitute_columns(a, columns) for a in expr.args))
    return expr


def renumber_columns(expr: Expr, to: Mapping[int, int] | Sequence[int]) -> Expr:
    """The expression with column i renumbered to `to[i]`."""
    if isinstance(expr, Column):
        return Column(to[expr.index], expr.type)
    if isinstance(expr, Call):
        return msgspec.structs.replace(expr, args=tuple(renumber_columns(a, to) for a in expr.args))
    return expr


def join_by_and(conditions: Sequence[Expr]) -> Expr:
    """The conditions joined by AND. Requires: at least one."""
    return reduce(lambda left, right: Call("And", "boolean", (left, right)), conditions)


def join_by_or(conditions: Sequence[Expr]) -> Expr:
    """The conditions joined by OR. Requires: at least one."""
    return reduce(lambda left, right: Call("Or", "boolean", (left, right)), conditions)


def split_conjuncts(condition: Expr) -> list[Expr]:
    """The operands of a condition's top-level ANDs."""
    if isinstance(condition, Call) and condition.node == "And":
        return [c for arg in condition.args for c in split_conjuncts(arg)]
    return [condition]


def without_places(expr: Expr) -> Expr:
    """The expression without source places, for comparison. Texts with equal meaning differ only in places."""
    if not isinstance(expr, Call):
        return expr
    return msgspec.structs.replace(expr, args=tuple(without_places(a) for a in expr.args), place=None)
