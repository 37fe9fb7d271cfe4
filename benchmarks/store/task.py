"""The input and output of a measuring process."""

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
    state: Path  # the engine's folder: "build" creates it, others read it; "ingest" and "compact" use another one
    size: Size
    repeats: int


class PartResult(msgspec.Struct, frozen=True):
    """Seconds of each series, and other figures."""

    seconds: dict[str, list[float]]
    facts: dict[str, float] = {}
    cpu_seconds: dict[str, list[float]] = {}  # as `seconds`, of all threads; a busy machine affects these less


def encode_task(task: Task) -> str:
    """Encode a task as one argument of a process."""
    return msgspec.json.encode(task, enc_hook=str).decode()


def decode_task(text: str) -> Task:
    """Decode a task."""
    return msgspec.json.decode(text, type=Task, dec_hook=lambda kind, value: kind(value))


class Stopwatch:
    """Times calls by series.

    It disables garbage collection, as timeit does, since that would burden peers with many objects.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.cpu_seconds: dict[str, list[float]] = {}

    def measure(self, series: str, work: Callable[[], T]) -> T:
        """Return the result of `work`; its duration is added to the series."""
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
        """All measurements."""
        return PartResult(self.seconds, facts or {}, self.cpu_seconds)
