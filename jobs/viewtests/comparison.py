"""Compare expected rows with the rows of a view, and show their differences.

Rows are compared as a multiset. Floats are equal within 1e-9 of the larger absolute value; all other values must be
equal.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tussock.jobs.settings.terminal import pad_cell, terminal_width
from tussock.jobs.viewtests.values import text_of_value

Row = tuple[Any, ...]

TOLERANCE = 1e-9  # of floats, relative
_MOST_SHOWN = 20  # differing rows per comparison


@dataclass(frozen=True, slots=True)
class RowDifference:
    """An expected row without an equal row, a row that was not expected, or both as a pair that differs in columns.

    `line`: of the expected row in the file; 0 without one.
    """

    expected: Row | None
    actual: Row | None
    line: int = 0


@dataclass(frozen=True, slots=True)
class RowsDiffer:
    """The result of a comparison that found differences.

    Args:
        what: the rows that were compared, such as `rows of daily_sales`.
        columns: the compared columns.
        right: per column, whether its values are right-aligned.
    """

    what: str
    columns: tuple[str, ...]
    right: tuple[bool, ...]
    differences: tuple[RowDifference, ...]

    def to_text(self, time_zone: str) -> str:
        """The differences as an aligned table: `-` for expected, `+` for found, `^` below differing values."""
        return "\n".join(_difference_lines(self, time_zone))


def row_differences(expected: Sequence[tuple[Row, int]], actual_rows: Sequence[Row]) -> tuple[RowDifference, ...]:
    """The differences between expected rows, each with its line, and the actual ones.

    Rows that differ in few columns are paired. Cost: the product of both numbers of unequal rows.
    """
    left = list(actual_rows)
    missing: list[tuple[Row, int]] = []
    for row, line in expected:
        at = next((i for i, other in enumerate(left) if same_value(row, other)), None)
        if at is None:
            missing.append((row, line))
        else:
            del left[at]
    differences = []
    for row, line in missing:
        best = max(range(len(left)), key=lambda i: _count_equal(row, left[i]), default=None)
        paired = best is not None and (_count_equal(row, left[best]) > 0 or len(missing) == len(left) == 1)
        differences.append(RowDifference(row, left.pop(best) if paired and best is not None else None, line))
    return (*differences, *(RowDifference(None, row) for row in left))


def net_changes(before: Sequence[Row], after: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows that disappeared and the rows that appeared."""
    gone = row_differences([(row, 0) for row in before], after)
    return (
        [d.expected for d in gone if d.expected is not None],
        [d.actual for d in gone if d.actual is not None],
    )


def same_value(left: Any, right: Any) -> bool:
    """Whether two values are equal; NaN equals NaN, and the order of a map's entries does not count."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=0.0)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_value(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            return False
        if left and all(isinstance(entry, tuple) for entry in (*left, *right)):  # a map
            return not row_differences([(entry, 0) for entry in left], right)
        return all(map(same_value, left, right))
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same_value, left, right))
    return type(left) is type(right) and bool(left == right)


def _count_equal(left: Row, right: Row) -> int:
    return sum(map(same_value, left, right))


def _difference_lines(rows_differ: RowsDiffer, time_zone: str) -> Iterator[str]:
    differences = rows_differ.differences[:_MOST_SHOWN]
    table: list[tuple[str, tuple[str, ...], str]] = [(" ", rows_differ.columns, "")]
    marks: dict[int, tuple[str, ...]] = {}  # by line of the table: `^` below the values that differ

    def add_line(sign: str, row: Row, note: str) -> None:
        table.append((sign, tuple(text_of_value(v, time_zone) for v in row), note))

    for difference in differences:
        at = f"line {difference.line}"
        match difference.expected, difference.actual:
            case tuple() as expected, tuple() as row:
                add_line("-", expected, f"expected, {at}")
                add_line("+", row, "found")
                texts = zip(table[-2][1], table[-1][1], strict=True)
                same = map(same_value, expected, row)
                marks[len(table) - 1] = tuple(
                    "" if equal else "^" * max(map(terminal_width, pair))
                    for equal, pair in zip(same, texts, strict=True)
                )
            case tuple() as expected, _:
                add_line("-", expected, f"missing, {at}")
            case _, tuple() as row:
                add_line("+", row, "not expected")
    widths = [max(terminal_width(row[i]) for _, row, _ in table) for i in range(len(rows_differ.columns))]
    for number, (sign, row, note) in enumerate(table):
        yield f"{sign} {_align_cells(row, widths, rows_differ.right)}    {note}".rstrip()
        if number in marks:
            yield f"  {_align_cells(marks[number], widths, rows_differ.right)}".rstrip()
    if (more := len(rows_differ.differences) - len(differences)) > 0:
        yield f"  … and {more} more"


def _align_cells(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    return "  ".join(pad_cell(*cell) for cell in zip(cells, widths, right, strict=True))
