"""Waiting for what a running Airflow does by itself."""

import os
from collections.abc import Callable

from tests.support.waiting import eventually

PATIENCE_S = float(os.environ.get("TUSSOCK_TEST_PATIENCE_S", "900"))


def wait_for(what: str, happened: Callable[[], bool]) -> None:
    """Until it has happened; an AssertionError that says `what` where it has not in PATIENCE_S."""
    eventually(what, happened, PATIENCE_S, every_s=1)
