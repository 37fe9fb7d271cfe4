"""Verification over few rows. Spark interprets the queries, because compiling them takes longer than running them."""

import pytest

from tests.support.truth.judge import INTERPRETED
from tussock.jobs.verify import inputs


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the settings of the session that computes expected views to the one that verifies them."""
    for name, value in INTERPRETED.items():
        monkeypatch.setitem(inputs._SETTINGS, name, value)
