"""The class-data archive of the JVM that runs Spark: classes mapped from a file instead of read and verified from jars.

It saves a third of a short job's CPU seconds. An archive fits one Java and one Spark release; any other JVM silently
ignores it.
"""

import os
import sys
from pathlib import Path

SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The environment variable with options for the driver's JVM. Remote executors do not see it."""

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_file() -> Path:
    """The path of this Python's archive, which `python -m tussock.jobs.submitted.class_archive` writes."""
    return Path(sys.prefix) / "share/tussock/spark.jsa"


def submit_options() -> dict[str, str]:
    """The variable that makes a driver's JVM use the archive, added to its current value.

    Empty if the archive does not exist, or if the current options already name an archive.
    """
    given = os.environ.get(SUBMIT_OPTIONS, "")
    if "-XX:SharedArchiveFile" in given or "-XX:ArchiveClassesAtExit" in given or not archive_file().is_file():
        return {}
    return {SUBMIT_OPTIONS: f'"-XX:SharedArchiveFile={archive_file()}" {QUIET} {given}'.rstrip()}
