"""CPU seconds of this process and all its descendants: the driver, its JVM and Spark's workers.

A busy machine affects CPU seconds less than wall seconds.
"""

import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_LOOK_S = 0.2
_PR_SET_CHILD_SUBREAPER = 36
_SPARK = "org.apache.spark.deploy.SparkSubmit"


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
    """The CPU time of a process in clock ticks: its own time, and the time of children that it has waited for."""

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


@dataclass(frozen=True)
class Spent:
    """The cost of a command.

    `cpu_s`: user and system seconds of its process and all descendants; `jvms`: the Spark applications among them.
    """

    cpu_s: float
    seconds: float
    code: int
    jvms: int
    output: str


def spent(command: Sequence[str], env: Mapping[str, str], folder: Path, patience_s: float = 300.0) -> Spent:
    """Run a command until all its descendants have ended, and return its cost. Linux only.

    Orphans become children of this process, which waits for them: a JVM ends after the command that started it. Spark's
    Python daemon does not wait for its workers. Their seconds are taken from the last sample before their end.

    Requires: this process has no other children. Raises RuntimeError if the command does not end in time.
    """
    _adopt_orphans()
    seen: dict[tuple[int, int], Process] = {}
    waited, code, ended = 0.0, 0, 0.0
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=output)
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid:
                waited += usage.ru_utime + usage.ru_stime
                if pid == process.pid:
                    code, ended = os.waitstatus_to_exitcode(status), time.perf_counter() - began
                    process.returncode = code
                continue
            if time.perf_counter() - began > patience_s:
                raise RuntimeError(f"{' '.join(command)} has not ended after {patience_s:.0f} s")
            seen |= {one.key: one for one in _descendants()}
            time.sleep(_LOOK_S)
        output.seek(0)
        text = output.read().decode(errors="replace")
    sampled = sum(one.own_s for one in seen.values())
    return Spent(max(waited, sampled), ended, code, sum(_SPARK in one.title for one in seen.values()), text)


def _adopt_orphans() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _descendants() -> Iterator[Process]:
    """The processes below this one."""
    children: dict[int, list[Process]] = {}
    for one in processes():
        children.setdefault(one.parent, []).append(one)
    waiting = [os.getpid()]
    while waiting:
        for one in children.get(waiting.pop(), []):
            yield one
            waiting.append(one.pid)
