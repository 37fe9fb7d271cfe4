"""The engine without Spark: the same cells, level functions and flush, with a shuffle of our own that is as unkind as may be.

Cells reach a task in a random order and cut into random batches. Each task is run twice, on two such orders, as a retry or a second
driver would run it: both attempts must answer the same cells, to the byte, and upload the same objects.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from jobs import epoch
from jobs.actor import EpochTask, flush_function, level_function
from jobs.exchange import CELL_SCHEMA, FLUSH
from jobs.plan.schedule import Schedule
from statestore.meta.barrier import Barrier
from statestore.meta.catalog import Catalog
from statestore.meta.store import MetaStore
from statestore.meta.version import HummockVersion

Cells = list[dict[str, Any]]
LevelFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class UnkindShuffle:
    """Runs tasks one after the other in this process; `run_actors` stands in for `jobs.epoch._run_actors`."""

    def __init__(self, seed: int, target_sst_bytes: int = 4096) -> None:
        self.random = random.Random(seed)
        self.target_sst_bytes = target_sst_bytes
        self.moved = 0  # cells that went from one unit to another

    def run_actors(
        self, spark: SparkSession, meta: MetaStore, version: HummockVersion, barrier: Barrier, catalog: Catalog, plan: Schedule
    ) -> tuple[Any, Any]:
        """One epoch's levels and flush. Sources are Parquet: only Spark reads others."""
        leaf = epoch._LeafCells(spark, meta, version, barrier, catalog, plan)
        task = EpochTask(
            meta.objects.uri, msgspec.json.encode(version), plan, barrier.epoch, version.mapping.units, self.target_sst_bytes
        )
        cells = _rows_of(list(leaf.batches()))
        assert not leaf.frames(), "only Spark reads these files"
        units = max(version.mapping.units) + 1
        for level in range(len(plan.levels)):
            function = level_function(lambda: task, level)
            cells = [c for unit in range(units) for c in self._attempts(function, [c for c in cells if c["slot"] == unit], unit)]
        answers = self._attempts(flush_function(lambda: task), cells, None)
        assert not any(c["fragment"] == FLUSH for c in answers)
        return epoch._read_answers(pa.Table.from_pylist(answers, CELL_SCHEMA))

    def _attempts(self, function: LevelFunction, cells: Cells, unit: int | None) -> Cells:
        """Two attempts of one task, which must agree."""
        first = _rows_of(list(function(self._batches(cells))))
        second = _rows_of(list(function(self._batches(cells))))
        assert _ordered(first) == _ordered(second), "two attempts of a task differ"
        self.moved += sum(unit is not None and c["slot"] != unit for c in first)
        return first

    def _batches(self, cells: Cells) -> Iterator[pa.RecordBatch]:
        left = list(cells)
        self.random.shuffle(left)
        while left:
            size = self.random.randint(1, 4)
            yield from pa.Table.from_pylist(left[:size], CELL_SCHEMA).to_batches()
            left = left[size:]


def _rows_of(batches: Sequence[pa.RecordBatch]) -> Cells:
    rows: Cells = pa.Table.from_batches(batches, CELL_SCHEMA).to_pylist()
    return rows


def _ordered(cells: Cells) -> list[tuple[int, int, int, bytes]]:
    return sorted((c["slot"], c["fragment"], c["input"], c["chunk"]) for c in cells)
