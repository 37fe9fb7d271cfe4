"""Rows and helpers of test_package.py, which is in several lanes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path, checkout: Path = ROOT) -> Path:
    return build("wheel", folder, checkout)


def build(kind: str, folder: Path, checkout: Path = ROOT) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    (made,) = folder.glob("tussock-*")
    return made
