"""The fixtures of tests/support/statestore/fixtures.py."""

from tests.support.statestore.fixtures import *  # noqa: F403
from tests.support.statestore.fixtures import objects as objects
