"""The fixtures of tests/support/exactly_once/fixtures.py."""

from tests.support.exactly_once.fixtures import case, start_job, store

__all__ = ["case", "start_job", "store"]
