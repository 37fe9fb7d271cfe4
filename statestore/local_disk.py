"""The folder on the local disk for what does not fit into memory: Spark's, if this process works for Spark."""

import os

LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # Spark sets it for its workers, and the fork server for its own


def local_folder() -> str | None:
    """The folder; None: the system's folder for temporary files."""
    folder = os.environ.get(LOCAL_DIRS, "").split(",")[0]
    return folder if folder and os.access(folder, os.W_OK) else None
