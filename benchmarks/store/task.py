"""What a measuring process is told, and what it answers."""

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
    state: Path  # the engine's folder: made by "build", read by others; "ingest" and "compact" use one of their own beside it
    size: Size
    repeats: int


class PartResult(msgspec.Struct, frozen=True):
    """Seconds of each series, and other figures."""

    seconds: dict[str, list[float]]
    facts: dict[str, float] = {}


def encode_task(task: Task) -> str:
    """A task as one argument of a process."""
    return msgspec.json.encode(task, enc_hook=str).decode()


def decode_task(text: str) -> Task:
    """Back again."""
    return msgspec.json.decode(text, type=Task, dec_hook=lambda kind, value: kind(value))


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds of `work`, and its answer. Without garbage collections, as timeit: they cost peers the most, which make many objects."""
    gc.disable()
    try:
        began = time.perf_counter()
        answer = work()
        return time.perf_counter() - began, answer
    finally:
        gc.enable()
