"""Waiting for an event, with a deadline: the only module that sleeps (test_waiting.py checks this)."""

import time
from collections.abc import Callable


def eventually(what: str, happened: Callable[[], object], seconds: float = 60.0, *, every_s: float = 0.01) -> None:
    """Return as soon as the event has happened. Raises AssertionError with its name after the timeout."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"{what}: not after {seconds:g} s"
        time.sleep(every_s)


def next_second() -> None:
    """Wait until the clock shows another second: the times of objects in a bucket have no smaller unit."""
    now = int(time.time())
    eventually("the next second", lambda: int(time.time()) > now)
