"""The engine's log: standard `logging`, with the epoch, level and unit at work in every line, in the driver and in workers.

    TUSSOCK_LOG=INFO     what was done, with rows, bytes and seconds
    TUSSOCK_LOG=DEBUG    also each read of state

It is off where the variable is not set: on a person's terminal the lines of progress are enough. Airflow sets it for the jobs that it
submits. Loggers are named after modules, below `tussock`. A process that has configured logging itself (the root logger has
handlers) gets records and chooses their form; here only the level is set.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from tussock.statestore.errors import InputError

VARIABLE = "TUSSOCK_LOG"
ROOT = "tussock"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_FORMAT = "%(asctime)s %(levelname)s %(name)s%(work)s: %(message)s"


class BadLogLevelError(InputError):
    """TUSSOCK_LOG names no level."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return f"{VARIABLE} is {self.found!r}; expected one of {', '.join(LEVELS)}, or no such variable"


class _Work(threading.local):
    facts: Mapping[str, object] = {}


_work = _Work()


@contextmanager
def working_on(**facts: object) -> Iterator[None]:
    """Add facts (`epoch=…, level=…, unit=…`) to every line that this thread logs within the block."""
    before = _work.facts
    _work.facts = {**before, **facts}
    try:
        yield
    finally:
        _work.facts = before


class WorkFilter(logging.Filter):
    """Gives a record the attribute `work`: ` epoch=7 level=1`, or nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.work = "".join(f" {name}={value}" for name, value in _work.facts.items())
        return True


_configuring = threading.Lock()


def configure_logging() -> None:
    """Turn the log on if TUSSOCK_LOG names a level. Called where a process begins, and in workers by their tasks; acts once per process.

    Raises: BadLogLevelError.
    """
    with _configuring:
        _configure()


@cache
def _configure() -> None:
    level = os.environ.get(VARIABLE, "").upper()
    if not level:
        return
    if level not in LEVELS:
        raise BadLogLevelError(level)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(WorkFilter())
    logger = logging.getLogger(ROOT)
    logger.setLevel(level)
    if not logging.getLogger().handlers:
        logger.addHandler(handler)
