"""Rows and helpers of test_new_pipeline.py, which is in several lanes."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("TUSSOCK_STORE", "TUSSOCK_PIPELINES"):
        monkeypatch.delenv(name, raising=False)
