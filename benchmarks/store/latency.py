"""An object store that answers as slowly as S3, and counts its requests.

    latency+file:///a/path?ms=30&mbps=100[&log=/a/file]
    latency+s3://bucket/prefix?endpoint=…&ms=30&mbps=100      (other options apply to the inner store)

Each request takes `ms` milliseconds, and then its bytes at `mbps` MB/s. The requests of one call run in parallel, as
many as S3ObjectStore keeps in flight. Requests are counted as S3ObjectStore would send them: one per group of
neighbouring ranges, and one per 1,000 names of a listing or a deletion. `log` is a file to which every process appends
a line per request. `read_log` adds them up, which counts the requests of Spark's Python workers.

The store is a URI scheme, since stores travel to other processes as their `uri`, and a worker imports only the modules
that it needs to open the URI. `statestore/objectstore/open.py` reads further schemes from the environment variable
TUSSOCK_STORE_SCHEMES (`scheme=module:function`, comma-separated), and `register` sets it for this module. Workers
inherit the environment of the process that started the JVM, so call `register` before the Spark session is created.
Production code has no part in it. A proxy in front of an S3 server would not do: the available servers answer some
hundred requests per second, and would dominate the figures.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from tussock.statestore.objectstore.base import BadStoreError, ObjectInfo, ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.open import SCHEMES_VARIABLE, open_object_store
from tussock.statestore.objectstore.ranges import plan_reads

PARALLEL_REQUESTS = 16  # per call, as in S3ObjectStore
_PAGE = 1000  # names per LIST answer or DELETE request
_PREFIX = "latency+"
_SCHEMES = ("latency+file", "latency+s3")


@dataclass(slots=True)
class RequestCounts:
    """Requests and their bytes by kind: get, head, put, put_if_absent, list, delete."""

    requests: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)  # bytes of bodies, in both directions

    def add(self, kind: str, size: int, requests: int = 1) -> None:
        """Count requests of one kind."""
        self.requests[kind] += requests
        self.sizes[kind] += size

    def since(self, earlier: "RequestCounts") -> "RequestCounts":
        """The requests since `earlier`, a copy taken before."""
        return RequestCounts(self.requests - earlier.requests, self.sizes - earlier.sizes)

    def copy(self) -> "RequestCounts":
        """A copy of the current counts."""
        return RequestCounts(self.requests.copy(), self.sizes.copy())

    def __str__(self) -> str:
        parts = [
            f"{n} {kind}" + (f" ({self.sizes[kind]:,} B)" if self.sizes[kind] else "")
            for kind, n in sorted(self.requests.items())
        ]
        return ", ".join(parts) or "no requests"


class LatencyObjectStore:
    """`inner` with a delay for every request, counted in `counts`.

    Thread-safe; other processes open it by its `uri`.
    """

    def __init__(self, inner: ObjectStore, ms: float, mbps: float, log: Path | None = None) -> None:
        """`ms`: milliseconds per request; `mbps`: MB/s per connection; `log`: file to append requests to, or None."""
        self.inner, self.ms, self.mbps, self.log = inner, ms, mbps, log
        self.counts = RequestCounts()
        self._lock = threading.Lock()
        parts = urlsplit(inner.uri)
        options = {"ms": f"{ms:g}", "mbps": f"{mbps:g}"} | ({"log": str(log)} if log else {})
        query = "&".join(part for part in (parts.query, urlencode(options, safe="/")) if part)
        self.uri = f"{_PREFIX}{parts.scheme}://{parts.netloc}{parts.path}?{query}"

    def __reduce__(self) -> tuple[type["LatencyObjectStore"], tuple[ObjectStore, float, float, Path | None]]:
        return LatencyObjectStore, (self.inner, self.ms, self.mbps, self.log)

    def get(self, name: str) -> bytes:
        try:
            data = self.inner.get(name)
        except ObjectNotFoundError:
            self._spend("get", [0])
            raise
        self._spend("get", [len(data)])
        return data

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        sizes = [read.length for read in plan_reads(ranges)]
        try:
            return self.inner.get_ranges(name, ranges)
        finally:
            self._spend("get", sizes)

    def head(self, name: str) -> ObjectInfo:
        self._spend("head", [0])
        return self.inner.head(name)

    def put(self, name: str, data: bytes) -> None:
        self._spend("put", [len(data)])
        self.inner.put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._spend("put_if_absent", [len(data)])
        won = self.inner.put_if_absent(name, data)
        if not won:  # S3 answers 412, and the body is read
            self._spend("get", [len(data)])
        return won

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        names = self.inner.list(prefix, start_after)
        page = list(islice(names, _PAGE))
        while True:
            self._spend("list", [0])
            yield from page
            if len(page) < _PAGE:
                return
            page = list(islice(names, _PAGE))

    def delete(self, names: Iterable[str]) -> None:
        rest = iter(names)
        while batch := list(islice(rest, _PAGE)):
            self._spend("delete", [0])
            self.inner.delete(batch)

    def _spend(self, kind: str, sizes: Sequence[int]) -> None:
        """Count the requests of one call and wait for them, PARALLEL_REQUESTS at a time, the longest first."""
        if not sizes:
            return
        with self._lock:
            self.counts.add(kind, sum(sizes), len(sizes))
        if self.log is not None:
            _append(self.log, "".join(f"{kind} {size}\n" for size in sizes))
        lanes = [0.0] * min(PARALLEL_REQUESTS, len(sizes))
        for size in sorted(sizes, reverse=True):
            lane = lanes.index(min(lanes))
            lanes[lane] += self.ms / 1e3 + size / (self.mbps * 1e6)
        time.sleep(max(lanes))


def register() -> None:
    """Let `open_object_store` open this module's URIs, in this process and in processes started later."""
    known = [
        entry for entry in os.environ.get(SCHEMES_VARIABLE, "").split(",") if entry and not entry.startswith(_PREFIX)
    ]
    os.environ[SCHEMES_VARIABLE] = ",".join([*known, *(f"{scheme}={__name__}:open_latency" for scheme in _SCHEMES)])


def open_latency(uri: str) -> LatencyObjectStore:
    """Open the store of a `latency+…` URI. Raises BadStoreError."""
    parts = urlsplit(uri.removeprefix(_PREFIX))
    options = parse_qsl(parts.query, keep_blank_values=True)
    own = {key: value for key, value in options if key in ("ms", "mbps", "log")}
    query = urlencode([option for option in options if option[0] not in own], safe=":/")
    inner = open_object_store(f"{parts.scheme}://{parts.netloc}{parts.path}" + (f"?{query}" if query else ""))
    try:
        ms, mbps = float(own.get("ms", "30")), float(own.get("mbps", "100"))
    except ValueError:
        raise BadStoreError(uri, "ms and mbps must be numbers") from None
    if ms < 0 or mbps <= 0:
        raise BadStoreError(uri, "ms must be at least 0, and mbps more than 0")
    return LatencyObjectStore(inner, ms, mbps, Path(own["log"]) if own.get("log") else None)


def read_log(log: Path) -> RequestCounts:
    """The requests of all processes in a log; none if the log does not exist yet."""
    counts = RequestCounts()
    if log.exists():
        for line in log.read_text().splitlines():
            kind, _, size = line.partition(" ")
            counts.add(kind, int(size))
    return counts


def _append(log: Path, lines: str) -> None:
    """Append lines in one write, so that lines of other processes do not mix with them."""
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(handle, lines.encode())
    finally:
        os.close(handle)
