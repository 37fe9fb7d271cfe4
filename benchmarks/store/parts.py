"""The measuring process: one part of the benchmark on one engine. `python -m benchmarks.store.parts '<task as JSON>'`.

Each process prints one line of JSON, a PartResult. Results of reads are checked against the workload outside the timed
section.
"""

import os
import resource
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.store.engine import Engine, decoded_values, encoded_values, storage_keys, stored_bytes
from benchmarks.store.requests import measure_block_reads, measure_requests
from benchmarks.store.task import PartResult, Stopwatch, Task, decode_task
from benchmarks.store.workload import Workload, values_of

MEMORY_LIMIT = 6 << 30  # data bytes of a process, for every engine


class WrongAnswerError(RuntimeError):
    """An engine returned other rows than were written."""


def run_part(task: Task) -> PartResult:
    """Run one part in this process."""
    load_libraries()
    return PARTS[task.part](task, Workload(task.data, task.size))


def make_engine(name: str, folder: Path) -> Engine:
    """Create an engine by name on a folder. Imports only its own library."""
    if name == "tussock":
        from benchmarks.store.tussock import Tussock

        return Tussock(folder)
    if name == "slatedb":
        from benchmarks.store.slatedb import SlateDb

        return SlateDb(folder)
    from benchmarks.store.rocksdb import RocksDb

    return RocksDb(folder, by_file=name == "rocksdb-file")


def load_libraries() -> None:
    """Import modules that are loaded on first use, such as pandas by pyarrow, since no engine should pay for that."""
    few = pa.table({"g": np.arange(3), "i": np.arange(3), **values_of(np.arange(3), np.arange(3))})
    storage_keys(few)
    pc.sum(decoded_values(encoded_values(few))["total"]).as_py()


def _build(task: Task, load: Workload) -> PartResult:
    """Write all rows in batches, then merge them into one sorted run."""
    shutil.rmtree(task.state, ignore_errors=True)
    engine = make_engine(task.engine, task.state)
    engine.open()
    watch = Stopwatch()
    for batch in load.batches():
        watch.measure("ingest", partial(engine.ingest, batch))
    watch.measure("compaction", engine.compact)
    size = _size_of(engine, task.state)
    engine.close()
    return watch.result({"bytes": size})


def _ingest(task: Task, load: Workload) -> PartResult:
    """Write one batch into an empty store, `repeats` times.

    A small batch elsewhere comes first, for imports and first calls.
    """
    watch = Stopwatch()
    for number in range(task.repeats + 1):
        folder = task.state.with_name(f"{task.state.name}-ingest")
        shutil.rmtree(folder, ignore_errors=True)
        engine = make_engine(task.engine, folder)
        engine.open()
        batch = load.rows.slice(
            max(0, number - 1) * load.size.batch % load.size.rows, load.size.batch if number else 1000
        )
        watch.measure("ingest" if number else "first", partial(engine.ingest, batch))
        if number == 1:
            _require_rows(load, batch.select(["g", "i"]), *engine.multi_get(batch.select(["g", "i"])))
        engine.close()
        shutil.rmtree(folder)
    return watch.result()


def _compact(task: Task, load: Workload) -> PartResult:
    """Merge four overlapping batches into one sorted run with each key's newest row."""
    folder = task.state.with_name(f"{task.state.name}-compact")
    watch, facts = Stopwatch(), {}
    updates = load.updates()
    for _ in range(task.repeats):
        shutil.rmtree(folder, ignore_errors=True)
        engine = make_engine(task.engine, folder)
        engine.open()
        for batch in updates:
            engine.ingest(batch)
        before = _size_of(engine, folder)
        watch.measure("compaction", engine.compact)
        rows = sum(table.num_rows for table in engine.scan())
        distinct = pa.concat_tables(updates).group_by(["g", "i"]).aggregate([]).num_rows
        if rows != distinct:
            raise WrongAnswerError(f"{task.engine}: {rows} rows after compaction, expected {distinct}")
        facts = {
            "bytes in": before,
            "bytes out": _size_of(engine, folder),
            "rows in": sum(batch.num_rows for batch in updates),
        }
        engine.close()
    shutil.rmtree(folder)
    return watch.result(facts)


def _cold_present(task: Task, load: Workload) -> PartResult:
    return _cold(task, load, "present")


def _cold_absent(task: Task, load: Workload) -> PartResult:
    return _cold(task, load, "absent")


