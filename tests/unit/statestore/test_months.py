"""Intervals of months: their stored, exchanged and user forms convert without loss, also sliced and nested."""

import pyarrow as pa
import pytest

from tussock.statestore.months import carried_rows, given_array, given_rows, kept_array, shown_at
from tussock.statestore.nested import conform_rows
from tussock.statestore.types import GIVEN_MONTHS, MONTHS, arrow_type

NESTED = arrow_type("struct<a:array<interval year>,m:map<int,interval month>,d:interval day>")
ROWS = pa.table(
    {
        "x": pa.array([7, None, 14, -25, None, 2**31 - 1], MONTHS),
        "n": pa.array(
            [
                None,
                *[{"a": [12, None], "m": [(1, i), (2, None)], "d": i} for i in range(4)],
                {"a": None, "m": [], "d": None},
            ],
            NESTED,
        ),
        "i": pa.array(range(6)),
    }
)


@pytest.mark.parametrize(
    "rows", [ROWS, ROWS.slice(1), ROWS.slice(2, 3), ROWS.slice(0, 0)], ids=["all", "but one", "some", "none"]
)
def test_stored_values_convert_back_from_both_other_forms(rows: pa.Table) -> None:
    carried, given = carried_rows(rows), given_rows(rows)
    assert (carried["x"].type, given["x"].type) == (pa.int32(), GIVEN_MONTHS)
    assert conform_rows(carried, rows.schema).equals(rows)
    for name in ("x", "n", "i"):
        for chunk in given[name].chunks:
            chunk.validate(full=True)
        back = [kept_array(chunk, rows[name].type) for chunk in given[name].chunks]
        assert pa.chunked_array(back, rows[name].type).to_pylist() == rows[name].to_pylist(), name


def test_given_values_are_months_and_null() -> None:
    assert given_array(ROWS["x"].chunk(0).slice(1, 3)).to_pylist() == [None, (14, 0, 0), (-25, 0, 0)]
    assert [shown_at(ROWS["x"], row) for row in (1, 3)] == [None, "INTERVAL '-2-1' YEAR TO MONTH"]


def test_an_interval_with_days_or_a_time_is_refused_and_values_under_null_are_ignored() -> None:
    for bad in ((1, 1, 0), (0, 0, -1)):
        with pytest.raises(pa.ArrowInvalid, match="an interval with days or a time"):
            kept_array(pa.array([(1, 0, 0), bad], GIVEN_MONTHS), MONTHS)
    under = pa.array([(1, 1, 1), (3, 0, 0)], GIVEN_MONTHS)
    hidden = pa.Array.from_buffers(GIVEN_MONTHS, 2, [pa.array([False, True]).buffers()[1], under.buffers()[1]])
    assert kept_array(hidden, MONTHS).cast(pa.int64()).to_pylist() == [None, 3]


def test_a_slice_of_given_values_is_kept_unchanged() -> None:
    for name in ("x", "n"):
        given = given_array(ROWS[name].chunk(0))
        assert kept_array(given.slice(2, 3), ROWS[name].type).to_pylist() == ROWS[name].slice(2, 3).to_pylist()
