"""The fixtures of tests/support/jobs/sql/fixtures.py."""

from tests.support.jobs.sql.fixtures import binder, expect, sandbox

__all__ = ["binder", "expect", "sandbox"]
