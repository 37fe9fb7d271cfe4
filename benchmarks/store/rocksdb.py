"""RocksDB through rocksdict, with the fastest calls of its binding for whole batches.

Writes: a WriteBatch into a vector memtable without a log, then a flush; or (`by_file`) rows sorted here, an
SstFileWriter and an ingest of its file. Reads: `get` of a list (a MultiGet) of keys sorted here, which suits its block
cache. As in the other engines: LZ4, Bloom filters, and compaction only on request.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rocksdict import (
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    CompactOptions,
    DBCompressionType,
    IngestExternalFileOptions,
    MemtableFactory,
    Options,
    Rdict,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteOptions,
)

from benchmarks.store.engine import (
    CACHE_BYTES,
    FILTER_BITS,
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

_MEMTABLE_BYTES = 512 << 20  # holds one ingest of the benchmark, so each needs one flush


class RocksDb:
    """RocksDB as an engine of the benchmark."""

    name = "rocksdb"

    def __init__(self, folder: Path, by_file: bool = False) -> None:
        self.folder, self.by_file = folder, by_file
        self._files = 0

    def open(self) -> None:
        table = BlockBasedOptions()
        table.set_block_cache(Cache(CACHE_BYTES))
        table.set_bloom_filter(FILTER_BITS, False)
        table.set_format_version(6)
        options = self._options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_disable_auto_compactions(True)
        options.set_level_zero_slowdown_writes_trigger(1 << 20)
        options.set_level_zero_stop_writes_trigger(1 << 20)
        options.increase_parallelism(THREADS)
        options.set_max_subcompactions(THREADS)
        options.set_target_file_size_base(SST_BYTES)
        options.set_write_buffer_size(_MEMTABLE_BYTES)
        options.set_memtable_factory(MemtableFactory.vector())
        options.set_allow_concurrent_memtable_write(False)
        self._db = Rdict(str(self.folder), options)

    def ingest(self, rows: pa.Table) -> None:
        keys, values = as_matrix(storage_keys(rows)), encoded_values(rows)
        if self.by_file:
            self._ingest_file(keys, values)
            return
        batch = WriteBatch(raw_mode=True)
        for key, value in zip(keys.tolist(), values, strict=True):
            batch[key] = value
        options = WriteOptions()
        options.disable_wal = True  # type: ignore[method-assign, assignment]  # a property, unlike its stub
        self._db.write(batch, options)
        self._db.flush(True)

    def _ingest_file(self, keys: npt.NDArray[np.void], values: list[bytes]) -> None:
        order = np.argsort(keys.view(f"S{keys.dtype.itemsize}"))
        self._files += 1
        path = self.folder / f"ingest-{self._files}"
        writer = SstFileWriter(self._options)
        writer.open(str(path))
        for key, place in zip(keys[order].tolist(), order.tolist(), strict=True):
            writer[key] = values[place]
        writer.finish()
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        self._db.ingest_external_file([str(path)], options)

    def multi_get(self, keys: pa.Table) -> tuple[pa.BooleanArray, pa.Table]:
        encoded = as_matrix(storage_keys(keys))
        order = np.argsort(encoded.view(f"S{encoded.dtype.itemsize}"))
        found, rows = aligned_values(self._db.get(encoded[order].tolist()))  # type: ignore[arg-type]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        places = pa.array(back)
        return found.take(places), rows.take(places)

    def scan_prefixes(self, groups: pa.Array) -> tuple[pa.Int64Array, pa.Table]:
        prefixes = as_matrix(storage_prefixes(groups))
        pairs: list[tuple[bytes, bytes]] = []
        counts = np.zeros(len(prefixes), np.int64)
        for place, prefix in enumerate(prefixes.tolist()):
            options = ReadOptions()
            options.set_iterate_upper_bound(prefix + b"\xff")
            before = len(pairs)
            pairs.extend(self._db.items(from_key=prefix, read_opt=options))  # type: ignore[arg-type]  # raw mode: bytes
            counts[place] = len(pairs) - before
        return pa.array(np.repeat(np.arange(len(prefixes)), counts)), keys_and_values(pairs)

    def scan(self) -> Iterator[pa.Table]:
        pairs = self._db.items()
        while part := list(islice(pairs, SCAN_ROWS)):
            yield keys_and_values(part)  # type: ignore[arg-type]  # raw mode: bytes

    def compact(self) -> None:
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
        self._db.compact_range(None, None, options)

    def close(self) -> None:
        self._db.close()
