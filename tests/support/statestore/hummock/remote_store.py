"""A store that counts its requests, with computable rows, and a process that reads them through a disk cache.

    python -m tests.support.statestore.hummock.remote_store STORE CACHE SEED ROUNDS CAPACITY [FILE_LIMIT]

reads rows of a store that `make_store` made in another process. It prints the number of wrong rows and of GETs.
If ROUNDS is 0, it reads until it is killed.
"""

import base64
import hashlib
import json
import random
import resource
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import msgspec
import pyarrow as pa

from tests.support.statestore.hummock.store_model import Row, empty_version, sealed, storage_key, with_l0
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.disk_cache import DiskCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.range_reader import RangeReader
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectInfo, ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.ranges import plan_reads

TABLE = 3


@dataclass
class RemoteStore:
    """A store that counts GETs as S3ObjectStore sends them, and can flip a byte of the next answer."""

    inner: ObjectStore
    uri: str = ""
    gets: int = 0
    volume: int = 0  # bytes
    flip_next: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.uri = self.uri or self.inner.uri

    def get(self, name: str) -> bytes:
        data = self.inner.get(name)
        self._count(1, len(data))
        return data

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        reads = plan_reads(ranges)
        self._count(len(reads), sum(read.length for read in reads))
        found = self.inner.get_ranges(name, ranges)
        if self.flip_next:
            self.flip_next = False
            found = [flipped(data, len(data) // 2) for data in found]
        return found

    def head(self, name: str) -> ObjectInfo:
        return self.inner.head(name)

    def put(self, name: str, data: bytes) -> None:
        self.inner.put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self.inner.put_if_absent(name, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, start_after)

    def delete(self, names: Iterable[str]) -> None:
        self.inner.delete(names)

    def taken(self) -> int:
        """GETs since the previous call."""
        with self._lock:
            gets, self.gets = self.gets, 0
            return gets

    def _count(self, gets: int, size: int) -> None:
        with self._lock:
            self.gets += gets
            self.volume += size


def flipped(data: bytes, at: int) -> bytes:
    """The bytes with one bit changed."""
    return data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]


def key_of(number: int) -> bytes:
    """The storage key of row `number`."""
    return storage_key(TABLE, number % 16, b"%07d" % number)


def row_of(number: int) -> Row | None:
    """Row `number`, or None: one row in ten does not exist."""
    if number % 10 == 0:
        return None
    digest = hashlib.blake2b(b"%d" % number, digest_size=48).digest()
    return {"n": number * 7919 % 1_000_003, "s": base64.b85encode(digest).decode()}  # 48 bytes, however they are packed


def make_store(objects: ObjectStore, rows: int, target_bytes: int = 1 << 20) -> HummockVersion:
    """Rows 0 … rows - 1 in one epoch."""
    changes: dict[bytes, Row | None] = {
        key_of(number): row for number in range(rows) if (row := row_of(number)) is not None
    }
    return with_l0(
        empty_version(), 1, batch_ingest(objects, [sealed(TABLE, changes)], 1, f"data/{1:016x}", target_bytes)
    )


def reader(objects: ObjectStore, version: HummockVersion, disk: DiskCache | None) -> HummockStore:
    """A store as a new process opens it: with empty memory and the disk cache as it is."""
    store = HummockStore(objects, version, BlockCache())
    store.source.stored.ranges = RangeReader(objects, disk)
    return store


def wrong_rows(store: HummockStore, numbers: Sequence[int]) -> list[int]:
    """The rows among these that the store returns wrong."""
    found, rows = store.multi_get(TABLE, pa.array([key_of(number) for number in numbers], pa.binary()), 1)
    there, given = found.to_pylist(), rows.to_pylist()
    return [n for n, here, row in zip(numbers, there, given, strict=True) if (row if here else None) != row_of(n)]


def main(store: str, cache: str, seed: str, rounds: str, capacity: str, file_limit: str = "") -> None:
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(file_limit), int(file_limit)))
    objects = RemoteStore(LocalObjectStore(Path(store)))
    version = msgspec.json.decode(Path(store, "version.json").read_bytes(), type=HummockVersion)
    disk = DiskCache(Path(cache), int(capacity))
    rng, total, wrong = random.Random(int(seed)), sum(sst.rows for sst in version.levels[0]), 0
    print("reading", flush=True)
    for _ in count() if rounds == "0" else range(int(rounds)):
        wrong += len(wrong_rows(reader(objects, version, disk), rng.sample(range(total), 50)))
    print(json.dumps({"wrong": wrong, "gets": objects.gets, "hits": disk.counts.hits, "damaged": disk.counts.damaged}))


if __name__ == "__main__":
    main(*sys.argv[1:])
