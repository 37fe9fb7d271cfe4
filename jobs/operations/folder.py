"""The folder of the pipelines."""

import os
from pathlib import Path


def named_folder() -> Path | None:
    """The folder of pipelines that TUSSOCK_PIPELINES names; None: it is not set, and each entry point has a place of its own to look."""
    named = os.environ.get("TUSSOCK_PIPELINES")
    return Path(named) if named else None
