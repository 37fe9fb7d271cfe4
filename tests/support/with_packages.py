"""Tests that need Spark packages: in a separate process, because the packages must be present when the JVM starts."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_alone(module: str, folder: Path, package: str) -> None:
    """Run `python -m module folder`. Skip the test if Ivy cannot fetch `package`, named as in Ivy's message."""
    command = [sys.executable, "-m", module, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False, cwd=ROOT)
    if ran.returncode and f"unresolved dependency: {package}" in ran.stderr:
        pytest.skip(f"{package} cannot be fetched here")
    assert ran.returncode == 0, ran.stderr[-4000:]
