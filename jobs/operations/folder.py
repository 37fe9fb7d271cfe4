"""The folder of the pipelines."""

import os
from pathlib import Path


def named_folder() -> Path | None:
    """Return the folder in TUSSOCK_PIPELINES; None if it is unset. The default folder depends on the entry point."""
    named = os.environ.get("TUSSOCK_PIPELINES")
    return Path(named) if named else None
