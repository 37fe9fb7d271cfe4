"""Rows and helpers of test_delta_without_spark.py, which is in several lanes."""

from pathlib import Path

import pytest

from tests.support.jobs.sinks.shop import Shop, in_order, read_back
from tussock.jobs.delta.location import location_of


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def check(shop: Shop) -> None:
    """Every table equals its relation, read by two libraries."""
    location = location_of(shop.settings.to)
    for name, rows in shop.model().items():
        assert read_back(location.table_uri(name), options=location.delta_options) == in_order(rows), name
