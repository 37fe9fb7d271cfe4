"""Equality of two answers as DESIGN's truth defines it: names, types, rows as a multiset, floats within a tolerance."""

import math
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from tussock.statestore.types import type_name

RELATIVE = 1e-9


def assert_same_answer(
    found: pa.Table, expected: pa.Table, what: str, only: Sequence[str] | None = None, scale: float = 1.0
) -> None:
    """Fail with the first differences.

    Args:
        found: from Tussock.
        expected: from Spark over the same input.
        what: a description for the failure's text.
        only: compare these columns (at a LIMIT's tie only the ORDER BY columns are fixed).
        scale: sum of the absolute values that float sums are made of.
    """
    assert found.column_names == expected.column_names, (
        f"{what}: columns {found.column_names}, Spark has {expected.column_names}"
    )
    types = [(f.name, type_name(f.type)) for f in found.schema]
    assert types == [(f.name, type_name(f.type)) for f in expected.schema], (
        f"{what}: types {types}, Spark has {expected.schema}"
    )
    if only is not None:
        found, expected = found.select(list(only)), expected.select(list(only))
    if not any(pa.types.is_floating(f.type) for f in found.schema):
        ours, theirs = Counter(_rows(found)), Counter(_rows(expected))
        missing, extra = theirs - ours, ours - theirs
        counts = f"{found.num_rows} rows, Spark has {expected.num_rows}"
        assert ours == theirs, f"{what}: {counts}; missing {_few(missing)}, too many {_few(extra)}"
        return
    ours_sorted, theirs_sorted = sorted(_rows(found), key=_order), sorted(_rows(expected), key=_order)
    assert len(ours_sorted) == len(theirs_sorted), f"{what}: {found.num_rows} rows, Spark has {expected.num_rows}"
    for our, their in zip(ours_sorted, theirs_sorted, strict=True):
        same = all(_close(a, b, scale) for a, b in zip(our, their, strict=True))
        assert same, f"{what}: row {our}, Spark has {their}"


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    columns = [[_plain(v) for v in c.to_pylist()] for c in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _plain(value: object) -> object:
    if isinstance(value, list | dict):
        return repr(value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _order(row: tuple[object, ...]) -> tuple[tuple[int, str], ...]:
    """Exact columns first, so that rows meet their partner despite differences in the last bits of a float."""
    exact = tuple((0 if v is None else 1, repr(v)) for v in row if not isinstance(v, float))
    floats = tuple((1, f"{v:+.6e}") for v in row if isinstance(v, float))
    return exact + floats


def _close(ours: object, theirs: object, scale: float) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        if math.isinf(ours) or math.isinf(theirs):
            return ours == theirs
        return abs(ours - theirs) <= RELATIVE * max(scale, abs(theirs))
    return ours == theirs


def _few(rows: Counter[tuple[object, ...]]) -> str:
    return str(list(rows.items())[:5])
