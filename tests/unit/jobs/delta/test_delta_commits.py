"""Statistics of a file, by which readers of a Delta table skip it."""

import pyarrow as pa
import pytest

from tussock.jobs.delta.delta_commits import statistics_of


def _dates(*days: int | None) -> pa.Table:
    return pa.table({"day": pa.array(days, pa.int32()).cast(pa.date32())})


@pytest.mark.parametrize("day", [3_000_000, -800_000])  # in the years 10183 and -221
def test_a_column_with_dates_that_python_lacks_has_no_bounds(day: int) -> None:
    statistics = statistics_of(_dates(0, day, None))
    assert (statistics["numRecords"], statistics["nullCount"]) == (3, {"day": 1})
    assert statistics["minValues"] == statistics["maxValues"] == {}


def test_the_first_and_the_last_date_of_python_are_bounds() -> None:
    statistics = statistics_of(_dates(-719_162, 2_932_896))
    assert (statistics["minValues"], statistics["maxValues"]) == ({"day": "0001-01-01"}, {"day": "9999-12-31"})
