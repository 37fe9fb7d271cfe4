"""What a process keeps of the memory that it has freed, seen from outside: by what the kernel says it holds."""

import subprocess
import sys

import pytest

_SCRIPT = """
from pathlib import Path

import numpy as np

from tussock.statestore.allocator import give_back_freed_memory, keep_freed_memory


def held() -> int:
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")) >> 10


{told}
before = held()
arrays = [np.ones(2 << 20) for _ in range(12)]  # of 16 MB
del arrays
freed = held()
give_back_freed_memory()
print(freed - before, held() - before)
"""


def _megabytes(told: str) -> tuple[int, int]:
    """What a process holds more after it has freed 192 MB; and after it has given them back."""
    run = subprocess.run([sys.executable, "-c", _SCRIPT.format(told=told)], capture_output=True, text=True, check=True)
    kept, left = map(int, run.stdout.split())
    return kept, left


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what a process holds")
def test_freed_memory_is_kept_until_it_is_given_back() -> None:
    kept, left = _megabytes("keep_freed_memory()")
    assert kept > 150
    assert left < 40


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what a process holds")
def test_a_process_that_was_not_told_keeps_less() -> None:
    kept, _ = _megabytes("")
    assert kept < 100
