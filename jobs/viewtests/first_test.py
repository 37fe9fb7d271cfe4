"""Write a first test of a view from rows that its inputs have now."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tussock.jobs.logical.nodes import Aggregate, Column, Join, Plan, Project, Scan, scans_of
from tussock.jobs.viewtests.comparison import Row
from tussock.jobs.viewtests.values import text_of_value
from tussock.statestore.zones import is_utc, tzinfo_of

ROWS = 3  # of the first relation; the others contribute the rows that join with them
_MOST_JOINED = 5
_BARE = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_ ./@+-]*[A-Za-z0-9_./@+-])?")  # a text without quotes

ColumnOf = tuple[str, int]  # a relation, and the index of its column


def columns_read(plan: Plan) -> dict[str, set[int]]:
    """The columns that a view reads of each relation, by index. In the order of the relations in its SELECT."""
    columns_by_relation: dict[str, set[int]] = {}
    for scan in scans_of(plan):
        columns_by_relation.setdefault(scan.relation, set()).update(scan.columns)
    return columns_by_relation


def sample_rows(plan: Plan, rows: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """A few rows of each relation that meet in the view's joins.

    Args:
        rows: of each relation that the plan reads, with all its columns.
    """
    links: list[tuple[ColumnOf, ColumnOf]] = []
    _column_origins(plan, links)
    order = sorted(columns_read(plan), key=lambda name: -len(rows[name]))
    chosen: dict[str, list[Row]] = {}
    while len(chosen) < len(order):
        linked = [name for name in order if name not in chosen and _chosen_keys(name, links, chosen)]
        name = linked[0] if linked else next(name for name in order if name not in chosen)
        keys = _chosen_keys(name, links, chosen)
        fitting = [row for row in rows[name] if all(row[column] in values for column, values in keys)]
        chosen[name] = fitting[:_MOST_JOINED] if fitting and keys else list(rows[name][:ROWS])
    return chosen


def first_test_text(
    view: str,
    now: datetime | None,
    rows: Mapping[str, tuple[Sequence[str], Sequence[Row]]],
    expected: tuple[Sequence[str], Sequence[Row]] | None,
    time_zone: str,
) -> str:
    """The file of a first test.

    Args:
        rows: the names of the columns and the rows, by relation.
        expected: the same for the view; None: the view is still to be computed.
    """
    lines = [
        f"# A first test of {view}, from rows that its inputs had when this file was written. The expected rows are",
        "# those of the view at that time: check them, then change the rows into the cases that matter.",
        f"- name: {view} of a few rows",
        f"  view: {view}",
    ]
    if now is not None:
        lines.append(f"  now: {_value_text(now, time_zone)}")
    lines.append("  rows:")
    for name, (columns, rows_of_relation) in rows.items():
        lines.append(f"    {name}:" if rows_of_relation else f"    {name}: []")
        lines += (f"      - {_row_text(columns, row, time_zone, nulls=False)}" for row in rows_of_relation)
    if expected is not None:
        columns, rows_of_relation = expected
        lines.append("  expect:" if rows_of_relation else "  expect: []")
        lines += (f"    - {_row_text(columns, row, time_zone, nulls=True)}" for row in rows_of_relation)
    else:
        lines.append("  expect: []")
    return "\n".join(lines) + "\n"


# --- joins ------------------------------------------------------------------------------------------------------------


def _column_origins(plan: Plan, links: list[tuple[ColumnOf, ColumnOf]]) -> list[ColumnOf | None]:
    """The relation's column in each column of a plan, if it is unchanged.

    `links` receives the pairs of columns that joins compare.
    """
    below = [_column_origins(part, links) for part in plan.inputs]
    origins: list[ColumnOf | None]
    match plan:
        case Scan():
            return [(plan.relation, column) for column in plan.columns]
        case Project(exprs=exprs) | Aggregate(keys=exprs):
            origins = [below[0][e.index] if isinstance(e, Column) else None for e in exprs]
        case Join():
            left, right = below
            for a, b in zip(plan.left_keys, plan.right_keys, strict=True):
                if isinstance(a, Column) and isinstance(b, Column):
                    pair = left[a.index], right[b.index]
                    links += [(x, y) for x, y in (pair, pair[::-1]) if x is not None and y is not None]
            origins = [*left, *right] if plan.kind.emits_pairs else list(left)
        case _ if len(below) == 1:
            origins = list(below[0])
        case _:
            origins = []
    width = len(plan.fields)
    return (origins + [None] * width)[:width]


def _chosen_keys(
    name: str, links: Sequence[tuple[ColumnOf, ColumnOf]], chosen: Mapping[str, Sequence[Row]]
) -> list[tuple[int, list[Any]]]:
    """The columns of a relation that joins compare with chosen rows, with the values of these rows."""
    return [
        (column, [row[other_column] for row in chosen[other]])
        for (of, column), (other, other_column) in links
        if of == name and other in chosen and other != name
    ]


# --- YAML -------------------------------------------------------------------------------------------------------------


def _row_text(columns: Sequence[str], row: Row, zone: str, *, nulls: bool) -> str:
    """A row as a mapping on one line. `nulls`: also columns with NULL."""
    pairs = [
        f"{_value_text(name, zone)}: {_value_text(value, zone)}"
        for name, value in zip(columns, row, strict=True)
        if nulls or value is not None
    ]
    return "{" + ", ".join(pairs) + "}"


def _value_text(value: Any, zone: str) -> str:
    """A value as YAML that is read as the same value of its column's type."""
    match value:
        case None:
            return "null"
        case str():
            bare = _BARE.fullmatch(value) and value.lower() != "null"
            return value if bare else '"' + _escape_text(value) + '"'
        case datetime() if value.tzinfo is not None:
            local = value.astimezone(tzinfo_of(zone))
            return str(local.replace(tzinfo=None)) if is_utc(zone) else str(local)
        case list() if value and all(isinstance(entry, tuple) for entry in value):  # a map
            return "{" + ", ".join(f"{_value_text(k, zone)}: {_value_text(v, zone)}" for k, v in value) + "}"
        case list():
            return "[" + ", ".join(_value_text(item, zone) for item in value) + "]"
        case dict():
            return "{" + ", ".join(f"{_value_text(k, zone)}: {_value_text(v, zone)}" for k, v in value.items()) + "}"
        case _:
            return text_of_value(value, zone)


def _escape_text(text: str) -> str:
    """The text inside double quotes of YAML."""
    signs = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return "".join(signs.get(c) or (c if c.isprintable() else f"\\U{ord(c):08X}") for c in text)
