"""Window functions over one partition: an epoch of new rows at its end, state in SSTs, no Spark.

    python -m benchmarks windows
    python -m benchmarks windows --rows 1000000 10000000

One executor computes lag, a running sum and row_number over one partition. With --begin the benchmark also changes the
first row, which rewrites all rows, and measures seconds and memory. The times cover `apply`, the seal and the upload.
"""

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import make_chunk
from tussock.jobs.executors.operator import Actor
from tussock.jobs.executors.over_window import OverWindow
from tussock.jobs.executors.top_n import Order
from tussock.jobs.executors.window_call import FrameEnd, Over
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import FrameEdge, WindowFunction
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.version import HummockVersion, VnodeMapping
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.table.state_table import StateTable

BUDGET_S = 2.0  # of an epoch at the end of 10 M rows
VNODES = 16
_BEGIN, _HERE = FrameEnd(FrameEdge.UNBOUNDED), FrameEnd(FrameEdge.CURRENT)
_TYPES = ("bigint", "timestamp", "bigint", "double")  # account, time, stream key, amount
_CALLS = (
    Over(WindowFunction.LAG, (3,), "double", "double", True, _HERE, _HERE, 1),
    Over(WindowFunction.SUM, (3,), "double", "double", True, _BEGIN, _HERE),
    Over(WindowFunction.ROW_NUMBER, (), None, "int", True, _BEGIN, _HERE),
)
_LOAD = 1_000_000  # rows per epoch while the partition is loaded


class _Partition:
    """One executor over its own store."""

    def __init__(self, folder: Path) -> None:
        types = (*_TYPES, *(c.type for c in _CALLS))
        self.node = OverWindow((0,), (Order(1, False, False),), (2,), (0,), _CALLS, _TYPES, types)
        self.schemas = [msgspec.structs.replace(s, table_id=i + 1) for i, s in enumerate(self.node.state_tables())]
        self.objects, self.cache, self.kernel = LocalObjectStore(folder), BlockCache(), Kernel()
        self.version = HummockVersion(0, 0, 0, 0, 0, ((),), Catalog(), VnodeMapping(0, (0,) * VNODES))
        self.random, self.count = np.random.default_rng(7), 0

    def append(self, rows: int) -> float:
        """Append rows at the end; return the seconds."""
        numbers = np.arange(self.count, self.count + rows)
        self.count += rows
        return self._epoch(numbers)

    def begin(self) -> float:
        """Insert a row before all others; return the seconds."""
        return self._epoch(np.array([-1]))

    def _epoch(self, numbers: np.ndarray) -> float:
        amounts = pa.array(self.random.integers(0, 100_000, len(numbers)) / 100)
        times = pa.array(numbers * 1000, pa.timestamp("us", tz="UTC"))
        columns = [pa.array(np.zeros(len(numbers), np.int64)), times, pa.array(numbers), amounts]
        chunk = make_chunk(columns, pa.array(np.ones(len(numbers), np.int64)))
        store = HummockStore(self.objects, self.version, self.cache)
        tables = [StateTable(schema, store, self.version.epoch, VNODES) for schema in self.schemas]
        started = time.perf_counter()
        self.node.make_executor(tables, Actor(self.kernel, range(VNODES), VNODES)).apply(chunk)
        sealed = [batch for table in tables if (batch := table.seal_changes()) is not None]
        epoch = self.version.epoch + 1
        infos = batch_ingest(self.objects, sealed, epoch, f"data/{epoch:016x}")
        self.version = msgspec.structs.replace(
            self.version, epoch=epoch, levels=((*reversed(infos), *self.version.levels[0]),)
        )
        return time.perf_counter() - started


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if an epoch at the end misses the budget."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks windows", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1_000_000], help="rows of the partition before the measurement"
    )
    parser.add_argument("--appended", type=int, default=1_000, help="rows appended per epoch")
    parser.add_argument("--epochs", type=int, default=9, help="measured epochs")
    parser.add_argument("--begin", action="store_true", help="then also change the beginning")
    options = parser.parse_args(arguments)
    missed = False
    for rows in options.rows:
        with tempfile.TemporaryDirectory(prefix="tussock-windows-") as folder:
            partition = _Partition(Path(folder))
            loaded = sum(partition.append(min(_LOAD, rows - done)) for done in range(0, rows, _LOAD))
            print(f"lag, running sum and row_number over one partition of {rows:,} rows, loaded in {loaded:.1f} s")
            partition.append(options.appended)  # warms caches
            seconds = statistics.median(partition.append(options.appended) for _ in range(options.epochs))
            missed |= seconds > BUDGET_S
            verdict = "ok" if seconds <= BUDGET_S else "MISSED"
            print(f"  {options.appended:,} rows at the end: {seconds:.3f} s per epoch (budget {BUDGET_S}) {verdict}")
            if options.begin:
                seconds = partition.begin()
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
                print(f"  one row at the beginning: {seconds:.1f} s, at most {peak:.2f} GB of memory")
    return int(missed)
