"""Waiting for the events of a running Airflow."""

import os
from collections.abc import Callable

from tests.support.waiting import eventually

PATIENCE_S = float(os.environ.get("TUSSOCK_TEST_PATIENCE_S", "900"))


def wait_for(what: str, happened: Callable[[], bool]) -> None:
    """Wait for an event. Raises AssertionError with `what` if it has not happened within PATIENCE_S."""
    eventually(what, happened, PATIENCE_S, every_s=1)
