"""The engine's log: standard `logging`. Every line contains the current epoch, level and unit, in driver and workers.

    TUSSOCK_LOG=INFO     completed work, with rows, bytes and seconds
    TUSSOCK_LOG=DEBUG    also each read of state

Logging is off unless the variable is set: in a terminal, the progress lines are sufficient. Airflow sets it for the
jobs that it submits. Loggers are named after modules, below `tussock`. If the process has configured logging itself
(the root logger has handlers), only the level is set, and the process formats the records.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from tussock.jobs.settings.redaction import without_secrets
from tussock.statestore.errors import InputError
from tussock.statestore.forks import new_lock

VARIABLE = "TUSSOCK_LOG"
ROOT = "tussock"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_FORMAT = "%(asctime)s %(levelname)s %(name)s%(work)s: %(message)s"


class BadLogLevelError(InputError):
    """TUSSOCK_LOG is not a log level."""

    level: str

    def __str__(self) -> str:
        return f"{VARIABLE} is {self.level!r}; expected one of {', '.join(LEVELS)}, or the variable unset"


class _Work(threading.local):
    facts: Mapping[str, object] = {}


_work = _Work()


@contextmanager
def working_on(**facts: object) -> Iterator[None]:
    """Add facts (`epoch=…, level=…, unit=…`) to every line that this thread logs in the block."""
    before = _work.facts
    _work.facts = {**before, **facts}
    try:
        yield
    finally:
        _work.facts = before


class WorkFilter(logging.Filter):
    """Sets the attribute `work` of a record: ` epoch=7 level=1`, or an empty string."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.work = "".join(f" {name}={value}" for name, value in _work.facts.items())
        return True


class RedactingFormatter(logging.Formatter):
    """Formats a record, with its traceback, without credentials."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


_configuring = new_lock()


def configure_logging() -> None:
    """Enable logging if TUSSOCK_LOG is set. Runs once per process; drivers call it at their start, workers in tasks.

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
    handler.setFormatter(RedactingFormatter(_FORMAT))
    handler.addFilter(WorkFilter())
    logger = logging.getLogger(ROOT)
    logger.setLevel(level)
    if not logging.getLogger().handlers:
        logger.addHandler(handler)


@contextmanager
def unchanged_logging() -> Iterator[None]:
    """Restore the root logger after the block.

    Importing Airflow configures the logging of the process: a handler that writes to stdout, where a command prints its
    result, and the level INFO for all libraries.
    """
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
