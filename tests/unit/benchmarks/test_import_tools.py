"""Rows of dbt beside rows of a view."""

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from benchmarks.import_tools import have_equal_rows

ROWS = pa.table(
    {
        "id": [1, 2, 2],
        "at": pa.array([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)], pa.timestamp("us", "UTC")),
        "share": [0.1 + 0.2, None, float("nan")],
        "price": pa.array([Decimal("1.10"), Decimal("2.00"), None], pa.decimal128(10, 2)),
        "parts": [["a"], [], None],
    }
)


def test_equal_rows_may_have_another_order_and_other_forms_of_times_and_floats() -> None:
    others = ROWS.select(["parts", "price", "share", "at", "id"]).take([2, 0, 1])
    others = others.set_column(3, "at", others["at"].cast(pa.timestamp("ns")))
    others = others.set_column(2, "share", pa.array([float("nan"), 0.3, None]))
    assert have_equal_rows(ROWS, others)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("id", [1, 2, 3]),
        ("share", [0.3, None, 1e-3]),
        ("share", [0.3, 0.0, float("nan")]),
        ("share", [0.3, float("nan"), float("nan")]),
        ("parts", [["a"], ["b"], None]),
        ("price", pa.array([Decimal("1.10"), Decimal("2.01"), None], pa.decimal128(10, 2))),
    ],
)
def test_other_rows_are_not_equal(column: str, values: list[object]) -> None:
    at = ROWS.column_names.index(column)
    assert not have_equal_rows(ROWS, ROWS.set_column(at, column, pa.array(values)))


def test_other_columns_or_other_numbers_of_rows_are_not_equal() -> None:
    assert not have_equal_rows(ROWS, ROWS.drop_columns(["id"]))
    assert not have_equal_rows(ROWS, pa.concat_tables([ROWS, ROWS.slice(0, 1)]))
