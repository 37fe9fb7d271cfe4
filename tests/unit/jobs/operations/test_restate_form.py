"""The fields of Airflow's form for a restatement."""

from datetime import UTC, datetime

from tussock.jobs.operations.restate import restated_of_form
from tussock.jobs.sources.base import Restated

SPAN = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


def test_a_star_loads_everything_whatever_the_interval_of_the_run_is() -> None:
    assert restated_of_form(" * \n", SPAN) == Restated()
    assert restated_of_form("", SPAN) == Restated(interval=SPAN)
    assert restated_of_form("*.csv\na", SPAN) == Restated("*.csv", more=("a",))
