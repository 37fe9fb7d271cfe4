"""Errors of Spark's as ours. Needs no JVM."""

import subprocess
import sys


def test_sparks_own_loggers_are_made_as_spark_makes_them() -> None:
    """A plain logger of that name would have Spark fail with a TypeError at the next error that the user's own code meets."""
    script = """
import logging
from tussock.jobs.spark.sql_errors import translated
from tussock.jobs.logical.source_text import SourceText

with translated(SourceText("SELECT 1")):
    pass
logging.getLogger("SQLQueryContextLogger").exception("told", errorClass="DIVIDE_BY_ZERO")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
