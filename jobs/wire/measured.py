"""Measurements of the work on workers: seconds per unit, and requests. They never travel in cells.

A cell must be equal in every attempt, and Spark checks this, but a clock never repeats its values. Measurements
therefore travel through Spark's accumulators, or are passed directly within one process. Measurements of failed
attempts are lost; a stage that ran again counts twice.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tussock.statestore.objectstore.requests import Requests

Measurement: TypeAlias = tuple[Mapping[int, float], Requests]
"""Busy seconds by unit, and requests."""

Report: TypeAlias = Callable[[Measurement], None]

NOTHING: Measurement = ({}, Requests())


def add_measurements(one: Measurement, other: Measurement) -> Measurement:
    """The sum of two measurements."""
    units = {unit: one[0].get(unit, 0.0) + other[0].get(unit, 0.0) for unit in {**one[0], **other[0]}}
    return units, one[1] + other[1]


class MeasurementSum:
    """The sum of all measurements of an epoch; it grows while the epoch runs.

    `ran`: where its levels ran and why, as text for people. `undivided`: whether one unit ran the vnodes of all.
    `hosts`: units by the host that ran them; empty without executors of a cluster.
    """

    def __init__(self) -> None:
        self.sum, self.ran, self.undivided = NOTHING, "", False
        self.hosts: Mapping[str, Sequence[int]] = {}

    def add_measurement(self, measurement: Measurement) -> None:
        """Add the measurement of another task or job."""
        self.sum = add_measurements(self.sum, measurement)


def not_measured(_: Measurement) -> None:
    """A Report that discards the measurement."""
