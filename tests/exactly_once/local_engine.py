"""The engine without Spark: the same cells, level functions and flush, with a shuffle of our own that is as unkind as may be.

Cells reach a task in a random order and cut into random batches. Each task is run twice, on two such orders, as a retry or a second
driver would run it: both attempts must answer the same cells, to the byte, and upload the same objects.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.driver import epoch, train
from jobs.driver.barrier import Base
from jobs.driver.leaves import LeafCells
from jobs.driver.levels import read_answers
from jobs.plan.schedule import Schedule
from jobs.task.flush import flush_function
from jobs.task.level import level_function
from jobs.wire.cell import BUFFERED, CELL_SCHEMA, FLUSH
from jobs.wire.epoch_task import EpochTask, cells_of, tables_read
from statestore.meta.barrier import Barrier
from statestore.meta.catalog import Catalog
from statestore.meta.store import MetaStore

_ONE_TASK = threading.Lock()  # a worker process of Spark's runs one task at a time

Cells = list[dict[str, Any]]
LevelFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class UnkindShuffle:
    """Runs tasks one after the other in this process; `plan_levels` stands in for that of jobs.driver.levels."""

    def __init__(self, seed: int, target_sst_bytes: int = 4096) -> None:
        self.random = random.Random(seed)
        self.target_sst_bytes = target_sst_bytes
        self.travelling_bytes = None if seed % 2 else 3_000  # else units upload most of what they seal
        self.moved = 0  # cells that went from one unit to another

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Run epochs, one by one or in trains, here."""
        patch.setattr(epoch, "plan_levels", self.plan_levels)
        patch.setattr(train, "plan_levels", self.plan_levels)

    def plan_levels(
        self,
        spark: SparkSession,
        meta: MetaStore,
        base: Base,
        barrier: Barrier,
        catalog: Catalog,
        plan: Schedule,
        held: Sequence["HeldHere"] = (),
    ) -> "LevelsHere":
        """One epoch's levels and flush. Sources are Parquet: only Spark reads others."""
        leaf = LeafCells(spark, meta, base, barrier, catalog, plan)
        task = EpochTask(
            meta.objects.uri,
            msgspec.json.encode(base.version),
            plan,
            barrier.epoch,
            base.version.mapping.units,
            self.target_sst_bytes,
            self.travelling_bytes,
            tuple(one.epoch for one in held),
            cells_of(list(leaf.batches())),
        )
        assert not leaf.frames(), "only Spark reads these files"
        return LevelsHere(self, task, held)

    def attempts(self, function: LevelFunction, cells: Cells, unit: int | None) -> Cells:
        """Two attempts of one task, which must agree."""
        with _ONE_TASK:
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


@dataclass(frozen=True)
class HeldHere:
    """What an epoch in flight sealed."""

    epoch: int
    cells: Cells
    tables: frozenset[int]

    def release(self) -> None:
        """Nobody may read them from here on."""
        self.cells.clear()


@dataclass(frozen=True)
class LevelsHere:
    """Stands in for jobs.driver.levels.Levels."""

    shuffle: UnkindShuffle
    task: EpochTask
    held: Sequence[HeldHere]

    def finish(self) -> tuple[Any, Any]:
        """Levels and flush."""
        return self._flushed(self._run())

    def hold(self) -> tuple[Any, Any, HeldHere]:
        """Levels alone."""
        out = self._run()
        sealed = [c for c in out if c["fragment"] == FLUSH]
        held = HeldHere(self.task.epoch, sealed, frozenset(c["input"] for c in sealed))
        return *read_answers(pa.Table.from_pylist([c for c in out if c["fragment"] != FLUSH], CELL_SCHEMA)), held

    def flush(self, held: HeldHere) -> Any:
        """The flush alone."""
        return self._flushed(held.cells)[1]

    def close(self) -> None:
        """Nothing to forget."""

    def _run(self) -> Cells:
        cells: Cells = []
        units = range(max(self.task.units) + 1)
        for level in range(len(self.task.schedule.levels)):
            functions = [level_function(lambda: self.task, level, lambda unit=unit: unit) for unit in units]  # type: ignore[misc]
            wanted = tables_read(self.task.schedule, level)
            for number, one in enumerate(self.held):
                cells = [*cells, *({**c, "fragment": BUFFERED - number} for c in one.cells if c["input"] in wanted)]
            cells = [c for u in units for c in self.shuffle.attempts(functions[u], [c for c in cells if c["slot"] == u], u)]
        return cells

    def _flushed(self, cells: Cells) -> tuple[Any, Any]:
        answers = self.shuffle.attempts(flush_function(lambda: self.task), cells, None)
        assert not any(c["fragment"] == FLUSH for c in answers)
        return read_answers(pa.Table.from_pylist(answers, CELL_SCHEMA))


def _rows_of(batches: Sequence[pa.RecordBatch]) -> Cells:
    rows: Cells = pa.Table.from_batches(batches, CELL_SCHEMA).to_pylist()
    return rows


def _ordered(cells: Cells) -> list[tuple[int, int, int, bytes]]:
    return sorted((c["slot"], c["fragment"], c["input"], c["chunk"]) for c in cells)
