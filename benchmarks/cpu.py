"""CPU seconds of this process and all its descendants: the driver, its JVM and Spark's workers. A busy machine changes these less than
seconds on the clock."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def tree_cpu_seconds(root: int | None = None) -> float:
    """User and system seconds so far of a process (this one when None), of its descendants, and of those among them that have ended.

    Linux only: from /proc; in steps of 10 ms. Cost: a small file for each process of the machine.
    """
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := _stat(entry)) is not None:
            parents[int(entry.name)], spent[int(entry.name)] = found
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    total, waiting = 0, [os.getpid() if root is None else root]
    while waiting:
        pid = waiting.pop()
        total += spent.get(pid, 0)
        waiting += children.get(pid, [])
    return total / _TICKS


def _stat(entry: Path) -> tuple[int, int] | None:
    """(parent, ticks) of a process; None: it has ended."""
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()  # the name before it may hold anything
    except OSError:
        return None
    return int(fields[1]), sum(map(int, fields[11:15]))  # utime, stime, and both of children that were waited for
