"""CPU seconds of this process and all its descendants: the driver, its JVM and Spark's workers.

A busy machine affects CPU seconds less than wall seconds.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True)
class Process:
    """A snapshot of a process.

    `own_s`: its user and system seconds; `all_s`: those plus the seconds of reaped children.
    """

    pid: int
    parent: int
    started: int  # ticks since the machine's start; unique together with the pid
    title: str  # command line
    own_s: float
    all_s: float

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.started


def processes() -> Iterator[Process]:
    """All processes of the machine. Linux only. Cost: two small files per process."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        own, waited_for = (sum(map(int, fields[at : at + 2])) / _TICKS for at in (11, 13))
        yield Process(int(entry.name), int(fields[1]), int(fields[19]), title, own, own + waited_for)


def tree_cpu_seconds(root: int | None = None) -> float:
    """User and system seconds of a process (default: this one), its descendants, and its ended descendants.

    Linux only: from /proc, in steps of 10 ms. Cost: one small file per process of the machine.
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
    """(parent, ticks) of a process; None if it has ended."""
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()  # the name may contain spaces and parentheses
    except OSError:
        return None
    return int(fields[1]), sum(map(int, fields[11:15]))  # utime, stime, and both of reaped children
