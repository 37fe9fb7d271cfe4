"""The switch for debugging output."""

import os


def wants_debugging() -> bool:
    """Return whether TUSSOCK_DEBUG requests tracebacks and Spark's own log."""
    return os.environ.get("TUSSOCK_DEBUG", "") not in ("", "0")
