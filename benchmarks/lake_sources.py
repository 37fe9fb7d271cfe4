"""Read 1,000 changed rows of an Iceberg table by its key: the bytes and the CPU time, by the size of the table.

    python -m benchmarks lake-sources
    python -m benchmarks lake-sources --rows 1000000 10000000 --without-key

A writer of upserts commits 900 new rows of random keys and an equality delete of 1,000 keys, as Flink does. The source
stores the rows by the key. `--without-key` measures a source that stores no rows: it reads the files that the deletes
concern. Each round is one epoch in this process, with an empty cache and a view over all rows. The sums of the view's
columns are compared with the table's.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.keyed_sources import Seconds, Watch
from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.jobs.iceberg.tables import NAME, SCHEMA, catalog_in, commit_deletes, options_of
from tussock.jobs.barriers.source_holds import require_not_held
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import AggCall, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, KeyedBy
from tussock.jobs.task.opened import opened_objects
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.requests import requests_so_far

BUDGET = 1.3
CHANGED, DELETED = 1_000, 100
_SPREAD = 0x9E3779B97F4A7C15
_FIELDS = (Field("id", "bigint"), Field("v", "double"), Field("p", "string"))
_SUMS = (Field("n", "bigint"), Field("total", "double"))
_VIEW = Aggregate(
    Scan("s", (1,), _FIELDS[1:2]),
    (),
    (AggCall("Count", "bigint", ()), AggCall("Sum", "double", (Column(0, "double"),))),
    _SUMS,
)


def rows_of(ids: np.ndarray, value: float) -> pa.Table:
    """Rows of some keys with this value, and a text that hardly compresses, as names and addresses do."""
    mixed = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(_SPREAD)
    texts = np.char.add(np.char.mod("%016x", mixed), np.char.mod("%016x", mixed * mixed))
    return pa.table([ids, np.full(len(ids), value), texts], schema=SCHEMA)


def bytes_read(meta: MetaStore) -> np.ndarray:
    """The bytes that this process has read so far: of the table, and of the store."""
    stores = {id(objects): objects for objects in (meta.objects, opened_objects(meta.objects.uri))}
    of_store = sum(requests_so_far(objects).bytes_in for objects in stores.values())
    return np.array([int(Path("/proc/self/io").read_text().split()[1]) - of_store, of_store])


def run_epoch(meta: MetaStore) -> tuple[Seconds, np.ndarray]:
    """Take what waits, with an empty cache, as a new process has."""
    process_cache().clear()
    before = bytes_read(meta)
    with Watch() as watch:
        advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)
    return watch.seconds, bytes_read(meta) - before


def measure(work: Path, count: int, rounds: int, *, by_key: bool) -> tuple[float, float, float]:
    """Return the median CPU seconds and bytes (of the table, of the store) of a round, after a warm one."""
    lake, draw, values = work / "lake", np.random.default_rng(1), np.zeros(count)
    table = catalog_in(lake).create_table(NAME, SCHEMA)
    for start in range(0, count, 1_000_000):
        table.append(rows_of(np.arange(start, min(count, start + 1_000_000)), 0.0))
    meta = new_store(work / "store", units=2)
    source = CreateSource("s", "iceberg", _FIELDS, options_of(lake), keyed=KeyedBy((0,)) if by_key else None)
    append(meta, source, CreateView("sums", "SELECT …", _VIEW))
    first, _ = run_epoch(meta)
    print(f"{count:>12,} rows  first epoch {first}", flush=True)
    costs = list[tuple[float, float, float]]()
    for number in range(1, rounds + 2):
        ids = np.sort(draw.choice(np.flatnonzero(~np.isnan(values)), CHANGED, replace=False))
        gone = draw.choice(ids, DELETED, replace=False)
        left = np.setdiff1d(ids, gone)
        values[gone], values[left] = np.nan, number
        commit_deletes(table.refresh(), equal=pa.table({"id": ids}), new=rows_of(left, float(number)))
        seconds, read = run_epoch(meta)
        costs.append((seconds.cpu, *read.tolist()))
    live = np.flatnonzero(~np.isnan(values))
    assert rows(meta, "sums") == [(len(live), float(values[live].sum()))]
    cpu, of_table, of_store = (statistics.median(column) for column in zip(*costs[1:], strict=True))
    return cpu, of_table, of_store


def main(arguments: Sequence[str]) -> int:
    """Run and print. Returns 1 if the bytes depend on the size of the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks lake-sources")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="rows of the tables")
    parser.add_argument("--rounds", type=int, default=7, help="measured epochs")
    parser.add_argument("--without-key", action="store_true", help="a source that stores no rows")
    options = parser.parse_args(arguments)
    sizes = list[float]()
    for count in options.rows:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            cpu, read, of_store = measure(Path(folder), count, options.rounds, by_key=not options.without_key)
        sizes.append(read)
        both = f"{read / 1000:,.0f} KB of the table and {of_store / 1000:,.0f} KB of the store"
        took = f"({time.monotonic() - began:.0f} s in all)"
        print(f"{count:>12,} rows  {1000 * cpu:,.0f} ms CPU, {both} {took}", flush=True)
    ratio = max(sizes) / min(sizes)
    print(f"{ratio:.2f} times the bytes of the table between the sizes (limit {BUDGET})")
    return int(ratio > BUDGET)
