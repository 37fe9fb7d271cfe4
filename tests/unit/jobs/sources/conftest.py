"""The fixtures of tests/support/jobs/sources/fixtures.py and tests/support/statestore/fixtures.py."""

from tests.support.jobs.sources.fixtures import s3_bucket
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
    "s3_bucket",
    "versitygw_endpoint",
]
