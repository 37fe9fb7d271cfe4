"""`python -m benchmarks amplification`: amplification under uniform updates, with a compaction after every epoch.

Reads: the largest number of sorted runs for one key. Space: stored bytes over the same live rows written once. Writes:
bytes written over the bytes that epochs flushed. Budgets: 8 runs, 1.6x, 12x.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.hummock.amplification import read_amplification, written_bytes
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.barrier import BarrierPlan
from tussock.statestore.meta.catalog import Catalog, ColumnSpec, KeyColumn, Relation, RelationKind, TableSchema
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.names import data_prefix
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.vnode import vnodes_of

BUDGET_RUNS, BUDGET_SPACE, BUDGET_WRITES = 8, 1.6, 12.0
_TABLE, _VNODES = 1, 256
_COLUMNS = (ColumnSpec("k", "bigint"), ColumnSpec("n", "bigint"), ColumnSpec("total", "double"))


@dataclass(frozen=True, slots=True)
class Load:
    """A table of `keys` rows, written by the first epoch; then `epochs` epochs each update a random `share` of them."""

    keys: int = 1_000_000
    epochs: int = 50
    share: float = 0.1
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Figures:
    """The result of a load. `runs` and `space` are the maxima after a compaction; `writes` covers the whole load."""

    runs: int
    space: float
    writes: float
    stored: int  # bytes at the end
    live: int  # bytes of the live rows if written once
    flushed: int
    compacted: int
    seconds: float  # of compaction
    rows_right: bool  # whether the last epoch has the rows that were written

    @property
    def within_budget(self) -> bool:
        return (
            self.runs <= BUDGET_RUNS and self.space <= BUDGET_SPACE and self.writes <= BUDGET_WRITES and self.rows_right
        )


def run_load(
    objects: ObjectStore, load: Load, options: CompactionOptions, progress: Callable[[str], None] = lambda _: None
) -> Figures:
    """Run a load on an empty store and measure it. Each epoch is published, and only the newest stays readable."""
    MetaStore.init(objects, vnode_count=_VNODES)
    ticks = iter(range(1, 1 << 40))
    meta = MetaStore(objects, "benchmark", lambda: next(ticks) * 1_000)
    random = np.random.default_rng(load.seed)
    values = np.zeros(load.keys)
    runs, space, seconds, live = 0, 0.0, 0.0, 0
    for number in range(load.epochs + 1):
        every = number == 0
        changed = (
            np.arange(load.keys)
            if every
            else np.sort(random.choice(load.keys, int(load.keys * load.share), replace=False))
        )
        values[changed] = random.random(len(changed))
        _run_epoch(meta, changed, values[changed], every)
        if every:
            live = sum(sst.size for sst in meta.read_latest().levels[0])
        meta.apply_retention(1)
        started = time.perf_counter()
        compact_store(meta, options)
        seconds += time.perf_counter() - started
        version = meta.read_latest()
        stored = sum(sst.size for level in version.levels for sst in level)
        runs, space = max(runs, read_amplification(version)), max(space, stored / live)
        shape = " ".join(
            f"L{level}:{sum(s.size for s in ssts):,}/{len(ssts)}" for level, ssts in enumerate(version.levels) if ssts
        )
        progress(f"epoch {number}: {shape}, {read_amplification(version)} runs, {stored / live:.2f}x")
    version = meta.read_latest()
    flushed, compacted = written_bytes(meta, 1 << 30)
    rows = pa.concat_tables(HummockStore(objects, version).iter_rows(_TABLE, None, None, version.epoch)).sort_by("k")
    right = rows["total"].to_numpy().tolist() == values.tolist()
    return Figures(runs, space, (flushed + compacted) / flushed, stored, live, flushed, compacted, seconds, right)


def _run_epoch(meta: MetaStore, changed: npt.NDArray[np.int64], totals: npt.NDArray[np.float64], first: bool) -> None:
    version = meta.read_latest()
    schema = TableSchema(_TABLE, "t", _COLUMNS, (KeyColumn(0),), (0,))
    catalog = (
        Catalog((Relation(1, "t", RelationKind.VIEW, _COLUMNS, msgspec.Raw(b"{}"), (schema,)),), 2, 2)
        if first
        else None
    )
    barrier = meta.inject_barrier(version.epoch, BarrierPlan(mapping=version.mapping, log_end=0, catalog=catalog))
    keys = pa.array(changed)
    storage = encode_keys(_TABLE, np.asarray(vnodes_of([keys], _VNODES)), [keys], schema.key)
    order = pc.array_sort_indices(storage)
    rows = pa.table(
        {
            "key": storage,
            "op": pa.array(np.ones(len(keys), np.uint8)),
            "k": keys,
            "n": pa.array(changed * 7),
            "total": totals,
        }
    )
    ssts = batch_ingest(
        meta.objects, [SealedBatch(_TABLE, rows.take(order))], barrier.epoch, data_prefix(barrier.epoch)
    )
    meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, meta.writer, tuple(ssts))))
    meta.publish(barrier.epoch)


def show_figures(load: Load, found: Figures) -> str:
    """The figures with their budgets."""
    rate = (found.flushed + found.compacted) / max(found.seconds, 1e-9) / 1e6
    return "\n".join(
        [
            f"{load.keys:,} keys, {load.epochs} epochs that each update {load.share:.0%}; compaction after every epoch",
            f"  reads   {found.runs:>6} sorted runs per key at most       budget {BUDGET_RUNS}",
            f"  space   {found.space:>6.2f}x the live rows at most           budget {BUDGET_SPACE}x   "
            f"({found.stored:,} bytes at the end)",
            f"  writes  {found.writes:>6.2f}x what epochs flushed            budget {BUDGET_WRITES:g}x  "
            f"({found.compacted:,} compacted)",
            f"  compaction took {found.seconds:.1f} s, {rate:.0f} MB/s",
            "  every budget is met" if found.within_budget else "  MISSED",
        ]
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks amplification", description="Measure amplification under uniform updates."
    )
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--share", type=float, default=0.1, help="share of the keys that an epoch updates")
    parser.add_argument("--verbose", action="store_true", help="print a line for each epoch")
    chosen = parser.parse_args(arguments)
    load = Load(chosen.keys, chosen.epochs, chosen.share)
    with tempfile.TemporaryDirectory(prefix="tussock-bench-") as folder:
        objects = LocalObjectStore(Path(folder) / "store")
        found = run_load(
            objects, load, CompactionOptions(), lambda line: print(line, flush=True) if chosen.verbose else None
        )
    print(show_figures(load, found))
    return 0 if found.within_budget else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
