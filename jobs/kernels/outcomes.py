"""Find the possible outcomes of conditions on a small chunk, without a kernel query per condition.

Five hundred views may filter one table, and a query costs 2 ms. One query therefore computes the values that the
conditions compare with constants, and this module summarises them. `ChunkValues.keeps_none` evaluates AND, OR, NOT and
the comparisons of a condition over the summaries. The result may include an outcome that no row has, but it never
misses one.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.kernels.registry import NUMBERS, family_of, may_raise
from tussock.jobs.logical.expression_tree import python_calls, renumber_columns, without_places
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal

MOST_ROWS = 4096  # largest chunk that is summarised
FEWEST_CONDITIONS = 4  # from this number on, one query computes the values of all conditions
_AT_ONCE = 256  # values per query

Outcomes = int  # possible outcomes of a condition: a union of these
TRUE, FALSE, NULL, RAISES = 1, 2, 4, 8

_TURNED = {
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}

_COMPARED = frozenset({"boolean", *NUMBERS, "string", "binary", "date", "timestamp", "timestamp_ntz"})


@dataclass(frozen=True, slots=True)
class Summary:
    """The values of an expression on the rows of a chunk.

    `values` contains each value once, without NULL, in a form that Python compares as Spark does. None if Python cannot
    compare values of this type as Spark does.
    """

    values: frozenset[Any] | None
    least: Any  # None if there are no values
    greatest: Any
    nulls: bool
    all_null: bool


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """A part of a condition that depends on one expression. `of(summary)` returns its outcomes, None if unknown."""

    value: Expr
    of: Callable[[Summary], Outcomes | None]


@lru_cache(maxsize=4096)
def over_columns(condition: Expr, columns: tuple[int, ...]) -> Expr:
    """Rewrite a reader's condition over its producer's columns. `columns` are the columns that the reader takes.

    Conditions of several readers that compare the same value then contain equal expressions.
    """
    return without_places(renumber_columns(condition, columns))


class ChunkValues:
    """Summaries of the values of one chunk. Requires: the chunk has 1 to MOST_ROWS rows."""

    def __init__(self, chunk: pa.Table, kernel: Kernel, conditions: Iterable[Expr]) -> None:
        """
        Args:
            chunk: its columns are named `c0`, `c1`, …
            conditions: all conditions of later calls, in the form of `over_columns`.

        Cost: one query per 256 values. No query if there are fewer than FEWEST_CONDITIONS conditions, or all of them
        compare plain columns.
        """
        self._chunk = chunk
        self._summaries: dict[Expr, Summary] = {}
        wanted = list(conditions)
        if len(wanted) >= FEWEST_CONDITIONS:
            self._summarise_values(kernel, list(dict.fromkeys(v for c in wanted for v in _computed_values(c))))

    def keeps_none(self, condition: Expr) -> bool:
        """Whether a filter with this condition surely keeps no row and never raises. Cost: one step per node."""
        return not self._outcomes_of(condition) & (TRUE | RAISES)

    def _outcomes_of(self, condition: Expr) -> Outcomes:
        match condition:
            case Call(node="And", args=(left, right)):
                return _join_sides(self._outcomes_of(left), right, FALSE, TRUE, self._outcomes_of)
            case Call(node="Or", args=(left, right)):
                return _join_sides(self._outcomes_of(left), right, TRUE, FALSE, self._outcomes_of)
            case Call(node="Not", args=(arg,)):
                outcomes = self._outcomes_of(arg)
                return (
                    (outcomes & (NULL | RAISES)) | (FALSE if outcomes & TRUE else 0) | (TRUE if outcomes & FALSE else 0)
                )
            case Literal(value=None):
                return NULL
            case Literal(value=bool() as value):
                return TRUE if value else FALSE
        compared = find_comparison(condition)
        summary = self._known_summary(compared.value)
        known = None if summary is None else compared.of(summary)
        return known if known is not None else TRUE | FALSE | NULL | (RAISES if may_raise(condition) else 0)

    def _known_summary(self, value: Expr) -> Summary | None:
        if (known := self._summaries.get(value)) is None and isinstance(value, Column):
            known = self._summaries[value] = summary_of(self._chunk.column(f"c{value.index}"), value.type)
        return known

    def _summarise_values(self, kernel: Kernel, values: Sequence[Expr]) -> None:
        """Summarise values that are not plain columns. If one of them raises, all values of its query stay unknown."""
        for raising in (False, True):
            ours = tuple(v for v in values if may_raise(v) is raising)
            for start in range(0, len(ours), _AT_ONCE):
                some = ours[start : start + _AT_ONCE]
                if (answer := kernel.try_expressions(self._chunk, some)) is not None:
                    self._summaries.update(
                        (v, summary_of(column, v.type)) for v, column in zip(some, answer.columns, strict=True)
                    )


def _join_sides(
    left: Outcomes, right: Expr, ends: Outcomes, goes_on: Outcomes, of: Callable[[Expr], Outcomes]
) -> Outcomes:
    """Combine the sides of AND or OR. At `ends` (FALSE for AND, TRUE for OR) the right side is not evaluated."""
    outcomes = left & (ends | RAISES)
    if not left & (goes_on | NULL):
        return outcomes
    other = of(right)
    outcomes |= other & (ends | RAISES)
    if left & goes_on:
        outcomes |= other & (goes_on | NULL)
    if left & NULL and other & (goes_on | NULL):
        outcomes |= NULL
    return outcomes


def _computed_values(condition: Expr) -> Iterator[Expr]:
    """The values that a condition compares, except plain columns and calls of Python functions, which may be slow."""
    if isinstance(condition, Call) and condition.node in ("And", "Or", "Not"):
        for arg in condition.args:
            yield from _computed_values(arg)
    elif isinstance(condition, Call):
        value = find_comparison(condition).value
        if not isinstance(value, Column) and not any(True for _ in python_calls(value)):
            yield value


@lru_cache(maxsize=4096)
def find_comparison(condition: Expr) -> ComparedValue:
    """The value that decides a condition without AND, OR and NOT.

    It is the value that is compared with constants, or else the condition itself.
    """
    match condition:
        case Call(node=node, args=(value, Literal() as constant)) if node in _TURNED and _compares_alike(
            value, (constant,)
        ):
            return _with_constant(value, node, constant)
        case Call(node=node, args=(Literal() as constant, value)) if node in _TURNED and _compares_alike(
            value, (constant,)
        ):
            return _with_constant(value, _TURNED[node], constant)
        case Call(node="In", args=(value, *items)) if _compares_alike(value, items):
            return _compare_in(value, [i for i in items if isinstance(i, Literal)])
        case Call(node="IsNull", args=(value,)) if isinstance(value, Column) or _compares_alike(value):
            return ComparedValue(value, _is_null)
        case Call(node="IsNotNull", args=(value,)) if isinstance(value, Column) or _compares_alike(value):
            return ComparedValue(value, lambda s: (FALSE if s.nulls else 0) | (0 if s.all_null else TRUE))
    return ComparedValue(condition, lambda s: _outcomes_among(s, frozenset([True])))


def _compares_alike(value: Expr, constants: Sequence[Expr] = ()) -> bool:
    """Whether Python compares values of this type as Spark does, and `constants` are all constants of the type."""
    return family_of(value.type) in _COMPARED and all(
        isinstance(c, Literal) and c.type == value.type for c in constants
    )


def _is_null(summary: Summary) -> Outcomes:
    return (TRUE if summary.nulls else 0) | (0 if summary.all_null else FALSE)


def _outcomes_among(summary: Summary, constants: frozenset[Any]) -> Outcomes | None:
    """The outcomes of `value IN (constants)`."""
    if summary.values is None:
        return None
    outcomes = 0 if summary.values.isdisjoint(constants) else TRUE
    return outcomes | (0 if summary.values <= constants else FALSE) | (NULL if summary.nulls else 0)


def _compare_in(value: Expr, items: Sequence[Literal]) -> ComparedValue:
    constants = [comparable_value(item) for item in items if item.value is not None]
    if any(c is None for c in constants):
        return ComparedValue(value, lambda s: None)
    known, has_null = frozenset(constants), len(constants) < len(items)

    def outcomes_of_in(summary: Summary) -> Outcomes | None:
        outcomes = _outcomes_among(summary, known)
        return outcomes if outcomes is None or not has_null or not outcomes & FALSE else (outcomes & ~FALSE) | NULL

    return ComparedValue(value, outcomes_of_in)


def _with_constant(value: Expr, node: str, constant: Literal) -> ComparedValue:
    if constant.value is None:
        return ComparedValue(value, _is_null if node == "EqualNullSafe" else lambda s: NULL)
    if (known := comparable_value(constant)) is None:
        return ComparedValue(value, lambda s: None)
    only = frozenset([known])

    def outcomes_of_constant(summary: Summary) -> Outcomes | None:
        if summary.values is None:
            return None
        if node == "EqualTo":
            return _outcomes_among(summary, only)
        if node == "EqualNullSafe":
            outcomes = _outcomes_among(summary, only)
            return outcomes if not outcomes or not outcomes & NULL else (outcomes & ~NULL) | FALSE
        return (NULL if summary.nulls else 0) | (_of_order(summary, node, known) if summary.values else 0)

    return ComparedValue(value, outcomes_of_constant)


def _of_order(summary: Summary, node: str, constant: Any) -> Outcomes:
    match node:
        case "LessThan":
            some, every = summary.least < constant, summary.greatest < constant
        case "LessThanOrEqual":
            some, every = summary.least <= constant, summary.greatest <= constant
        case "GreaterThan":
            some, every = summary.greatest > constant, summary.least > constant
        case _:
            some, every = summary.greatest >= constant, summary.least >= constant
    return (TRUE if some else 0) | (0 if every else FALSE)


def summary_of(column: pa.ChunkedArray, type_name: str) -> Summary:
    """Summarise a column of a type (Spark's name). Cost: one Python value per row."""
    nulls, all_null = column.null_count > 0, column.null_count == len(column)
    values = _distinct_values(column.drop_null(), type_name)
    least, greatest = (min(values), max(values)) if values else (None, None)
    return Summary(values, least, greatest, nulls, all_null)


def _distinct_values(column: pa.ChunkedArray, type_name: str) -> frozenset[Any] | None:
    match family_of(type_name):
        case "boolean" | "binary" | "decimal" | "tinyint" | "smallint" | "int" | "bigint":
            return frozenset(column.to_pylist())
        case "string":
            return frozenset(column.cast(pa.binary()).to_pylist())
        case "date":
            return frozenset(column.cast(pa.int32()).to_pylist())
        case "timestamp" | "timestamp_ntz":
            return frozenset(column.cast(pa.int64()).to_pylist())
        case "float" | "double":
            return None if pc.any(pc.is_nan(column)).as_py() else frozenset(column.to_pylist())
    return None


def comparable_value(constant: Literal) -> Any:
    """A constant in the form of `Summary.values`. None for NULL, and if Python cannot compare it as Spark does."""
    value = constant.value
    if value is None:
        return None
    match family_of(constant.type):
        case "boolean":
            return bool(value)
        case "tinyint" | "smallint" | "int" | "bigint" | "date" | "timestamp" | "timestamp_ntz":
            return int(value)
        case "decimal":
            return Decimal(str(value))
        case "string":
            return str(value).encode("utf-8", "surrogatepass")
        case "binary":
            return base64.b64decode(str(value))
        case "double" | "float" as family:
            number = float(value) if family == "double" else float(np.float32(value))
            return None if np.isnan(number) else number
    return None
