"""Verification over few rows: Spark interprets the queries, because to compile them takes longer than to run them."""

import pytest

from tests.truth.judge import INTERPRETED
from tussock.jobs.verify import inputs


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the session that judges views, in the one that verifies them."""
    for name, value in INTERPRETED.items():
        monkeypatch.setitem(inputs._SETTINGS, name, value)
