"""Objects that a worker opens or decodes once and keeps between tasks."""

import threading
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from tussock.jobs.wire.measured import Report
from tussock.statestore.decoding import decode_json
from tussock.statestore.meta.version import VersionPart
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.objectstore.requests import requests_so_far


class _OfThread(threading.local):
    """The stores that one thread opened. Each thread has its own, so that it counts its own requests only."""

    def __init__(self) -> None:
        self.opened = lru_cache(maxsize=4)(open_object_store)


_of_thread = _OfThread()


def opened_objects(uri: str) -> ObjectStore:
    """The object store at `uri`, opened once per thread."""
    return _of_thread.opened(uri)


@lru_cache(maxsize=2)
def decoded_version(data: bytes) -> VersionPart:
    """Decode the part of a version in an epoch's task, once per process."""
    return decode_json(data, VersionPart)


def measure_work(
    work: Iterable[pa.RecordBatch], store_uri: str, unit: int | None, report: Report
) -> Iterator[pa.RecordBatch]:
    """Pass on the cells of `work`. At its end, report the requests, and the seconds on `unit` (None: requests only).

    The time between two `next` calls is not counted. Requires: this thread runs one task at a time.
    """
    objects, seconds = opened_objects(store_uri), 0.0
    before, left = requests_so_far(objects), iter(work)
    while True:
        started = time.perf_counter()
        cell = next(left, None)
        seconds += time.perf_counter() - started
        if cell is None:
            break
        yield cell
    report(({} if unit is None else {unit: seconds}, requests_so_far(objects) - before))
