"""Waiting for what a running Airflow does by itself."""

import os
import time
from collections.abc import Callable

PATIENCE_S = float(os.environ.get("TUSSOCK_TEST_PATIENCE_S", "900"))


def wait_for(what: str, happened: Callable[[], bool]) -> None:
    """Until it has happened; an AssertionError that says `what` where it has not in PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"{what}: not after {PATIENCE_S:.0f} s"
        time.sleep(1)
