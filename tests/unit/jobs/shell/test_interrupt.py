"""Ctrl-C while the command line is still being imported. In a separate process, since the signal ends it."""

import signal
import subprocess
import sys

import pytest

INTERRUPTED = """
import builtins, os, signal
signal.signal(signal.SIGINT, signal.{first})
imported = builtins.__import__
def interrupted(name, *more, **named):
    if name == "tussock.jobs.cli":
        os.kill(os.getpid(), signal.SIGINT)
    return imported(name, *more, **named)
builtins.__import__ = interrupted
from tussock.__main__ import main
import sys
sys.argv = ["tussock", "--version"]
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("first", "code", "printed"),
    [("default_int_handler", -signal.SIGINT, ""), ("SIG_IGN", 0, "tussock ")],
    ids=["from a terminal", "under nohup"],
)
def test_an_interrupt_during_the_imports_prints_no_traceback(first: str, code: int, printed: str) -> None:
    """The child sets its handler itself, because tests that run in the background of a shell ignore the signal."""
    command = [sys.executable, "-c", INTERRUPTED.format(first=first)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout[:8], ended.stderr) == (code, printed, "")
