"""The fixtures of tests/support/jobs/verify/fixtures.py."""

from tests.support.jobs.verify.fixtures import interpreted

__all__ = ["interpreted"]