def _cold(task: Task, load: Workload, which: str) -> PartResult:
    """Time the first multi_get of a process, including the opening, with the store's files out of the page cache."""
    keys = _keys(load, which)
    engine = make_engine(task.engine, task.state)  # imports
    forget_files(task.state)

    def first() -> tuple[pa.BooleanArray, pa.Table]:
        engine.open()
        return engine.multi_get(keys)

    watch = Stopwatch()
    _require_rows(load, keys, *watch.measure(which, first))
    engine.close()
    return watch.result()


def _warm(task: Task, load: Workload) -> PartResult:
    """Repeat multi_get of the same keys, present and absent ones in turns."""
    engine = make_engine(task.engine, task.state)
    engine.open()
    watch = Stopwatch()
    for number in range(task.repeats + 1):
        for which in ("present", "absent"):
            keys = _keys(load, which)
            if number:
                watch.measure(which, partial(engine.multi_get, keys))
            else:
                _require_rows(load, keys, *engine.multi_get(keys))
    engine.close()
    return watch.result()


def _prefixes(task: Task, load: Workload) -> PartResult:
    """Scan all prefixes in one call; the first call is not counted."""
    engine = make_engine(task.engine, task.state)
    engine.open()
    groups = load.prefixes["g"].combine_chunks()
    index, rows = engine.scan_prefixes(groups)
    counts = np.bincount(np.asarray(index), minlength=len(groups))
    if counts.tolist() != load.prefixes["rows"].to_pylist():
        raise WrongAnswerError(f"{task.engine}: prefix scans found {len(index)} rows that differ from the written ones")
    watch = Stopwatch()
    for _ in range(task.repeats):
        watch.measure("prefixes", partial(engine.scan_prefixes, groups))
    engine.close()
    return watch.result({"rows": rows.num_rows})


def _scan(task: Task, load: Workload) -> PartResult:
    """Read every row as Arrow in batches; files are in the page cache if they fit."""
    engine = make_engine(task.engine, task.state)
    engine.open()
    watch = Stopwatch()

    def run() -> tuple[int, float]:
        rows, total = 0, 0.0
        for table in engine.scan():
            rows += table.num_rows
            total += pc.sum(table["total"]).as_py()
        return rows, total

    for _ in range(task.repeats):
        found = watch.measure("scan", run)
    expected = load.size.rows, pc.sum(load.rows["total"]).as_py()
    if found[0] != expected[0] or abs(found[1] - expected[1]) > 1e-6 * expected[1]:
        raise WrongAnswerError(f"{task.engine}: a full scan found {found} (rows, total), expected {expected}")
    engine.close()
    return watch.result()


def forget_files(folder: Path) -> None:
    """Ask the kernel to drop a folder's files from the page cache. Needs no privilege; mapped files stay."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


def _keys(load: Workload, which: str) -> pa.Table:
    return load.present if which == "present" else load.absent


def _require_rows(load: Workload, keys: pa.Table, found: pa.BooleanArray, rows: pa.Table) -> None:
    """Check a multi_get's result against the written rows: even items exist with their values, odd ones do not."""
    g, i = (keys[name].combine_chunks().to_numpy() for name in ("g", "i"))
    there = i % 2 == 0
    expected = values_of(g, i)
    columns = [rows[name].combine_chunks() for name in ("n", "total")]
    right = (np.asarray(found) == there).all() and all(
        column.null_count == (~there).sum() and (column.drop_null().to_numpy() == expected[name][there]).all()
        for name, column in zip(("n", "total"), columns, strict=True)
    )
    if not right:
        raise WrongAnswerError(f"a multi_get of {len(i)} keys in {load.size.rows} rows returned wrong rows")


def _size_of(engine: Engine, folder: Path) -> int:
    """Bytes of live data, without compacted inputs, which engines remove at different times."""
    live = getattr(engine, "state_bytes", None)
    return live if live is not None else stored_bytes(folder)


PARTS: dict[str, Callable[[Task, Workload], PartResult]] = {
    "build": _build,
    "ingest": _ingest,
    "compact": _compact,
    "cold-present": _cold_present,
    "cold-absent": _cold_absent,
    "warm": _warm,
    "prefixes": _prefixes,
    "scan": _scan,
    "block-reads": measure_block_reads,
    "requests": measure_requests,
}

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    print(msgspec.json.encode(run_part(decode_task(sys.argv[1]))).decode())
