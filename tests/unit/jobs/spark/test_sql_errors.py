"""Translation of Spark's errors. Needs no JVM."""

import subprocess
import sys


def test_sparks_loggers_have_sparks_type() -> None:
    """With a plain logger of that name, the next error of the user's code would make Spark fail with a TypeError."""
    script = """
import logging
from tussock.jobs.spark.sql_errors import translating_errors
from tussock.jobs.logical.source_text import SourceText

with translating_errors(SourceText("SELECT 1")):
    pass
logging.getLogger("SQLQueryContextLogger").exception("reported", errorClass="DIVIDE_BY_ZERO")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
