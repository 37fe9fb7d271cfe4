"""Percentiles of a group's values. No Spark."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tussock.jobs.executors.percentile import Percentile


@pytest.mark.parametrize("kind", [pa.decimal128(12, 2), pa.decimal256(50, 2)])
def test_discrete_percentiles_of_decimals_are_the_nearest_doubles(kind: pa.DataType) -> None:
    cents = np.arange(1_000, 3_000)
    values: Any = None  # the state, which is not read
    percentile = Percentile(values, (0.5,), "double", reverse=False, discrete=True, once=True)
    column = pa.array([Decimal(int(c)).scaleb(-2) for c in cents], kind)
    states = percentile.states_among(column, np.ones(len(cents), np.int64), lambda _, place: np.arange(len(place)))
    assert states.to_pylist() == [float(f"{c / 100:.2f}") for c in cents.tolist()]
