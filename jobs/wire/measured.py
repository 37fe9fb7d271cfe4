"""What was measured where work was done: seconds of units, requests of workers. Beside the cells, never in them.

A cell is the same in every attempt, and Spark checks that; a clock is not. So measurements travel by Spark's accumulators, or are handed
over in this process. Those of attempts that failed are lost, those of a stage that was run again count twice.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tussock.statestore.objectstore.requests import Requests

Measurement: TypeAlias = tuple[Mapping[int, float], Requests]
"""Busy seconds by unit, and requests."""

Report: TypeAlias = Callable[[Measurement], None]

NOTHING: Measurement = ({}, Requests())


def together(one: Measurement, other: Measurement) -> Measurement:
    """The sum of two."""
    units = {unit: one[0].get(unit, 0.0) + other[0].get(unit, 0.0) for unit in {**one[0], **other[0]}}
    return units, one[1] + other[1]


class MeasurementSum:
    """A sum that grows while an epoch runs."""

    def __init__(self) -> None:
        self.sum = NOTHING

    def add(self, found: Measurement) -> None:
        """What another task, or another job, measured."""
        self.sum = together(self.sum, found)


def not_measured(_: Measurement) -> None:
    """Nobody asks."""
