"""The stores of tests/support/statestore/fixtures.py."""

from tests.support.statestore.fixtures import *  # noqa: F403
