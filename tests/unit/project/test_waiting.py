"""Tests wait for events with a deadline; none sleeps and hopes."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
SLEEPS = re.compile(r"\btime\.sleep\b|from time import .*\bsleep\b")


def test_only_the_helper_for_waiting_sleeps() -> None:
    found = [
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if SLEEPS.search(file.read_text()) and file != Path(__file__)
    ]
    assert found == ["support/waiting.py"], "wait with tests.support.waiting.eventually"
