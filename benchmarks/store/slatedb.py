"""SlateDB through its Python binding, over a local object store.

Writes: a WriteBatch without a log, then a flush of the memtable. Reads: its `get` takes one key and is asynchronous, so
many are awaited together; scans return batches. LZ4, and compaction only on request, by one task over everything.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from slatedb import uniffi as slatedb  # type: ignore[import-untyped]

from benchmarks.store.engine import (
    CACHE_BYTES,
    SCAN_ROWS,
    SST_BYTES,
    THREADS,
    aligned_values,
    as_matrix,
    encoded_values,
    keys_and_values,
    storage_keys,
    storage_prefixes,
)

_TOGETHER = 1000  # gets awaited at once
_EVERYTHING = slatedb.KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)
_SETTINGS = {
    "wal_enabled": "false",  # the flush makes writes durable
    "compression_codec": '"Lz4"',
    "l0_sst_size_bytes": str(SST_BYTES),
    "l0_max_ssts": "1000",
    "l0_max_ssts_per_key": "1000",
    "manifest_poll_interval": '"20ms"',
    "compactor_options.poll_interval": '"20ms"',
    "compactor_options.commit_compacted_interval": '"20ms"',
    "compactor_options.scheduler_options": '{"min_compaction_sources": "1000"}',  # no automatic compaction
    "compactor_options.worker.compactions_poll_interval": '"20ms"',
    "compactor_options.worker.compression_codec": '"Lz4"',
    "compactor_options.worker.max_sst_size": str(SST_BYTES),
    "compactor_options.worker.max_subcompactions": str(THREADS),
}
T = TypeVar("T")


class SlateDb:
    """SlateDB as an engine of the benchmark."""

    name = "slatedb"

    def __init__(self, folder: Path) -> None:
        self._path = str(folder.absolute()).lstrip("/")
        self._loop = asyncio.new_event_loop()

    def open(self) -> None:
        settings = slatedb.Settings.default()
        for key, value in _SETTINGS.items():
            settings.set(key, value)
        cache = slatedb.MokaCacheOptions(max_capacity=CACHE_BYTES, time_to_live=None, time_to_idle=None)
        builder = slatedb.DbBuilder(self._path, slatedb.ObjectStore.resolve("file:///"))
        builder.with_settings(settings)
        builder.with_db_cache(slatedb.DbCache.new_moka_cache(cache), 0)
        self._db = self._await(builder.build())

    def ingest(self, rows: pa.Table) -> None:
        batch = slatedb.WriteBatch()
        for key, value in zip(as_matrix(storage_keys(rows)).tolist(), encoded_values(rows), strict=True):
            batch.put(key, value)
        self._await(self._db.write(batch))
        self._await(self._db.flush_with_options(slatedb.FlushOptions(flush_type=slatedb.FlushType.MEM_TABLE)))

    def multi_get(self, keys: pa.Table) -> tuple[pa.BooleanArray, pa.Table]:
        return aligned_values(self._await(self._get(as_matrix(storage_keys(keys)).tolist())))

    async def _get(self, keys: list[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = []
        for start in range(0, len(keys), _TOGETHER):
            values += await asyncio.gather(*[self._db.get(key) for key in keys[start : start + _TOGETHER]])
        return values

    def scan_prefixes(self, groups: pa.Array) -> tuple[pa.Int64Array, pa.Table]:
        prefixes = as_matrix(storage_prefixes(groups)).tolist()
        parts = self._await(self._scan_all(prefixes))
        index = np.repeat(np.arange(len(prefixes)), [len(part) for part in parts])
        return pa.array(index), keys_and_values([(pair.key, pair.value) for part in parts for pair in part])

    async def _scan_all(self, prefixes: list[bytes]) -> list[list[slatedb.KeyValue]]:
        found = []
        for prefix in prefixes:
            pairs = await self._db.scan_prefix(prefix, _EVERYTHING)
            found.append(await pairs.next_batch(SCAN_ROWS))
        return found

    def scan(self) -> Iterator[pa.Table]:
        pairs = self._await(self._db.scan(_EVERYTHING))
        while part := self._await(pairs.next_batch(SCAN_ROWS)):
            yield keys_and_values([(pair.key, pair.value) for pair in part])

    def compact(self) -> None:
        self._await(self._compact())

    async def _compact(self) -> None:
        admin = slatedb.AdminBuilder(self._path, slatedb.ObjectStore.resolve("file:///")).build()
        manifest = (await admin.read_compactor_state_view()).manifest
        sources = [slatedb.SourceId.SST_VIEW(view.id) for view in manifest.l0]
        sources += [slatedb.SourceId.SORTED_RUN(run.id) for run in manifest.compacted]
        submitted = await admin.submit_compaction(
            slatedb.CompactionSpec.TIERED(segment=b"", sources=sources, destination=0)
        )
        while (task := await admin.read_compaction(submitted.id, None)) is not None:
            if task.status is slatedb.CompactionStatus.COMPLETED:
                return
            if task.status is slatedb.CompactionStatus.FAILED:
                raise RuntimeError(f"SlateDB's compaction {submitted.id} failed")
            await asyncio.sleep(0.01)

    @property
    def state_bytes(self) -> int:
        """Bytes of the SSTs in its manifest, which its garbage collector would keep."""
        admin = slatedb.AdminBuilder(self._path, slatedb.ObjectStore.resolve("file:///")).build()
        manifest = self._await(admin.read_compactor_state_view()).manifest
        views = [*manifest.l0, *(view for run in manifest.compacted for view in run.sst_views)]
        return sum(int(view.estimated_size_bytes) for view in views)

    def close(self) -> None:
        self._await(self._db.shutdown())
        self._loop.close()

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)
