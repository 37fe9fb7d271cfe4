"""The stores of tests/support/statestore/fixtures.py."""

from tests.support.statestore.fixtures import (
    any_store,
    azurite_endpoint,
    fakegcs_endpoint,
    google_endpoint,
    hdfs_endpoint,
    moto_endpoint,
    versitygw_endpoint,
)

__all__ = [
    "any_store",
    "azurite_endpoint",
    "fakegcs_endpoint",
    "google_endpoint",
    "hdfs_endpoint",
    "moto_endpoint",
    "versitygw_endpoint",
]
