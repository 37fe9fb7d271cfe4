"""The class-data archive of the JVM that runs Spark: its classes as the JVM has them in memory, mapped from a file instead of read and
verified from jars. A third of a short job's CPU seconds.

It fits one Java and one Spark. A JVM that it does not fit goes on without it, and says nothing.
"""

import os
import sys
from pathlib import Path

SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable of options for the JVM that spark-submit and sessions start, the driver's. Executors elsewhere do not see it."""

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_file() -> Path:
    """Where this Python's archive is, if somebody made it (`python -m tussock.jobs.submitted.class_archive`)."""
    return Path(sys.prefix) / "share/tussock/spark.jsa"


def submit_options() -> dict[str, str]:
    """The variable with which a driver's JVM uses the archive, over what is set already; nothing where there is no archive."""
    given = os.environ.get(SUBMIT_OPTIONS, "")
    if "-XX:SharedArchiveFile" in given or "-XX:ArchiveClassesAtExit" in given or not archive_file().is_file():
        return {}
    return {SUBMIT_OPTIONS: f'"-XX:SharedArchiveFile={archive_file()}" {QUIET} {given}'.rstrip()}
