"""Branches: compare two states of which few rows differ, and merge a view that a branch has built. No Spark.

    python -m benchmarks branches
    python -m benchmarks branches --rows 10000000 --merged 1000000

* A table of `--rows` rows, of which 1,000 of random keys differ in a branch: CPU time and bytes of `tussock diff`, with
  empty caches. Budget: 1 s and 10 MB. The rows that differ are compared with those that were written.
* A view with a group per row of `--merged` rows, which a following branch has built: CPU time of the merge, and of the
  parent's epoch that builds the same view anew. The rows of both are compared.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.keyed_sources import CHANGED, Watch, store_of, table_of
from tests.support.jobs.driver.embedded import append, rows
from tussock.jobs.compare.compare import ComparisonOptions, StoreAt, compare_stores
from tussock.jobs.driver.epoch import advance_store, epochs_of_branch
from tussock.jobs.driver.merge import merge_branch, plan_merge
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import AggCall, AggFunction, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import CreateView
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.compaction_picker import CompactionOptions

MOST_CPU_S, MOST_BYTES = 1.0, 10_000_000
_PER_ID = Aggregate(
    Scan("customers", (0, 1), (Field("id", "bigint"), Field("v", "int"))),
    (Column(0, "bigint"),),
    (AggCall(AggFunction.SUM, "bigint", (Column(1, "int"),)),),
    (Field("id", "bigint"), Field("total", "bigint")),
)


def measure_difference(work: Path, count: int) -> bool:
    """Print the cost of a comparison of two states of one table. Returns whether it meets the budget."""
    meta, folder = store_of(work, "upsert", count, memory=512 << 20)
    list(compact_store(meta, CompactionOptions()))
    meta.publish(meta.read_latest().epoch)
    branch = meta.open_branch("b", follows=False)
    ids = np.sort(np.random.default_rng(1).choice(count, CHANGED, replace=False))
    pq.write_table(table_of(ids, np.full(CHANGED, 1)), folder / "001.parquet")
    advance_store(LocalRunner(), branch)
    branch.publish(branch.read_latest().epoch)
    process_cache().clear()
    with Watch() as watch:
        difference = compare_stores(
            StoreAt(meta, "parent"), StoreAt(branch, "branch"), ComparisonOptions(("customers",), samples=2 * CHANGED)
        )
    (table,) = difference.views
    assert (table.missing, table.added, table.changed) == (0, 0, CHANGED), table
    assert sorted(set(table.samples["id"].to_pylist())) == ids.tolist()
    read = difference.requests.bytes_in
    print(f"  {CHANGED:,} rows of {count:,} differ: {watch.seconds}, {read / 1e6:.1f} MB read", flush=True)
    return watch.seconds.cpu <= MOST_CPU_S and read <= MOST_BYTES


def measure_merge(work: Path, count: int) -> None:
    """Print the cost of a merge that adopts a view, beside that of its computation."""
    meta, _ = store_of(work, "upsert", count)
    branch = meta.open_branch("b")
    append(branch, CreateView("per_id", "SELECT …", _PER_ID))
    list(epochs_of_branch(LocalRunner(), branch))
    merge = plan_merge(branch)
    with Watch() as adopting:
        merge_branch(branch, merge)
    append(meta, CreateView("anew", "SELECT …", _PER_ID))
    with Watch() as building:
        advance_store(LocalRunner(), meta)
    assert rows(meta, "per_id") == rows(meta, "anew")
    factor = building.seconds.cpu / adopting.seconds.cpu
    print(
        f"  a view of {count:,} groups: adopted in {adopting.seconds}, built anew in {building.seconds}: {factor:.1f}x"
    )


def main(arguments: Sequence[str]) -> int:
    """Run and print. Returns 1 if the comparison misses its budget."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks branches")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the compared table")
    parser.add_argument("--merged", type=int, default=1_000_000, help="groups of the adopted view")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tussock-branches-") as work:
        met = measure_difference(Path(work), options.rows)
    with tempfile.TemporaryDirectory(prefix="tussock-branches-") as work:
        measure_merge(Path(work), options.merged)
    return int(not met)
