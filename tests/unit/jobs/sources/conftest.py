"""The fixtures of tests/support/jobs/sources/fixtures.py and tests/support/statestore/fixtures.py."""

from tests.support.jobs.sources.fixtures import s3_bucket as s3_bucket
from tests.support.statestore.fixtures import *  # noqa: F403
