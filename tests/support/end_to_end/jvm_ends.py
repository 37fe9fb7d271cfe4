"""Rows and helpers of test_jvm_ends.py, which is in several lanes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tussock.jobs import cli

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path) -> str:
    assert cli.main(["init", "--store", str(tmp_path / "store")]) == 0
    return str(tmp_path / "store")


def started(store: str, sql: str, **environment: str) -> subprocess.Popen[str]:
    """`tussock query` as a separate process."""
    command = [sys.executable, "-m", "tussock.jobs.cli", "query", "--store", store, sql]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
