"""The orders of a measuring process, and its answers."""

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.store.workload import Size

T = TypeVar("T")


class Task(msgspec.Struct, frozen=True):
    """One part to run."""

    engine: str  # tussock, rocksdb, rocksdb-file or slatedb
    part: str  # a key of parts.PARTS
    data: Path  # the workload's folder
    state: Path  # the engine's folder: made by "build", read by others; "ingest" and "compact" use another one
    size: Size
    repeats: int


class PartResult(msgspec.Struct, frozen=True):
    """Seconds of each series, and other figures."""

    seconds: dict[str, list[float]]
    facts: dict[str, float] = {}
    cpu_seconds: dict[str, list[float]] = {}  # as `seconds`, of all threads: a busy machine changes these less


def encode_task(task: Task) -> str:
    """A task as one argument of a process."""
    return msgspec.json.encode(task, enc_hook=str).decode()


def decode_task(text: str) -> Task:
    """Back again."""
    return msgspec.json.decode(text, type=Task, dec_hook=lambda kind, value: kind(value))


class Stopwatch:
    """Measures calls by series. Without garbage collections, as timeit: they cost peers the most, which make many objects."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.cpu_seconds: dict[str, list[float]] = {}

    def measure(self, series: str, work: Callable[[], T]) -> T:
        """The answer of `work`; what it took is added to the series."""
        gc.disable()
        try:
            began, cpu = time.perf_counter(), time.process_time()
            answer = work()
            self.seconds.setdefault(series, []).append(time.perf_counter() - began)
            self.cpu_seconds.setdefault(series, []).append(time.process_time() - cpu)
            return answer
        finally:
            gc.enable()

    def result(self, facts: dict[str, float] | None = None) -> PartResult:
        """All that was measured."""
        return PartResult(self.seconds, facts or {}, self.cpu_seconds)
