"""The freed memory that a process keeps, measured from outside by the kernel's figures."""

import subprocess
import sys

import pytest

_SCRIPT = """
from pathlib import Path

import numpy as np

from tussock.statestore.allocator import give_back_freed_memory, keep_freed_memory


def held() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) >> 10


{told}
before = held()
arrays = [np.ones(2 << 20) for _ in range(12)]  # of 16 MB
del arrays
freed = held()
give_back_freed_memory()
print(freed - before, held() - before)
"""


def _megabytes(told: str) -> tuple[int, int]:
    """The growth in MB after the process has freed 192 MB, and after it has returned them."""
    run = subprocess.run([sys.executable, "-c", _SCRIPT.format(told=told)], capture_output=True, text=True, check=True)
    kept, left = map(int, run.stdout.split())
    return kept, left


@pytest.mark.skipif(sys.platform != "linux", reason="reads a process's memory from /proc")
def test_freed_memory_is_kept_until_it_is_given_back() -> None:
    kept, left = _megabytes("keep_freed_memory()")
    assert kept > 150
    assert left < 40


@pytest.mark.skipif(sys.platform != "linux", reason="reads a process's memory from /proc")
def test_a_process_without_the_setting_keeps_less() -> None:
    kept, _ = _megabytes("")
    assert kept < 100
