"""The fixtures of tests/support/jobs/executors/fixtures.py."""

from tests.support.jobs.executors.fixtures import objects

__all__ = ["objects"]
