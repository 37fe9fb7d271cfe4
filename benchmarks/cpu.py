"""CPU seconds of this process and all its descendants: the driver, its JVM and Spark's workers.

A busy machine affects CPU seconds less than wall seconds.
"""

import os
from collections.abc import Iterator, Mapping
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


@dataclass(frozen=True)
class Usage:
    """The CPU time of a process in clock ticks: its own, and that of children that it has waited for."""

    parent: int
    started: int
    own: int
    waited_for: int

    @property
    def ticks(self) -> int:
        return self.own + self.waited_for


def tree_usage(root: int | None = None) -> dict[int, Usage]:
    """The usage of a process (default: this one) and of its descendants, by pid.

    Linux only: from /proc, in steps of 10 ms. Cost: one small file per process of the machine.
    """
    found: dict[int, Usage] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (usage := _usage(entry)) is not None:
            found[int(entry.name)] = usage
    children: dict[int, list[int]] = {}
    for pid, usage in found.items():
        children.setdefault(usage.parent, []).append(pid)
    tree, waiting = {}, [os.getpid() if root is None else root]
    while waiting:
        pid = waiting.pop()
        if pid in found:
            tree[pid] = found[pid]
        waiting += children.get(pid, [])
    return tree


def cpu_seconds_between(before: Mapping[int, Usage], after: Mapping[int, Usage]) -> float:
    """CPU seconds of a tree between two calls of `tree_usage`.

    Spark's Python daemon does not wait for its workers. So the seconds of a worker that ends disappear, and the
    difference of two sums would be too small by its whole life. Here only its seconds since `before` are missing.
    """
    ended: dict[int, int] = {}  # ticks until `before`, by the nearest ancestor that still runs
    for pid, usage in before.items():
        if not _runs_on(pid, usage, after):
            ancestor = usage.parent
            while ancestor in before and not _runs_on(ancestor, before[ancestor], after):
                ancestor = before[ancestor].parent
            ended[ancestor] = ended.get(ancestor, 0) + usage.ticks
    ticks = 0
    for pid, usage in after.items():
        old = before.get(pid)
        known = old if old is not None and old.started == usage.started else Usage(0, 0, 0, 0)
        more, counted_before = usage.waited_for - known.waited_for, ended.get(pid, 0)
        ticks += usage.own - known.own + (more - counted_before if more >= counted_before else more)
    return ticks / _TICKS


def _runs_on(pid: int, usage: Usage, after: Mapping[int, Usage]) -> bool:
    return pid in after and after[pid].started == usage.started


def _usage(entry: Path) -> Usage | None:
    """The usage of a process; None if it has ended."""
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()  # the name may contain spaces and parentheses
    except OSError:
        return None
    own, waited_for = (sum(map(int, fields[at : at + 2])) for at in (11, 13))
    return Usage(int(fields[1]), int(fields[19]), own, waited_for)
