"""CPU seconds of a tree of processes between two moments, also if no parent waits for a process that ends."""

import pytest

from benchmarks.cpu import Usage, cpu_seconds_between

_BEFORE = {1: Usage(0, 10, 100, 50), 2: Usage(1, 11, 200, 0), 3: Usage(2, 12, 300, 40), 4: Usage(3, 13, 7, 0)}


@pytest.mark.parametrize(
    ("after", "ticks"),
    [
        ({**_BEFORE, 4: Usage(3, 13, 9, 0), 5: Usage(1, 99, 6, 1)}, 2 + 7),
        ({pid: _BEFORE[pid] for pid in (1, 2, 3)}, 0),  # 4 has ended, and nothing waited for it
        ({**{pid: _BEFORE[pid] for pid in (1, 2)}, 3: Usage(2, 12, 300, 40 + 7 + 5)}, 5),  # 3 waited for 4
        ({1: _BEFORE[1], 2: Usage(1, 11, 201, 300 + 40 + 7 + 20)}, 1 + 20),  # 2 waited for 3, which waited for 4
        ({**_BEFORE, 4: Usage(3, 77, 3, 0)}, 3),  # another process has the pid of 4
    ],
)
def test_ended_processes_are_counted_until_they_ended(after: dict[int, Usage], ticks: int) -> None:
    assert cpu_seconds_between(_BEFORE, after) == pytest.approx(ticks / 100)
