"""Every kind of join against the inner join on the same changes: one executor, its state in SSTs, no Spark.

    python -m benchmarks joins

An epoch inserts, updates and deletes rows of both sides. Sides and kinds run in turns. The measure is the CPU time of
`apply` and the seal, since machines are shared. Budget: 1.3 times the inner join.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import make_chunk
from tussock.jobs.executors.hash_join import HashJoin, joined_types
from tussock.jobs.executors.operator import Actor
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import Call, Column, JoinKind
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.version import HummockVersion, VnodeMapping
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.table.state_table import StateTable

BUDGET = 1.3
VNODES = 16
KINDS = tuple(k for k in JoinKind if k is not JoinKind.NULL_AWARE_ANTI)
_TYPES = ("bigint", "bigint", "double", "string")  # stream key, join key, a value, a text
_SMALLER = Call("LessThan", "boolean", (Column(2, "double"), Column(6, "double")))


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the join."""

    rows: int = 200_000  # per side
    keys: int = 60_000
    changed: int = 10_000  # inserts per side and epoch; a quarter as many updates, and as many deletes as updates
    epochs: int = 9


class _Join:
    """One executor over its own store."""

    def __init__(self, folder: Path, kind: JoinKind, condition: bool, sizes: Sizes) -> None:
        sides = (_TYPES, _TYPES, (1,), (1,), (False,), (0,), (0,))
        self.node = HashJoin(*sides, _SMALLER if condition else None, joined_types(kind, _TYPES, _TYPES, (1,)), kind)
        self.schemas = [msgspec.structs.replace(s, table_id=i + 1) for i, s in enumerate(self.node.state_tables())]
        self.objects, self.cache, self.kernel = LocalObjectStore(folder), BlockCache(), Kernel()
        self.version = HummockVersion(0, 0, 0, 0, 0, ((),), Catalog(), VnodeMapping(0, (0,) * VNODES))
        self.changes = _Changes(sizes)
        self.epoch()

    def epoch(self) -> float:
        """Run one epoch. Return CPU seconds of the executor and the seal."""
        left, right = self.changes.epoch(), self.changes.epoch()
        store = HummockStore(self.objects, self.version, self.cache)
        tables = [StateTable(schema, store, self.version.epoch, VNODES) for schema in self.schemas]
        started = time.process_time()
        self.node.make_executor(tables, Actor(self.kernel, range(VNODES), VNODES)).apply(left, right)
        sealed = [batch for table in tables if (batch := table.seal_changes()) is not None]
        seconds = time.process_time() - started
        epoch = self.version.epoch + 1
        infos = batch_ingest(self.objects, sealed, epoch, f"data/{epoch:016x}")
        self.version = msgspec.structs.replace(
            self.version, epoch=epoch, levels=((*reversed(infos), *self.version.levels[0]),)
        )
        return seconds


class _Changes:
    """The same changes for every kind: first all rows, then updates and new rows. Calls alternate between the sides."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes, self.random, self.number = sizes, np.random.default_rng(7), 0
        self.last: list[pa.Table | None] = [None, None]
        self.calls = 0

    def epoch(self) -> pa.Table:
        side, first = self.calls % 2, self.calls < 2
        self.calls += 1
        come = self._rows(self.sizes.rows if first else self.sizes.changed)
        before = self.last[side]
        self.last[side] = come.slice(0, self.sizes.changed // 2)
        parts = [_weighted(come, 1)]
        if before is not None:
            half = before.num_rows // 2
            updated = before.slice(0, half).set_column(2, "c2", pa.array(self.random.random(half)))
            parts += [_weighted(before, -1), _weighted(updated, 1)]
        return pa.concat_tables(parts)

    def _rows(self, count: int) -> pa.Table:
        numbers = np.arange(self.number, self.number + count)
        self.number += count
        texts = pa.array([f"text {n % 97}" for n in range(count)])
        keys = pa.array(self.random.integers(0, self.sizes.keys, count))
        return pa.table(
            [pa.array(numbers), keys, pa.array(self.random.random(count)), texts], names=["c0", "c1", "c2", "c3"]
        )


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    return make_chunk(rows.columns, pa.array(np.full(rows.num_rows, weight)))


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if a kind misses the budget."""
    default = Sizes()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks joins", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--rows", type=int, default=default.rows, help="rows per side before the measurement")
    parser.add_argument("--changed", type=int, default=default.changed, help="rows inserted per side and epoch")
    parser.add_argument("--epochs", type=int, default=default.epochs, help="measured epochs")
    options = parser.parse_args(arguments)
    sizes = Sizes(options.rows, max(1, options.rows * 3 // 10), options.changed, options.epochs)
    missed = False
    for condition in (False, True):
        with tempfile.TemporaryDirectory(prefix="tussock-joins-") as folder:
            joins = {kind: _Join(Path(folder) / kind, kind, condition, sizes) for kind in KINDS}
            for join in joins.values():  # the first epoch after the load warms the caches
                join.epoch()
            seconds: dict[JoinKind, list[float]] = {kind: [] for kind in KINDS}
            for _ in range(sizes.epochs):  # in turns
                for kind, join in joins.items():
                    seconds[kind].append(join.epoch())
        inner = statistics.median(seconds[JoinKind.INNER])
        which = "with" if condition else "without"
        print(f"joins {which} a further condition, {sizes.rows:,} rows per side, {sizes.changed:,} new rows per epoch")
        for kind, found in seconds.items():
            ratio = statistics.median(found) / inner
            missed |= ratio > BUDGET
            verdict = "ok" if ratio <= BUDGET else "MISSED"
            print(f"  {kind:<6} {statistics.median(found):.3f} s, {ratio:.2f} x inner (budget {BUDGET}) {verdict}")
    return int(missed)
