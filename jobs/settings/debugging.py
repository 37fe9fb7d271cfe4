"""Whether a person looks for a defect."""

import os


def debugging() -> bool:
    """Whether a person asked, by TUSSOCK_DEBUG=1, for tracebacks and for Spark's own log."""
    return os.environ.get("TUSSOCK_DEBUG", "") not in ("", "0")
