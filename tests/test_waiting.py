"""Tests wait for events with a deadline; none sleeps and hopes."""

import re
from pathlib import Path

HERE = Path(__file__).parent
SLEEPS = re.compile(r"\btime\.sleep\b|from time import .*\bsleep\b")


def test_only_the_helper_for_waiting_sleeps() -> None:
    found = [
        str(file.relative_to(HERE))
        for file in HERE.rglob("*.py")
        if SLEEPS.search(file.read_text()) and file != Path(__file__)
    ]
    assert found == ["support/waiting.py"], "wait with tests.support.waiting.eventually"
