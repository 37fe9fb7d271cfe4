"""CPU seconds of this process and all its descendants: the driver, its JVM and Spark's workers. A busy machine changes these less than
seconds on the clock."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True)
class Process:
    """A process as it is: `own_s` user and system seconds of its own so far, `all_s` with those of children that it waited for."""

    pid: int
    parent: int
    started: int  # ticks after the machine's start: with the pid, what no other process has
    title: str  # its command line
    own_s: float
    all_s: float

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.started


def processes() -> Iterator[Process]:
    """All processes of the machine. Linux only. Cost: two small files each."""
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
