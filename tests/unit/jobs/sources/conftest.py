"""The fixtures of tests/support/jobs/sources/fixtures.py."""

from tests.support.jobs.sources.fixtures import s3_bucket

__all__ = ["s3_bucket"]
