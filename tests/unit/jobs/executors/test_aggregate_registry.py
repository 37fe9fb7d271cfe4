"""Each aggregate function has an entry, and works over groups and over a window."""

from tussock.jobs.executors.aggregates.registry import AGGREGATES
from tussock.jobs.logical.nodes import AggFunction, WindowFunction

# No user writes it: Spark's rewrite of several DISTINCT over groups does.
ONLY_OVER_GROUPS = {AggFunction.ONLY}


def test_each_aggregate_function_has_an_entry() -> None:
    assert set(AGGREGATES) == set(AggFunction)


def test_each_aggregate_function_works_over_a_window() -> None:
    assert {function.value for function in AggFunction if function not in ONLY_OVER_GROUPS} <= set(WindowFunction)
