"""The fixtures of tests/support/jobs/facts/fixtures.py."""

from tests.support.jobs.facts.fixtures import meta

__all__ = ["meta"]
